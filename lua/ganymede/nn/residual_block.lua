--- A block of a residual network (He et al. 2016): two or three convolutions with batch norms, beside a path around
-- them, which has a convolution of 1 x 1 where the shape changes. The stride is that of the convolution of 3 x 3, in a
-- bottleneck of the middle one (version 1.5, as in torchvision).
-- @module ganymede.nn.residual_block
local batch_norm = require "ganymede.nn.batch_norm"
local containers = require "ganymede.nn.containers"
local convolution = require "ganymede.nn.convolution"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local EXPANSION = 4 -- of the channels behind a block of three convolutions

local ResidualBlock = module.class "ResidualBlock"

ResidualBlock.options = {
  inputs = { type = "integer", min = 1, doc = "the number of channels of x" },
  width  = { type = "integer", min = 1, doc = "the number of channels inside of the block" },
  stride = { type = "integer", min = 1, default = 1, doc = "how far apart the places of its convolution of 3 x 3 are" },
  bottleneck = { type = "boolean", default = false,
    doc = "whether it has three convolutions, of 1 x 1, 3 x 3 and 1 x 1, and returns 4 times as many channels" },
}

--- A convolution of residual networks: square, without a bias, whole on every rank of 1D tensor parallelism.
function ResidualBlock.convolution(inputs, outputs, kernel, stride)
  return convolution.Conv2d { in_channels = inputs, out_channels = outputs, kernel_size = kernel, stride = stride or 1,
    padding = math.floor(kernel / 2), bias = false, partition = "whole",
    weight_initializer = init.kaiming_normal { mode = "fan_out", nonlinearity = "relu" } }
end

--- Returns the channels of what a block returns.
function ResidualBlock.channels(width, bottleneck) return bottleneck and EXPANSION * width or width end

function ResidualBlock:build(opt)
  local kernels = opt.bottleneck and { 1, 3, 1 } or { 3, 3 }
  local outputs, at = ResidualBlock.channels(opt.width, opt.bottleneck), opt.inputs
  local strided = opt.bottleneck and 2 or 1
  self.convolutions, self.norms = containers.ModuleList(), containers.ModuleList()
  for i, kernel in ipairs(kernels) do
    local to = i == #kernels and outputs or opt.width
    self.convolutions:append(ResidualBlock.convolution(at, to, kernel, i == strided and opt.stride or 1))
    self.norms:append(batch_norm.BatchNorm2d { channels = to })
    at = to
  end
  if opt.stride > 1 or opt.inputs ~= outputs then
    self.shortcut = ResidualBlock.convolution(opt.inputs, outputs, 1, opt.stride)
    self.shortcut_norm = batch_norm.BatchNorm2d { channels = outputs }
  end
end

--- x (n, inputs, height, width) -> (n, outputs, height / stride, width / stride), sizes rounded up.
function ResidualBlock:forward(x)
  local y, last = x, self.opt.bottleneck and 3 or 2
  for i, conv in self.convolutions:each() do
    y = self.norms[i](conv(y))
    if i < last then y = ops.relu(y) end
  end
  return ops.relu(y + (self.shortcut and self.shortcut_norm(self.shortcut(x)) or x))
end

return ResidualBlock
