--- What a Swin Transformer (Liu et al. 2021) is made of: a block of attention within windows, and the layer that makes
-- one position of four.
-- @module ganymede.nn.swin_block
local DropPath = require("ganymede.nn.dropout").DropPath
local init = require "ganymede.nn.initializers"
local LayerNorm = require "ganymede.nn.layer_norm"
local Linear = require "ganymede.nn.linear"
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"
local WindowAttention = require "ganymede.nn.window_attention"

local weights = init.trunc_normal { std = 0.02, low = -0.04, high = 0.04 }

-- ---------------------------------------------------------------- a block

local SwinBlock = module.class "SwinBlock"
SwinBlock.recompute_kind = "block" -- what the setting recompute calls it

local of_attention = WindowAttention.options

SwinBlock.options = {
  width  = of_attention.width, heads = of_attention.heads, window = of_attention.window, shift = of_attention.shift,
  qkv_bias  = of_attention.qkv_bias,
  mlp_ratio = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLP divided by width" },
  eps       = { type = "number", default = 1e-5, above = 0, doc = "a number added to the variance in both norms" },
  dropout   = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the results of attention and MLP is dropped in training" },
  attention_dropout = of_attention.dropout,
  drop_path = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips a branch in training" },
}

function SwinBlock:build(opt)
  self.norm1 = LayerNorm { width = opt.width, eps = opt.eps }
  self.attention = WindowAttention { width = opt.width, heads = opt.heads, window = opt.window, shift = opt.shift,
    qkv_bias = opt.qkv_bias, dropout = opt.attention_dropout, output_dropout = opt.dropout,
    weight_initializer = weights, bias_initializer = init.zeros() }
  self.norm2 = LayerNorm { width = opt.width, eps = opt.eps }
  self.mlp = MLP { width = opt.width, hidden = math.floor(opt.mlp_ratio * opt.width), dropout = opt.dropout,
    weight_initializer = weights, bias_initializer = init.zeros() }
  if opt.drop_path > 0 then self.drop_path1, self.drop_path2 = DropPath(opt.drop_path), DropPath(opt.drop_path) end
end

--- x (b, height, width, channels) -> the same shape.
function SwinBlock:forward(x)
  local y = self.attention(self.norm1(x))
  x = ops.add(x, self.drop_path1 and self.drop_path1(y) or y)
  y = self.mlp(self.norm2(x))
  return ops.add(x, self.drop_path2 and self.drop_path2(y) or y)
end

-- ---------------------------------------------------------------- four positions become one

local PatchMerging = module.class "PatchMerging"
PatchMerging.positional = { "width" }

PatchMerging.options = {
  width = { type = "integer", min = 1, doc = "the number of channels of x; the result has twice as many" },
  eps   = { type = "number", default = 1e-5, above = 0, doc = "a number added to the variance in the norm" },
}

function PatchMerging:build(opt)
  self.norm = LayerNorm { width = 4 * opt.width, eps = opt.eps }
  self.reduction = Linear { inputs = 4 * opt.width, outputs = 2 * opt.width, bias = false, partition = "whole",
    weight_initializer = weights }
end

--- x (b, height, width, channels) -> (b, height / 2, width / 2, 2 channels), sizes rounded up. The channels of four
-- neighbours stand one behind the other, column by column: as in Swin's files. So ranks that share channels bring all
-- of them together first, and so do those that share rows, as Megatron's sequence mode leaves them.
function PatchMerging:forward(x)
  x = stream.whole(stream.whole(x, 4), 2)
  local b, h, w, c = unpack(x:shape())
  if h % 2 == 1 or w % 2 == 1 then x = ops.pad(x, { 0, 0, 0, w % 2, 0, h % 2 }) end
  h, w = math.ceil(h / 2), math.ceil(w / 2)
  local cut = ops.permute(ops.reshape(x, { b, h, 2, w, 2, c }), { 1, 2, 4, 5, 3, 6 })
  return stream.to(self.reduction(self.norm(ops.reshape(cut, { b, h, w, 4 * c }))), 1) -- one layer alone: see MLP
end

return { SwinBlock = SwinBlock, PatchMerging = PatchMerging }
