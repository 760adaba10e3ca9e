--- A Swin Transformer (Liu et al. 2021): patches by a convolution, stages of blocks whose attention is within windows,
-- every second one's between those of the one before, and between stages a layer that makes one position of four.
--
--     gm.models.Swin { size = "tiny", classes = 10 }
--
-- Stage i has width * 2^(i - 1) channels. `size` names the numbers of the paper; `width`, `blocks` and `heads` make
-- others. Images may have any size that patches tile. In 1D tensor parallelism ranks share heads and MLPs.
-- @module ganymede.models.swin
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stages = require "ganymede.models.stages"

local sizes = {
  tiny = { width = 96, blocks = { 2, 2, 6, 2 }, heads = { 3, 6, 12, 24 } },
  small = { width = 96, blocks = { 2, 2, 18, 2 }, heads = { 3, 6, 12, 24 } },
  base = { width = 128, blocks = { 2, 2, 18, 2 }, heads = { 4, 8, 16, 32 } },
  large = { width = 192, blocks = { 2, 2, 18, 2 }, heads = { 6, 12, 24, 48 } },
}

local Swin = module.class("Swin", nil, "models")

local of_blocks, shared = nn.SwinBlock.options, stages.options

Swin.aliases = { num_classes = "classes", in_chans = "channels" }
Swin.options = {
  size     = { type = "string", one_of = { "tiny", "small", "base", "large" }, default = "tiny",
    doc = "which width, blocks and heads the model has: tiny 96 with 2, 2, 6, 2 blocks; small 96, base 128, large 192 "
      .. "with 2, 2, 18, 2; heads of 32 numbers" },
  width    = shared.width, blocks = shared.blocks,
  heads    = { type = "list", optional = true,
    doc = "the list of the numbers of heads of the stages, in place of those of size" },
  patch_size = shared.patch_size,
  window   = of_blocks.window, mlp_ratio = of_blocks.mlp_ratio, qkv_bias = of_blocks.qkv_bias, eps = of_blocks.eps,
  dropout  = of_blocks.dropout, attention_dropout = of_blocks.attention_dropout,
  drop_path = shared.drop_path, channels = shared.channels, classes = shared.classes,
}

-- Half of a window, in each dimension.
local function half(window)
  if type(window) == "number" then return math.floor(window / 2) end
  local list = {}
  for d, n in ipairs(window) do list[d] = type(n) == "number" and math.floor(n / 2) or 0 end
  return list
end

local function block_options(opt, width, heads, within, drop_path)
  return { width = width, heads = heads, window = opt.window, shift = within % 2 == 0 and half(opt.window) or 0,
    mlp_ratio = opt.mlp_ratio, qkv_bias = opt.qkv_bias, eps = opt.eps, dropout = opt.dropout,
    attention_dropout = opt.attention_dropout, drop_path = drop_path }
end

function Swin:build(opt)
  local of_size = sizes[opt.size]
  local width, blocks = opt.width or of_size.width, opt.blocks and stages.counts("Swin", opt.blocks) or of_size.blocks
  local heads = stages.each("Swin", "heads", opt.heads or of_size.heads, blocks)
  self.stem = stages.patches(opt.channels, width, opt.patch_size)
  self.stem_norm = nn.LayerNorm { width = width, eps = opt.eps }
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks, self.merges, self.first = nn.ModuleList(), nn.ModuleList(), {} -- first: block -> the stage it begins
  for stage, count in ipairs(blocks) do
    if stage > 1 then
      self.merges:append(nn.PatchMerging { width = width, eps = opt.eps })
      width = 2 * width
    end
    self.first[self.blocks:size() + 1] = stage
    for within = 1, count do
      local chance = stages.drop_path(opt.drop_path, self.blocks:size() + 1, stages.sum(blocks))
      self.blocks:append(nn.SwinBlock(block_options(opt, width, heads[stage], within, chance)))
    end
  end
  self.norm = nn.LayerNorm { width = width, eps = opt.eps }
  self.head = nn.Classifier { inputs = width, classes = opt.classes, weight_initializer = stages.weights,
    bias_initializer = init.zeros() }
end

local function begin(self, x)
  x = self.stem_norm(ops.permute(self.stem(x), { 1, 3, 4, 2 }))
  return self.dropout and self.dropout(x) or x
end

--- The forward pass: x (b, channels, height, width) -> logits (b, classes). Sections: the stem, each block with the
-- layer that reduces its stage, norm and head.
function Swin:sections()
  local list = { { modules = { self.stem, self.stem_norm, self.dropout },
    forward = function(x) return begin(self, x) end } }
  for i, block in self.blocks:each() do
    local merge = self.first[i] and self.merges[self.first[i] - 1]
    list[i + 1] = { modules = { block, merge or nil },
      forward = function(x) return block(merge and merge(x) or x) end }
  end
  list[#list + 1] = { modules = { self.norm, self.head }, forward = function(x)
    return self.head(ops.mean(self.norm(x), { 2, 3 }):settle())
  end }
  return list
end

return Swin
