--- Images of half and of twice the height and width, with a convolution of 3 x 3 that learns what to keep: between the
-- levels of a U-Net (Ho, Jain and Abbeel 2020).
-- @module ganymede.nn.resampling
local convolution = require "ganymede.nn.convolution"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local channels = { type = "integer", min = 1, doc = "the number of channels of x and y" }

local function conv(n, stride, padding)
  return convolution.Conv2d { in_channels = n, out_channels = n, kernel_size = 3, stride = stride, padding = padding,
    partition = "whole" }
end

local Downsample = module.class "Downsample"
Downsample.positional = { "channels" }
Downsample.options = {
  channels = channels,
  behind = { type = "boolean", default = false,
    doc = "whether zeros stand only behind rows and columns, as in autoencoders of Stable Diffusion" },
}

function Downsample:build(opt) self.convolution = conv(opt.channels, 2, opt.behind and { { 0, 1 }, { 0, 1 } } or 1) end

--- x (b, channels, h, w) -> (b, channels, ceil(h / 2), ceil(w / 2)); with `behind`, sizes are rounded down.
function Downsample:forward(x) return self.convolution(x) end

local Upsample = module.class "Upsample"
Upsample.positional = { "channels" }
Upsample.options = { channels = channels }

function Upsample:build(opt) self.convolution = conv(opt.channels, 1, 1) end

-- Each element becomes 2 x 2.
local function doubled(x)
  local b, c, h, w = x:size(1), x:size(2), x:size(3), x:size(4)
  local wide = ops.expand(ops.reshape(x, { b, c, h, 1, w, 1 }), { b, c, h, 2, w, 2 })
  return ops.reshape(wide, { b, c, 2 * h, 2 * w })
end

--- x (b, channels, h, w) -> (b, channels, 2 h, 2 w): each pixel becomes four, then the convolution.
function Upsample:forward(x)
  if x:dim() ~= 4 then
    error(("x must be (batch, %d, height, width); got (%s)"):format(self.opt.channels,
      table.concat(x:shape(), ", ")), 0)
  end
  return self.convolution(doubled(x))
end

return { Downsample = Downsample, Upsample = Upsample }
