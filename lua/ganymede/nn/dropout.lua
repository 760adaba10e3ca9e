--- Dropout of elements (Srivastava et al. 2014) and of whole branches (Huang et al. 2016).
-- A mask is a function of (seed, module path, call, step, global element index), so it is the same on any mesh.
-- p counts as the nearest multiple of 1/65,536, also in 1 / (1 - p): so the mean stays what it is.
-- In evaluation mode, and with p = 0, both layers return x itself.
-- @module ganymede.nn.dropout
local tensors = require "ganymede.tensor"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local Dropout = module.class "Dropout"

Dropout.positional = { "p" }
Dropout.options = {
  p = { type = "number", default = 0.5, min = 0, below = 1,
    doc = "the probability with which an element becomes zero in training" },
}

--- x (...) -> the same shape; the elements that are kept are multiplied by 1 / (1 - p).
function Dropout:forward(x)
  if not self.training or self.opt.p == 0 then return x end
  return ops.dropout(x, self.opt.p)
end

local DropPath = module.class "DropPath"

DropPath.positional = { "p" }
DropPath.options = {
  p = { type = "number", default = 0.1, min = 0, below = 1,
    doc = "the probability with which a sample becomes zero in training" },
}

--- x (b, ...) -> the same shape; whole samples become zero, and the others are multiplied by 1 / (1 - p).
function DropPath:forward(x)
  if not self.training or self.opt.p == 0 then return x end
  local shape = { x:size(1) }
  for d = 2, x:dim() do shape[d] = 1 end
  return ops.mul(x, ops.dropout(tensors.ones(shape, { dtype = x:dtype() }), self.opt.p))
end

return { Dropout = Dropout, DropPath = DropPath }
