--- gm.recompute: a call that keeps its arguments only and runs again in backward.
-- @module ganymede.nn.recompute
local module = require "ganymede.nn.module"
local region = require "ganymede.nn.region"
local signature = require "ganymede.base.signature"

--- Calls fn(...) so that backward needs only the arguments: what fn computed on the way is freed and computed again.
-- Results, gradients and random numbers are the same to the bit. Memory is saved, and fn takes its time twice.
-- Losses that layers put aside (experts) count once. Without recording it is an ordinary call.
-- @param fn a function or a module; its results depend on its arguments and on parameters only
-- @param arguments what it is called with; tensors that were computed outside must be arguments
-- @return what fn returns: tensors, numbers and the like, no tables
-- @error what fn raises; in backward, when the second run gives results of another shape
-- @see nn.TransformerBlock
-- @example
--   x = gm.tensor({ 3 }):requires_grad(true)
--   gm.recompute(function(x) return x * x end, x):sum():backward()
--   x:grad() --> { 6 }
local function recompute(fn, ...)
  if module.is_module(fn) then return region.run_module(fn, function(m, ...) return m(...) end, ...) end
  return region.run(fn, ...)
end

local takes = "fn any, arguments any?, ..."
return { recompute = signature.declare("gm.recompute", takes, nil, recompute) }
