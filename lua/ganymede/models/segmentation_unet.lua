--- A U-Net that gives each pixel or voxel a class (Ronneberger, Fischer and Brox 2015; of volumes: Cicek et al. 2016).
--
--     gm.models.SegmentationUNet { channels = 1, classes = 3, width = 16, levels = 4 }
--
-- Level i has width * 2^(i - 1) channels, and half the sizes of the level before. A level is two convolutions of 3,
-- each with a norm and a ReLU. On the way down the result of each level is kept; on the way up a transposed convolution
-- doubles the sizes, and the level takes what was kept beside it.
--
-- With parallel.sequence ranks share the first dimension of space (depth, or height) of all that is computed: they send
-- each other the rows that convolutions reach over, and batch norms use the whole batch (docs/images.md). In 1D tensor
-- parallelism the convolutions stay whole.
-- @module ganymede.models.segmentation_unet
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local SegmentationUNet = module.class("SegmentationUNet", nil, "models")

SegmentationUNet.aliases = { num_classes = "classes", in_channels = "channels" }
SegmentationUNet.options = {
  dimensions = { type = "integer", min = 1, max = 3, default = 3, doc = "the number of dimensions of the image" },
  channels = { type = "integer", min = 1, default = 1, doc = "the number of channels of the image" },
  classes  = { type = "integer", min = 2, default = 2, doc = "the number of classes" },
  width    = { type = "integer", min = 1, default = 32, doc = "the number of channels of the first level" },
  levels   = { type = "integer", min = 1, max = 16, default = 4, doc = "the number of levels" },
  norm     = { type = "string", one_of = { "batch", "instance" }, default = "batch",
    doc = "what follows a convolution; batch: a norm over the whole batch of all ranks, instance: of each image" },
}

-- The class of this name for images of these dimensions.
local function of(name, dimensions) return nn[("%s%dd"):format(name, dimensions)] end

local function level(opt, inputs, outputs)
  local conv, list = of("Conv", opt.dimensions), {}
  for i = 1, 2 do
    list[#list + 1] = conv { in_channels = i == 1 and inputs or outputs, out_channels = outputs, kernel_size = 3,
      padding = 1, bias = false, partition = "whole" }
    list[#list + 1] = opt.norm == "batch" and of("BatchNorm", opt.dimensions) { channels = outputs }
      or of("InstanceNorm", opt.dimensions) { channels = outputs, affine = true }
    list[#list + 1] = nn.ReLU()
  end
  return nn.Sequential(list)
end

function SegmentationUNet:build(opt)
  local function width(i) return opt.width * 2 ^ (i - 1) end
  self.down, self.larger, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
  for i = 1, opt.levels do self.down:append(level(opt, i == 1 and opt.channels or width(i - 1), width(i))) end
  for i = opt.levels - 1, 1, -1 do
    self.larger:append(of("ConvTranspose", opt.dimensions) { in_channels = width(i + 1), out_channels = width(i),
      kernel_size = 2, stride = 2, partition = "whole" })
    self.up:append(level(opt, 2 * width(i), width(i)))
  end
  self.head = of("Conv", opt.dimensions) { in_channels = opt.width, out_channels = opt.classes, kernel_size = 1,
    partition = "whole" }
end

-- ---------------------------------------------------------------- sections
-- What goes from one to the next: x, and what was kept, the last at the end.

local function enter(self, x)
  local shape, side, fits = x:shape(), 2 ^ (self.opt.levels - 1), x:dim() == self.opt.dimensions + 2
  fits = fits and shape[2] == self.opt.channels
  for d = 3, #shape do fits = fits and shape[d] % side == 0 end
  if fits then return stream.space(x) end
  error(("x must be (batch, %d, %s), sizes multiples of %d; got (%s)"):format(self.opt.channels,
    ({ "length", "height, width", "depth, height, width" })[self.opt.dimensions], side, table.concat(shape, ", ")), 0)
end

local function going_down(block, x, ...)
  local y = block(x)
  local kept, n = { ... }, select("#", ...)
  kept[n + 1] = y
  return ops.max_pool(y, 2), unpack(kept, 1, n + 1)
end

local function going_up(larger, block, x, ...)
  local n = select("#", ...)
  local y = block(stream.join_channels((select(n, ...)), larger(x)))
  return y, unpack({ ... }, 1, n - 1)
end

-- The channels last, as losses and metrics have classes.
local function leave(self, x)
  local order = { 1 }
  for d = 3, x:dim() do order[#order + 1] = d end
  order[#order + 1] = 2
  return ops.permute(self.head(x), order)
end

--- The forward pass: x (b, channels, space...) -> logits (b, space..., classes), cut as x is along its first dimension
-- of space. Sizes are multiples of 2^(levels - 1). Sections: each level of the way down, each of the way up, the head.
function SegmentationUNet:sections()
  local list, levels = {}, self.opt.levels
  for i, block in self.down:each() do
    list[i] = { modules = { block }, forward = function(x, ...)
      if i == 1 then x = enter(self, x) end
      if i == levels then return block(x), ... end
      return going_down(block, x, ...)
    end }
  end
  for i, block in self.up:each() do
    local larger = self.larger[i]
    list[#list + 1] = { modules = { larger, block }, forward = function(x, ...)
      return going_up(larger, block, x, ...)
    end }
  end
  list[#list + 1] = { modules = { self.head }, forward = function(x) return leave(self, x) end }
  return list
end

return SegmentationUNet
