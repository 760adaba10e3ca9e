--- The last layer of a model: the scores (logits) of the classes, y = x W' + b. Its weight may be an embedding's table.
-- It is a class of its own because a mesh cuts it differently from Linear: over the classes, together with the loss.
-- @module ganymede.nn.classifier
local few_bits = require "ganymede.nn.few_bits"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local projection = require "ganymede.nn.projection"

local Classifier = module.class "Classifier"

Classifier.matrices = {} -- a head: no matrix of a hidden layer (ganymede.optim.muon)
Classifier.reads_few_bits = true
Classifier.positional = { "inputs", "classes" }
Classifier.aliases = { in_features = "inputs", num_classes = "classes" }
Classifier.options = {
  inputs  = { type = "integer", min = 1, doc = "the width of x" },
  classes = { type = "integer", min = 1, doc = "the number of classes" },
  bias    = { type = "boolean", default = true, doc = "whether the bias b is added" },
  weight  = { type = "module", optional = true, hidden = true,
              doc = "a layer, such as an Embedding, whose parameter 'weight' (classes, inputs) this layer shares" },
  vocab_parallel_limit = { type = "integer", min = 1, default = 2048, hidden = true,
                           doc = "the number of classes above which a mesh that cuts layers also cuts the classes" },
  chunk   = { type = "integer", min = 0, default = 0,
              doc = "the number of rows of a rank whose scores losses and metrics compute at a time; 0: all of them" },
  softcap = { type = "number", above = 0, optional = true,
              doc = "scores y become softcap tanh(y / softcap), as in Gemma 2; not together with chunk" },
  weight_initializer = init.option("the initializer of W; default: U(-1/sqrt(inputs), 1/sqrt(inputs)); not together "
    .. "with `weight`"),
  bias_initializer   = init.option "the initializer of b; default: U(-1/sqrt(inputs), 1/sqrt(inputs))",
}

local function same_shape(a, b) return #a == 2 and a[1] == b[1] and a[2] == b[2] end

local function check_owner(opt, shape)
  if opt.weight_initializer ~= nil then
    error("Classifier: give 'weight' or 'weight_initializer', not both: the owner of the weight initializes it", 4)
  end
  for _, p in ipairs(opt.weight:declared()) do
    if p.name == "weight" then
      if same_shape(p.shape, shape) then return end
      error(("Classifier: the weight to share has the shape (%s), and this layer needs (%d, %d)"):format(
        table.concat(p.shape, ", "), shape[1], shape[2]), 4)
    end
  end
  error(("Classifier: %s has no parameter 'weight' to share"):format(opt.weight:describe()), 4)
end

function Classifier:build(opt)
  local shape = { opt.classes, opt.inputs }
  if opt.weight then check_owner(opt, shape) end
  if opt.softcap and opt.chunk > 0 then
    error(("Classifier: softcap = %g is not there for scores that are computed %d rows at a time; give 0 rows (chunk, "
      .. "head_chunk)"):format(opt.softcap, opt.chunk), 4)
  end
  self:param("weight", shape, init.resolve(opt.weight_initializer, init.dense_weight, opt.inputs, opt.classes))
  if opt.weight then self:tie("weight", opt.weight, "weight") end
  if opt.bias then
    self:param("bias", { opt.classes }, init.resolve(opt.bias_initializer, init.dense_bias, opt.inputs))
  end
end

--- x (..., inputs) -> logits (..., classes); backward: dx is set, dW and db are added to. With chunk > 0 the result is
-- a Projection, which computes the logits piece by piece where they are used.
function Classifier:forward(x)
  local chunk = self.opt.chunk
  if chunk > 0 then return projection.new(x:settle(), self:use "weight", self:use "bias", chunk, self:path()) end
  local y, cap = few_bits.linear(self, x:settle(), self:use "bias"):settle(), self.opt.softcap
  return cap and ops.tanh(y * (1 / cap)) * cap or y
end

return Classifier
