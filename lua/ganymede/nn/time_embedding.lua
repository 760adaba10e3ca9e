--- The embedding of a time of a diffusion process: cosines and sines of many frequencies (Vaswani et al. 2017; Ho, Jain
-- and Abbeel 2020), then two dense layers.
-- @module ganymede.nn.time_embedding
local core = require "ganymede.core"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local precision = require "ganymede.tensor.precision"

local TimeEmbedding = module.class "TimeEmbedding"

TimeEmbedding.positional = { "channels", "width" }
TimeEmbedding.options = {
  channels = { type = "integer", min = 2, doc = "the number of cosines and sines together, an even number" },
  width    = { type = "integer", min = 1, doc = "the width of the result, and between the two layers" },
  max_period = { type = "number", above = 0, default = 10000, doc = "2 pi times this is the longest period" },
  shift    = { type = "integer", min = 0, default = 0,
    doc = "how many frequencies fewer reach from 1 to 1 / max_period: 0 (Stable Diffusion, DiT) or 1 (DDPM)" },
  sine_first = { type = "boolean", default = false, doc = "whether sines come before cosines, as in DDPM" },
}

function TimeEmbedding:build(opt)
  if opt.channels % 2 ~= 0 or opt.channels / 2 <= opt.shift then
    error(("TimeEmbedding: channels = %d must be even and above %d"):format(opt.channels, 2 * opt.shift), 3)
  end
  self.first = Linear { inputs = opt.channels, outputs = opt.width, activation = "silu", partition = "whole" }
  self.second = Linear { inputs = opt.width, outputs = opt.width, partition = "whole" }
end

-- The frequencies, (1, channels / 2).
local function frequencies(opt, dtype)
  local half, list = opt.channels / 2, {}
  for i = 1, half do list[i] = opt.max_period ^ (-(i - 1) / (half - opt.shift)) end
  return core.tensor(list, dtype, { 1, half })
end

--- t (b), numbers of any type -> (b, width). No gradient goes to t.
function TimeEmbedding:forward(t)
  if t:dim() ~= 1 then error(("t must be (batch); got (%s)"):format(table.concat(t:shape(), ", ")), 0) end
  local dtype = core.default_dtype()
  local wide = precision.is_narrow(dtype) and "f32" or dtype
  local angle = ops.mul(ops.reshape(ops.cast(t, wide), { t:size(1), 1 }), frequencies(self.opt, wide))
  local waves = { ops.cos(angle), ops.sin(angle) }
  if self.opt.sine_first then waves[1], waves[2] = waves[2], waves[1] end
  return self.second(self.first(precision.fitted(ops.cat(waves, 2), dtype)))
end

return TimeEmbedding
