--- The feed-forward half of a transformer block: down(f(up(x))), where the kernel of the first product also computes f;
-- or, gated (Shazeer 2020), down(f(gate(x)) * up(x)).
-- @module ganymede.nn.mlp
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local Dropout = require("ganymede.nn.dropout").Dropout
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local MLP = module.class "MLP"

MLP.positional = { "width", "hidden" }
MLP.options = {
  width  = { type = "integer", min = 1, doc = "the width of x and y" },
  hidden = { type = "integer", min = 1, optional = true, doc = "the width between the two layers; default: 4 width" },
  activation = { type = "string", default = "gelu", one_of = functions.of_mlps,
    doc = "the activation function between the two layers; reglu, geglu, geglu_tanh and swiglu are gated: a third "
      .. "layer, gate, stands beside the first" },
  bias    = { type = "boolean", default = true, doc = "whether the layers have biases" },
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result is dropped in training" },
  weight_initializer = init.option "the initializer of the weights; default: that of nn.Linear",
  output_initializer = init.option "the initializer of the last weight; default: weight_initializer",
  bias_initializer   = init.option "the initializer of the biases; default: that of nn.Linear",
}

function MLP:build(opt)
  local hidden, gated = opt.hidden or 4 * opt.width, functions.is_gate(opt.activation)
  local function first(activation)
    return Linear {
      inputs = opt.width, outputs = hidden, bias = opt.bias, activation = activation, partition = "column",
      weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer,
    }
  end
  if gated then self.gate = first() end
  self.up = first(not gated and opt.activation or nil)
  local output_initializer = opt.output_initializer
  if output_initializer == nil then output_initializer = opt.weight_initializer end
  self.down = Linear {
    inputs = hidden, outputs = opt.width, bias = opt.bias, partition = "row",
    weight_initializer = output_initializer, bias_initializer = opt.bias_initializer,
  }
  if opt.dropout > 0 then self.dropout = Dropout(opt.dropout) end
end

--- x (..., width) -> (..., width)
function MLP:forward(x)
  local y = self.gate and ops[self.opt.activation](self.gate(x), self.up(x)) or self.up(x)
  y = self.down(y)
  return self.dropout and self.dropout(y) or y
end

return MLP
