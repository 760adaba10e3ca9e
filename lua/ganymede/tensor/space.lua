--- Images (batch, channels, space...) on ranks: the dimensions behind the channels may be cut over them.
-- @module ganymede.tensor.space
local core = require "ganymede.core"

local space = {}

--- Do ranks share a dimension of space of x?
function space.is_cut(x)
  local cuts = core.layout(x).cuts
  for d = 3, x:dim() do
    if #(cuts[d] or {}) > 0 then return true end
  end
  return false
end

return space
