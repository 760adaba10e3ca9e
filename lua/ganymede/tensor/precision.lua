--- Floats of 16 bits: what is kept in f32 beside them.
--
-- A model of dtype bf16 has its parameters, activations and gradients in 16 bits. Losses, statistics of norms, scores
-- of routers, moments and master copies of parameters are f32; data reaches the model in its dtype.
-- @module ganymede.tensor.precision
local missing = require "ganymede.base.missing"
local ops = require "ganymede.tensor.ops"

local precision = {}

local narrow = require("ganymede.base.dtypes").narrow

--- Is it a float of 16 bits?
function precision.is_narrow(dtype) return narrow[dtype] == true end

--- t, or t in f32 where it is of 16 bits.
function precision.wide(t) return narrow[t:dtype()] and ops.cast(t, "f32") or t end

--- t, or t in dtype where that is of 16 bits and t a wider float.
function precision.fitted(t, dtype)
  local have = t:dtype()
  return narrow[dtype] and (have == "f32" or have == "f64") and ops.cast(t, dtype) or t
end

return missing.guard("precision", precision)
