--- VGG (Simonyan and Zisserman 2015): stages of convolutions of 3 x 3 with a pooling behind each, then three dense
-- layers.
--
--     gm.models.VGG { depth = 16, batch_norm = true, classes = 10 }
--
-- Stage i has width * 2^(i - 1) channels, at most 8 width, as in torchvision. What comes out of the stages is brought
-- to `pool` x `pool` places, so that images may have any size from 2^stages on. In 1D tensor parallelism the first two
-- dense layers, which have most of the parameters, are a pair; the convolutions stay whole.
-- @module ganymede.models.vgg
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local counts = { [11] = { 1, 1, 2, 2, 2 }, [13] = { 2, 2, 2, 2, 2 }, [16] = { 2, 2, 3, 3, 3 },
  [19] = { 2, 2, 4, 4, 4 } }

local VGG = module.class("VGG", nil, "models")

VGG.aliases = { num_classes = "classes", in_chans = "channels" }
VGG.options = {
  depth    = { type = "integer", one_of = { 11, 13, 16, 19 }, default = 16,
    doc = "the number of layers with weights, which says how many convolutions the stages have" },
  blocks   = { type = "list", optional = true,
    doc = "the list of the numbers of convolutions of the stages, in place of those of depth" },
  batch_norm = { type = "boolean", default = false, doc = "whether a batch norm follows each convolution" },
  width    = { type = "integer", min = 1, default = 64, doc = "the number of channels of the first stage" },
  hidden   = { type = "integer", min = 1, default = 4096, doc = "the width of the first two dense layers" },
  pool     = { type = "integer", min = 1, default = 7,
    doc = "the side of the images that the dense layers get, to which they are pooled" },
  dropout  = { type = "number", default = 0.5, min = 0, below = 1,
    doc = "the probability with which an element behind the first two dense layers is dropped in training" },
  channels = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  classes  = { type = "integer", min = 1, default = 1000, doc = "the number of classes" },
}

-- The dense layers' initial numbers are torchvision's.
local function dense(inputs, outputs, partition)
  return nn.Linear { inputs = inputs, outputs = outputs, activation = "relu", partition = partition,
    weight_initializer = init.normal { std = 0.01 }, bias_initializer = init.zeros() }
end

function VGG:build(opt)
  self.convolutions, self.norms, self.ends = nn.ModuleList(), nn.ModuleList(), {}
  local at = opt.channels
  for stage, count in ipairs(opt.blocks and stages.counts("VGG", opt.blocks) or counts[opt.depth]) do
    local width = opt.width * math.min(2 ^ (stage - 1), 8)
    for _ = 1, count do
      self.convolutions:append(nn.Conv2d { in_channels = at, out_channels = width, kernel_size = 3, padding = 1,
        partition = "whole", activation = not opt.batch_norm and "relu" or nil,
        weight_initializer = init.kaiming_normal { mode = "fan_out", nonlinearity = "relu" },
        bias_initializer = init.zeros() })
      if opt.batch_norm then self.norms:append(nn.BatchNorm2d { channels = width }) end
      at = width
    end
    self.ends[self.convolutions:size()] = true
  end
  self.hidden1 = dense(at * opt.pool ^ 2, opt.hidden, "column")
  self.hidden2 = dense(opt.hidden, opt.hidden, "row")
  if opt.dropout > 0 then self.dropout1, self.dropout2 = nn.Dropout(opt.dropout), nn.Dropout(opt.dropout) end
  self.head = nn.Classifier { inputs = opt.hidden, classes = opt.classes,
    weight_initializer = init.normal { std = 0.01 }, bias_initializer = init.zeros() }
end

local function convolve(self, i, x)
  x = self.convolutions[i](x)
  if self.opt.batch_norm then x = ops.relu(self.norms[i](x)) end
  return self.ends[i] and ops.max_pool(x, 2, 2) or x
end

local function classify(self, x)
  x = self.hidden1(ops.flatten(ops.adaptive_avg_pool(x, self.opt.pool):settle(), 2))
  x = self.hidden2(self.dropout1 and self.dropout1(x) or x)
  return self.head(self.dropout2 and self.dropout2(x) or x)
end

--- The forward pass: x (b, channels, height, width) -> logits (b, classes). Sections: each convolution with what
-- follows it, the dense layers.
function VGG:sections()
  local list = {}
  for i, convolution in self.convolutions:each() do
    list[i] = { modules = { convolution, self.norms[i] }, forward = function(x) return convolve(self, i, x) end }
  end
  list[#list + 1] = { modules = { self.hidden1, self.hidden2, self.head, self.dropout1, self.dropout2 },
    forward = function(x) return classify(self, x) end }
  return list
end

return VGG
