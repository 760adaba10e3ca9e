--- Runs mistake() as a section, as repl_ranks does -> this rank's error, how many ranks failed by themselves, the first
-- of them.
local core = require "ganymede.core"

return function(mistake)
  local ok, err = pcall(mistake)
  local echo = not ok and core.comm_failure() ~= nil
  local failed, first = core.comm_section_end(ok or echo, not ok and tostring(err) or "")
  return err, failed, first
end
