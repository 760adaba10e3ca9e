--- Attention between the places of an image (b, channels, h, w), which become a sequence (b, h w, channels), by rows.
--
-- SpatialAttention is one layer of attention (DDPM, the autoencoder of Stable Diffusion); SpatialTransformer has blocks
-- of attention, attention to a context, and a gated MLP (Rombach et al. 2022). Both add what they find to x.
-- @module ganymede.nn.spatial_attention
local Attention = require "ganymede.nn.attention"
local containers = require "ganymede.nn.containers"
local convolution = require "ganymede.nn.convolution"
local CrossAttention = require "ganymede.nn.cross_attention"
local group_norm = require "ganymede.nn.group_norm"
local init = require "ganymede.nn.initializers"
local LayerNorm = require "ganymede.nn.layer_norm"
local Linear = require "ganymede.nn.linear"
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local channels = { type = "integer", min = 1, doc = "the number of channels of x and y" }
local groups = { type = "integer", min = 1, default = 32, doc = "the number of groups of channels in the norm" }
local eps = { type = "number", default = 1e-6, above = 0, doc = "a number added to the variance in the group norm" }

local function norm(opt) return group_norm.GroupNorm { groups = opt.groups, channels = opt.channels, eps = opt.eps } end

-- (b, c, h, w) -> (b, h w, c)
local function to_sequence(x)
  return ops.reshape(ops.permute(x, { 1, 3, 4, 2 }), { x:size(1), x:size(3) * x:size(4), x:size(2) })
end

-- (b, h w, c) -> (b, c, h, w), as x
local function to_image(y, x)
  return ops.permute(ops.reshape(y, { x:size(1), x:size(3), x:size(4), x:size(2) }), { 1, 4, 2, 3 })
end

local function check(x, n)
  if x:dim() == 4 and x:size(2) == n then return end
  error(("x must be (batch, %d, height, width); got (%s)"):format(n, table.concat(x:shape(), ", ")), 0)
end

local SpatialAttention = module.class "SpatialAttention"
SpatialAttention.options = {
  channels = channels, groups = groups, eps = eps,
  heads = { type = "integer", min = 1, default = 1, doc = "the number of heads, which must divide channels" },
}

function SpatialAttention:build(opt)
  self.norm = norm(opt)
  self.attention = Attention { width = opt.channels, heads = opt.heads }
end

--- x (b, channels, h, w) -> x + attention(norm(x)), the same shape.
function SpatialAttention:forward(x)
  check(x, self.opt.channels)
  return ops.add(x, to_image(self.attention(to_sequence(self.norm(x))), x))
end

-- ---------------------------------------------------------------- with a context

-- One block: x + attention(norm(x)), + attention(norm(x), context), + MLP(norm(x)).
local Block = module.class("SpatialTransformerBlock", nil, false)
Block.options = { width = channels, heads = { type = "integer", min = 1, doc = "the number of heads" },
  context = { type = "integer", min = 1, doc = "the width of the context" } }

function Block:build(opt)
  self.norm1, self.norm2, self.norm3 = LayerNorm(opt.width), LayerNorm(opt.width), LayerNorm(opt.width)
  self.attention = Attention { width = opt.width, heads = opt.heads, qkv_bias = false }
  self.cross = CrossAttention { width = opt.width, heads = opt.heads, context = opt.context, input_bias = false }
  self.mlp = MLP { width = opt.width, activation = "geglu" }
end

function Block:forward(x, context, key_mask)
  x = ops.add(x, self.attention(self.norm1(x)))
  x = ops.add(x, self.cross(self.norm2(x), context, key_mask))
  return ops.add(x, self.mlp(self.norm3(x)))
end

local SpatialTransformer = module.class "SpatialTransformer"
SpatialTransformer.recompute_kind = "block"
SpatialTransformer.options = {
  channels = channels, groups = groups, eps = eps,
  heads = { type = "integer", min = 1, default = 8, doc = "the number of heads, which must divide channels" },
  context = { type = "integer", min = 1, doc = "the width of the context" },
  depth = { type = "integer", min = 1, default = 1, doc = "the number of blocks" },
  linear = { type = "boolean", default = false,
    doc = "whether transformers begin and end with dense layers, as in Stable Diffusion 2, and not with convolutions "
      .. "of one pixel; both are the same product" },
}

local function point(opt, zero)
  local n = opt.channels
  if opt.linear then
    return Linear { inputs = n, outputs = n, partition = "whole",
      weight_initializer = zero and init.zeros() or nil, bias_initializer = zero and init.zeros() or nil }
  end
  return convolution.Conv2d { in_channels = n, out_channels = n, kernel_size = 1, partition = "whole",
    weight_initializer = zero and init.zeros() or nil, bias_initializer = zero and init.zeros() or nil }
end

function SpatialTransformer:build(opt)
  self.norm, self.enter = norm(opt), point(opt)
  self.blocks = containers.ModuleList()
  for _ = 1, opt.depth do
    self.blocks:append(Block { width = opt.channels, heads = opt.heads, context = opt.context })
  end
  self.leave = point(opt, true)
end

--- x (b, channels, h, w), context (b, t, context width) -> x plus what the blocks find, of the shape of x. key_mask u8
-- (b, t): 0 hides a position of the context. The last layer begins with zeros.
function SpatialTransformer:forward(x, context, key_mask)
  check(x, self.opt.channels)
  local y, linear = self.norm(x), self.opt.linear
  y = linear and self.enter(to_sequence(y)) or to_sequence(self.enter(y))
  for _, block in self.blocks:each() do y = block(y, context, key_mask) end
  return ops.add(x, linear and to_image(self.leave(y), x) or self.leave(to_image(y, x)))
end

return { SpatialAttention = SpatialAttention, SpatialTransformer = SpatialTransformer }
