--- What a rank holds of a tensor, in bytes.
--
--     held.bytes(t)             -- of this rank's block of t
--     held.has_gradient(t)      -- does this rank hold a gradient of t?
--
-- Neither communicates.
-- @module ganymede.tensor.held
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local tensors = require "ganymede.tensor"

local held = {}

--- Bytes of the block of t that this rank holds.
function held.bytes(t)
  return tensors.scope(function()
    local own = core.world() > 1 and t:detach():local_tensor() or t
    return own:numel() * dtypes.bytes[own:dtype()]
  end)
end

--- Does this rank hold a gradient of t, in whatever state it is?
function held.has_gradient(t) return tensors.scope(core.grad_part, t) ~= nil end

return held
