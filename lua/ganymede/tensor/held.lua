--- What a rank holds of a tensor, in bytes.
--
--     held.bytes(t)             -- of this rank's block of t
--     held.gradient_bytes(t)    -- of this rank's gradient of t; 0: it holds none
--
-- Neither communicates.
-- @module ganymede.tensor.held
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local tensors = require "ganymede.tensor"

local held = {}

local function bytes_of(own) return core.rests(own) and 0 or own:numel() * dtypes.bytes[own:dtype()] end

--- Bytes of t that this rank holds: of its block, or with ZeRO 3 of its part of a parameter.
function held.bytes(t)
  return tensors.scope(function() return bytes_of(core.resting_part(t)) end)
end

--- Bytes of the gradient of t that this rank holds, in whatever state it is; with ZeRO its own part.
function held.gradient_bytes(t)
  return tensors.scope(function()
    local own = core.grad_part(t)
    return own and bytes_of(own) or 0
  end)
end

return held
