--- A residual network (He et al. 2016): a stem, stages of blocks of convolutions beside a path around them, a head.
--
--     gm.models.ResNet { depth = 18, stem = "cifar", classes = 10 }
--
-- Depths 18 and 34 have blocks of two convolutions of 3 x 3; 50, 101 and 152 have blocks of 1 x 1, 3 x 3, 1 x 1, where
-- the middle one has the stride (version 1.5, as in torchvision). Stage i has width * 2^(i - 1) channels inside of its
-- blocks, and halves height and width, except for the first. Convolutions have no biases; batch norms follow them, over
-- the whole batch of all ranks (ganymede.nn.batch_norm). In 1D tensor parallelism the convolutions stay whole; in 2D
-- they are cut.
-- @module ganymede.models.resnet
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local counts = { [18] = { 2, 2, 2, 2 }, [34] = { 3, 4, 6, 3 }, [50] = { 3, 4, 6, 3 }, [101] = { 3, 4, 23, 3 },
  [152] = { 3, 8, 36, 3 } }

local Block = nn.ResidualBlock

local ResNet = module.class("ResNet", nil, "models")

ResNet.aliases = { num_classes = "classes", in_chans = "channels" }
ResNet.options = {
  depth    = { type = "integer", one_of = { 18, 34, 50, 101, 152 }, default = 50,
    doc = "the number of layers with weights, which says how many blocks of which kind there are" },
  blocks   = { type = "list", optional = true,
    doc = "the list of the numbers of blocks of the stages, in place of those of depth" },
  stem     = { type = "string", one_of = { "imagenet", "cifar" }, default = "imagenet",
    doc = "what comes first; imagenet: a convolution of 7 x 7 with stride 2 and a pooling of 3 x 3 with stride 2; "
      .. "cifar: a convolution of 3 x 3, for small images" },
  width    = { type = "integer", min = 1, default = 64, doc = "the channels inside of the blocks of the first stage" },
  channels = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  classes  = { type = "integer", min = 1, default = 1000, doc = "the number of classes" },
}

function ResNet:build(opt)
  local bottleneck, at = opt.depth >= 50, opt.width
  self.stem = Block.convolution(opt.channels, opt.width, opt.stem == "cifar" and 3 or 7, opt.stem == "cifar" and 1 or 2)
  self.norm = nn.BatchNorm2d { channels = opt.width }
  self.blocks = nn.ModuleList()
  for stage, count in ipairs(opt.blocks and stages.counts("ResNet", opt.blocks) or counts[opt.depth]) do
    local width = opt.width * 2 ^ (stage - 1)
    for i = 1, count do
      self.blocks:append(Block { inputs = at, width = width, bottleneck = bottleneck,
        stride = i == 1 and stage > 1 and 2 or 1 })
      at = Block.channels(width, bottleneck)
    end
  end
  self.head = nn.Classifier { inputs = at, classes = opt.classes }
end

local function begin(self, x)
  x = ops.relu(self.norm(self.stem(x)))
  return self.opt.stem == "imagenet" and ops.max_pool(x, 3, 2, 1) or x
end

--- The forward pass: x (b, channels, height, width) -> logits (b, classes). Sections: the stem, each block, the head.
function ResNet:sections()
  local list = { { modules = { self.stem, self.norm }, forward = function(x) return begin(self, x) end } }
  for i, block in self.blocks:each() do list[i + 1] = { modules = { block }, forward = block } end
  list[#list + 1] = { modules = { self.head }, forward = function(x)
    return self.head(ops.mean(x, { 3, 4 }):settle())
  end }
  return list
end

return ResNet
