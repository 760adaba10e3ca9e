--- A block of ConvNeXt (Liu et al. 2022): a depthwise convolution, a norm of the channels of each place, an MLP, a
-- learned scale of each channel, beside a path around them.
--
-- Norm and MLP work with channels last; the block's input and result have them in front, as convolutions want them. In
-- 1D tensor parallelism the convolution is whole on every rank, and the two layers of the MLP are a pair.
-- @module ganymede.nn.convnext_block
local convolution = require "ganymede.nn.convolution"
local DropPath = require("ganymede.nn.dropout").DropPath
local init = require "ganymede.nn.initializers"
local LayerNorm = require "ganymede.nn.layer_norm"
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local ConvNeXtBlock = module.class "ConvNeXtBlock"
ConvNeXtBlock.recompute_kind = "block" -- what the setting recompute calls it

ConvNeXtBlock.positional = { "width" }
ConvNeXtBlock.options = {
  width  = { type = "integer", min = 1, doc = "the number of channels of x and y" },
  kernel = { type = "integer", min = 1, default = 7, doc = "the side of the convolution's kernel, an odd number" },
  mlp_ratio = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLP divided by width" },
  layer_scale = { type = "number", default = 1e-6, min = 0,
    doc = "what the scales of the channels of the branch are at first; 0: there are none" },
  eps    = { type = "number", default = 1e-6, above = 0, doc = "a number added to the variance in the norm" },
  drop_path = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which a sample skips the branch in training" },
}

function ConvNeXtBlock:build(opt)
  if opt.kernel % 2 == 0 then
    error(("ConvNeXtBlock: kernel = %d must be odd, so that y has the size of x"):format(opt.kernel), 3)
  end
  local weights, zeros = init.trunc_normal { std = 0.02, low = -0.04, high = 0.04 }, init.zeros()
  self.convolution = convolution.Conv2d { in_channels = opt.width, out_channels = opt.width, kernel_size = opt.kernel,
    padding = (opt.kernel - 1) / 2, groups = opt.width, partition = "whole", weight_initializer = weights,
    bias_initializer = zeros }
  self.norm = LayerNorm { width = opt.width, eps = opt.eps }
  self.mlp = MLP { width = opt.width, hidden = math.floor(opt.mlp_ratio * opt.width), weight_initializer = weights,
    bias_initializer = zeros }
  if opt.layer_scale > 0 then
    self:param("scale", { opt.width }, init.constant { value = opt.layer_scale }(opt.width))
  end
  if opt.drop_path > 0 then self.drop_path = DropPath(opt.drop_path) end
end

--- x (b, channels, height, width) -> the same shape.
function ConvNeXtBlock:forward(x)
  x = stream.channels(x)
  local y = self.mlp(self.norm(ops.permute(self.convolution(x), { 1, 3, 4, 2 })))
  local scale = self:use "scale"
  if scale then y = ops.mul(y, scale) end
  if self.drop_path then y = self.drop_path(y) end
  return ops.add(x, ops.permute(y, { 1, 4, 2, 3 }))
end

return ConvNeXtBlock
