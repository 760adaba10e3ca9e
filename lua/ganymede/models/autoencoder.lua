--- An autoencoder of images with a normal distribution of its latent numbers (Kingma and Welling 2014), in the shape of
-- Stable Diffusion's (Rombach et al. 2022): images become latent images of 1 / 2^(levels - 1) of height and width.
--
--     local model = gm.models.AutoencoderKL {}            -- that of Stable Diffusion: 83,653,863 parameters
--     local mean, log_variance = model:encode(x)
--     local again = model:decode(mean)
--
-- Its loss is VAELoss.
-- @module ganymede.models.autoencoder
local core = require "ganymede.core"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local AutoencoderKL = module.class("AutoencoderKL", nil, "models")

AutoencoderKL.aliases = { in_channels = "channels", latent_channels = "latent" }
AutoencoderKL.options = {
  channels = { type = "integer", min = 1, default = 3, doc = "the number of channels of the image" },
  latent   = { type = "integer", min = 1, default = 4, doc = "the number of channels of the latent image" },
  width    = { type = "integer", min = 1, default = 128, doc = "the number of channels of the first level" },
  multipliers = { type = "list", default = { 1, 2, 4, 4 },
    doc = "the list of the numbers by which width is multiplied, one for each level" },
  blocks   = { type = "integer", min = 1, default = 2,
    doc = "the number of residual blocks of a level of the encoder; the decoder has one more" },
  attention = { type = "boolean", default = true,
    doc = "whether attention stands between the blocks in the middle; it has one head, which no ranks of "
      .. "parallel.tensor can divide" },
  groups   = { type = "integer", min = 1, default = 32, doc = "the number of groups of channels in the norms" },
  latent_scale = { type = "number", above = 0, default = 0.18215,
    doc = "by what Diffusion multiplies latent images of this model, so that they vary about as noise does; encode and "
      .. "decode do not" },
}

local EPS = 1e-6

local function conv(inputs, outputs, kernel)
  return nn.Conv2d { in_channels = inputs, out_channels = outputs, kernel_size = kernel, padding = (kernel - 1) / 2,
    partition = "whole" }
end

local function block(opt, inputs, outputs)
  return nn.TimeResidualBlock { inputs = inputs, outputs = outputs, groups = opt.groups, eps = EPS, zero_last = false }
end

local function add_middle(list, opt, at)
  list:append(block(opt, at, at))
  if opt.attention then list:append(nn.SpatialAttention { channels = at, groups = opt.groups, eps = EPS }) end
  list:append(block(opt, at, at))
end

local function add_head(list, opt, at, outputs)
  list:append(nn.GroupNorm { groups = opt.groups, channels = at, eps = EPS })
  list:append(nn.SiLU())
  list:append(conv(at, outputs, 3))
end

-- The numbers are a function of (seed, module, step, place), as dropout's are.
local Draw = module.class("LatentDraw", nil, false)

function Draw:forward(mean, log_variance)
  if not self.training then return mean end
  local noise = core.experts_noise(mean:detach(), "normal", 0, 1)
  return ops.add(mean, ops.mul(ops.exp(ops.mul(log_variance, 0.5)), noise))
end

local function check(multipliers)
  if #multipliers == 0 then error("AutoencoderKL: multipliers needs at least one number", 4) end
  for i, n in ipairs(multipliers) do
    if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
      error(("AutoencoderKL: multipliers[%d] must be a whole number from 1; got %s"):format(i, tostring(n)), 4)
    end
  end
end

local function check_attention(opt)
  local parts = stream.parts()
  if not opt.attention or parts == 1 then return end
  error(("AutoencoderKL: its attention has one head, which %d ranks of parallel.tensor cannot divide; share its work "
    .. "over parallel.data instead, or leave the attention out (attention = false)"):format(parts), 4)
end

function AutoencoderKL:build(opt)
  check(opt.multipliers)
  check_attention(opt)
  self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
  self.encoder:append(conv(opt.channels, opt.width, 3))
  local at, levels = opt.width, #opt.multipliers
  for level, factor in ipairs(opt.multipliers) do
    for _ = 1, opt.blocks do
      self.encoder:append(block(opt, at, opt.width * factor))
      at = opt.width * factor
    end
    if level < levels then self.encoder:append(nn.Downsample { channels = at, behind = true }) end
  end
  add_middle(self.encoder, opt, at)
  add_head(self.encoder, opt, at, 2 * opt.latent)
  self.moments, self.draw = conv(2 * opt.latent, 2 * opt.latent, 1), Draw {}
  self.from_latent = conv(opt.latent, opt.latent, 1)
  self.decoder:append(conv(opt.latent, at, 3))
  add_middle(self.decoder, opt, at)
  for level = levels, 1, -1 do
    for _ = 1, opt.blocks + 1 do
      self.decoder:append(block(opt, at, opt.width * opt.multipliers[level]))
      at = opt.width * opt.multipliers[level]
    end
    if level > 1 then self.decoder:append(nn.Upsample(at)) end
  end
  add_head(self.decoder, opt, at, opt.channels)
end

local function check_image(self, x)
  local side, shape = 2 ^ (#self.opt.multipliers - 1), x:shape()
  if #shape == 4 and shape[2] == self.opt.channels and shape[3] % side == 0 and shape[4] % side == 0 then return x end
  error(("x must be (batch, %d, height, width), height and width multiples of %d; got (%s)"):format(
    self.opt.channels, side, table.concat(shape, ", ")), 0)
end

-- moments (b, 2 latent, h, w) -> mean, logarithm of the variance, which is kept between -30 and 20
local function halves(self, moments)
  local n = self.opt.latent
  moments = stream.whole(moments, 2)
  return ops.narrow(moments, 2, 1, n), ops.clamp(ops.narrow(moments, 2, n + 1, n), -30, 20)
end

--- x (b, channels, h, w) -> mean and logarithm of the variance of the latent image, each (b, latent, h / s, w / s),
-- where s = 2^(levels - 1).
function AutoencoderKL:encode(x)
  check_image(self, x)
  for _, layer in self.encoder:each() do x = layer(x) end
  return halves(self, self.moments(x))
end

--- z (b, latent, h, w) -> (b, channels, s h, s w)
function AutoencoderKL:decode(z)
  z = self.from_latent(z)
  for _, layer in self.decoder:each() do z = layer(z) end
  return z
end

local function through(layer) return { modules = { layer }, forward = layer } end

local function decoding(layer)
  return { modules = { layer }, forward = function(z, ...) return layer(z), ... end }
end

--- The forward pass: x (b, channels, h, w) -> { the image again, mean, logarithm of the variance }. In training the
-- latent image is drawn; in evaluation it is the mean. Sections: each layer of the encoder, the draw, each layer of
-- the decoder.
function AutoencoderKL:sections()
  local list = {}
  for _, layer in self.encoder:each() do list[#list + 1] = through(layer) end
  list[1].forward = function(x) return self.encoder[1](check_image(self, x)) end
  list[#list + 1] = { modules = { self.moments, self.draw, self.from_latent }, forward = function(x)
    local mean, log_variance = halves(self, self.moments(x))
    return self.from_latent(self.draw(mean, log_variance)), mean, log_variance
  end }
  for _, layer in self.decoder:each() do list[#list + 1] = decoding(layer) end
  local last = list[#list]
  local decode = last.forward
  last.forward = function(...) return { decode(...) } end
  return list
end

return AutoencoderKL
