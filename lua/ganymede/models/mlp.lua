--- A multilayer perceptron for classification. The trap: nn.MLP is another class, one half of a transformer block.
-- @module ganymede.models.mlp
local functions = require "ganymede.nn.functions"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"

local MLP = module.class("MLP", nil, "models")

MLP.options = {
  inputs  = { type = "integer", min = 1, doc = "the number of elements of a sample; images are flattened" },
  hidden  = { type = "list", default = { 128 },
    doc = "the list of the widths of the hidden layers, in order; { }: none" },
  classes = { type = "integer", min = 1, doc = "the number of classes" },
  activation = { type = "string", default = "relu", one_of = functions.in_products,
                 doc = "the activation function after every hidden layer" },
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element is dropped in training after every hidden layer" },
}

function MLP:build(opt)
  local width = opt.inputs
  self.layers = nn.ModuleList()
  for i, hidden in ipairs(opt.hidden) do
    if type(hidden) ~= "number" or hidden < 1 or hidden % 1 ~= 0 then
      error(("MLP: hidden[%d] must be a whole number from 1; got %s"):format(i, tostring(hidden)), 3)
    end
    self.layers:append(nn.Linear {
      inputs = width, outputs = hidden, activation = opt.activation, partition = i % 2 == 1 and "column" or "row",
    })
    width = hidden
  end
  if opt.dropout > 0 then
    self.dropouts = nn.ModuleList() -- one for each layer, because sections share no module
    for _ = 1, #opt.hidden do self.dropouts:append(nn.Dropout(opt.dropout)) end
  end
  self.head = nn.Classifier { inputs = width, classes = opt.classes }
end

local function flatten(self, x)
  local batch = x:size(1)
  if x:numel() ~= batch * self.opt.inputs then
    error(("a sample must have %d elements; got a batch of shape (%s)"):format(
      self.opt.inputs, table.concat(x:shape(), ", ")), 0)
  end
  return x:dim() == 2 and x or ops.reshape(x, { batch, self.opt.inputs })
end

--- The forward pass: x (b, ...) with `inputs` elements in each sample -> logits (b, classes). Sections: each hidden
-- layer, the head.
function MLP:sections()
  local list = {}
  for i, layer in self.layers:each() do
    local dropout = self.dropouts and self.dropouts[i]
    list[i] = { modules = { layer, dropout }, forward = function(x)
      x = layer(i == 1 and flatten(self, x) or x)
      return dropout and dropout(x) or x
    end }
  end
  list[#list + 1] = { modules = { self.head }, forward = function(x)
    return self.head(#list == 1 and flatten(self, x) or x)
  end }
  return list
end

--- Returns the floating point operations of one sample, forward and backward: 6 for each weight.
function MLP:flops_per_sample()
  local total = 0
  for _, p in ipairs(self:declared()) do
    if #p.shape == 2 then total = total + 6 * p.shape[1] * p.shape[2] end
  end
  return total
end

return MLP
