--- Activations as layers, for Sequential. nn.Linear { activation = ... } is faster: one pass over memory.
-- @module ganymede.nn.activations
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local layers = {}

-- A layer without options: x (...) -> op(x), the same shape.
local function simple(name, op)
  local class = module.class(name)
  class.options = {}
  function class:forward(x) return ops[op](x) end -- luacheck: ignore self
  layers[name] = class
end

simple("ReLU", "relu")
simple("SiLU", "silu")
simple("Tanh", "tanh")
simple("Sigmoid", "sigmoid")

local GELU = module.class "GELU"
GELU.options = {
  approximate = { type = "string", default = "none", one_of = { "none", "tanh" },
                  doc = "none: the exact erf form; tanh: GPT-2's approximation" },
}
--- x (...) -> x Phi(x), the same shape (Hendrycks and Gimpel 2016).
function GELU:forward(x) return self.opt.approximate == "tanh" and ops.gelu_tanh(x) or ops.gelu(x) end
layers.GELU = GELU

-- A softmax along one dimension, which is made whole where ranks share it: x (...) -> the same shape.
local function along(name, op)
  local class = module.class(name)
  class.positional = { "dim" }
  class.options = { dim = { type = "integer", default = -1, doc = "dimension, from 1; -1 is the last" } }
  function class:forward(x) return ops[op](stream.whole(x, self.opt.dim), self.opt.dim) end
  layers[name] = class
end

along("Softmax", "softmax")
along("LogSoftmax", "log_softmax")

return layers
