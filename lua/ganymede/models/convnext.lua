--- ConvNeXt (Liu et al. 2022): patches by a convolution, stages of blocks with a convolution between them that halves
-- height and width, a norm, a classifier.
--
--     gm.models.ConvNeXt { size = "tiny", classes = 10 }
--
-- Stage i has width * 2^(i - 1) channels. `size` names the numbers of the paper; `blocks` and `width` make others.
-- @module ganymede.models.convnext
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local sizes = {
  tiny = { width = 96, blocks = { 3, 3, 9, 3 } }, small = { width = 96, blocks = { 3, 3, 27, 3 } },
  base = { width = 128, blocks = { 3, 3, 27, 3 } }, large = { width = 192, blocks = { 3, 3, 27, 3 } },
}

local ConvNeXt = module.class("ConvNeXt", nil, "models")

local shared = stages.options

ConvNeXt.aliases = { num_classes = "classes", in_chans = "channels" }
ConvNeXt.options = {
  size     = { type = "string", one_of = { "tiny", "small", "base", "large" }, default = "tiny",
    doc = "which width and blocks the model has: tiny 96 with 3, 3, 9, 3 blocks; small 96, base 128, large 192 with "
      .. "3, 3, 27, 3" },
  width = shared.width, blocks = shared.blocks, patch_size = shared.patch_size,
  kernel   = nn.ConvNeXtBlock.options.kernel,
  layer_scale = nn.ConvNeXtBlock.options.layer_scale,
  drop_path = shared.drop_path,
  eps      = { type = "number", default = 1e-6, above = 0, doc = "a number added to the variance in the norms" },
  channels = shared.channels, classes = shared.classes,
}

function ConvNeXt:build(opt)
  local width = opt.width or sizes[opt.size].width
  local blocks = opt.blocks and stages.counts("ConvNeXt", opt.blocks) or sizes[opt.size].blocks
  self.stem = stages.patches(opt.channels, width, opt.patch_size)
  self.stem_norm = nn.LayerNorm { width = width, eps = opt.eps }
  self.blocks, self.norms, self.reductions = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
  self.first = {} -- block -> the stage that begins with it
  for stage, count in ipairs(blocks) do
    if stage > 1 then
      self.norms:append(nn.LayerNorm { width = width, eps = opt.eps })
      self.reductions:append(stages.patches(width, 2 * width, 2))
      width = 2 * width
    end
    self.first[self.blocks:size() + 1] = stage
    for _ = 1, count do
      self.blocks:append(nn.ConvNeXtBlock { width = width, kernel = opt.kernel, layer_scale = opt.layer_scale,
        eps = opt.eps, drop_path = stages.drop_path(opt.drop_path, self.blocks:size() + 1, stages.sum(blocks)) })
    end
  end
  self.norm = nn.LayerNorm { width = width, eps = opt.eps }
  self.head = nn.Classifier { inputs = width, classes = opt.classes, weight_initializer = stages.weights,
    bias_initializer = init.zeros() }
end

-- The norm of the channels of each place of x (b, channels, height, width).
local function normalised(norm, x) return ops.permute(norm(ops.permute(x, { 1, 3, 4, 2 })), { 1, 4, 2, 3 }) end

-- What stands before block i, and the block.
local function step(self, i, x)
  local stage = self.first[i]
  if stage and stage > 1 then x = self.reductions[stage - 1](normalised(self.norms[stage - 1], x)) end
  return self.blocks[i](x)
end

--- The forward pass: x (b, channels, height, width) -> logits (b, classes). Sections: the stem, each block with what
-- reduces its stage, norm and head.
function ConvNeXt:sections()
  local list = { { modules = { self.stem, self.stem_norm }, forward = function(x)
    return normalised(self.stem_norm, self.stem(x))
  end } }
  for i, block in self.blocks:each() do
    local before = (self.first[i] or 1) - 1
    list[i + 1] = { modules = { block, self.norms[before], self.reductions[before] },
      forward = function(x) return step(self, i, x) end }
  end
  list[#list + 1] = { modules = { self.norm, self.head }, forward = function(x)
    return self.head(self.norm(ops.mean(x, { 3, 4 }):settle()))
  end }
  return list
end

return ConvNeXt
