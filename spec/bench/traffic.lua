--- For benches: what this rank has sent since core.comm_reset_traffic(), barriers apart.
--
--     local bytes, exposed = traffic()          -- exposed: seconds in which it did nothing but wait or move data
local core = require "ganymede.core"

return function()
  local bytes, exposed = 0, 0
  for _, entry in ipairs(core.comm_traffic()) do
    if entry.op ~= "barrier" then bytes, exposed = bytes + entry.bytes, exposed + entry.exposed end
  end
  return bytes, exposed
end
