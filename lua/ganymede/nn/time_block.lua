--- The residual block of U-Nets that know a time (Ho, Jain and Abbeel 2020), and of the autoencoders beside them:
-- norm, SiLU, convolution; plus the time; norm, SiLU, dropout, convolution; beside a path around them.
-- @module ganymede.nn.time_block
local adaptive_norm = require "ganymede.nn.adaptive_norm"
local convolution = require "ganymede.nn.convolution"
local Dropout = require("ganymede.nn.dropout").Dropout
local group_norm = require "ganymede.nn.group_norm"
local init = require "ganymede.nn.initializers"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local TimeResidualBlock = module.class "TimeResidualBlock"
TimeResidualBlock.recompute_kind = "block"

TimeResidualBlock.options = {
  inputs  = { type = "integer", min = 1, doc = "the number of channels of x" },
  outputs = { type = "integer", min = 1, doc = "the number of channels of y" },
  condition = { type = "integer", min = 1, optional = true,
    doc = "the width of the embedding of the time; default: there is none" },
  scale_shift = { type = "boolean", default = false,
    doc = "whether the time scales and shifts the second norm; otherwise it is added before it" },
  groups  = { type = "integer", min = 1, default = 32, doc = "the number of groups of channels in the norms" },
  eps     = group_norm.GroupNorm.options.eps,
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element before the last convolution is dropped in training" },
  zero_last = { type = "boolean", default = true,
    doc = "whether the last convolution begins with zeros, so that a block begins as the path around it" },
}

local function conv(inputs, outputs, kernel, zero)
  return convolution.Conv2d { in_channels = inputs, out_channels = outputs, kernel_size = kernel,
    padding = (kernel - 1) / 2, partition = "whole",
    weight_initializer = zero and init.zeros() or nil, bias_initializer = zero and init.zeros() or nil }
end

function TimeResidualBlock:build(opt)
  if opt.scale_shift and not opt.condition then
    error("TimeResidualBlock: scale_shift needs condition, the width of what scales and shifts", 3)
  end
  local function norm(channels)
    return group_norm.GroupNorm { groups = opt.groups, channels = channels, eps = opt.eps }
  end
  self.norm1, self.first = norm(opt.inputs), conv(opt.inputs, opt.outputs, 3)
  if opt.scale_shift then
    self.norm2 = adaptive_norm.AdaptiveGroupNorm { groups = opt.groups, channels = opt.outputs, eps = opt.eps,
      condition = opt.condition }
  else
    if opt.condition then
      self.time = Linear { inputs = opt.condition, outputs = opt.outputs, partition = "whole" }
    end
    self.norm2 = norm(opt.outputs)
  end
  if opt.dropout > 0 then self.dropout = Dropout(opt.dropout) end
  self.second = conv(opt.outputs, opt.outputs, 3, opt.zero_last)
  if opt.inputs ~= opt.outputs then self.shortcut = conv(opt.inputs, opt.outputs, 1) end
end

--- x (b, inputs, h, w), the embedding of the time (b, condition) -> (b, outputs, h, w).
function TimeResidualBlock:forward(x, time)
  if (time ~= nil) ~= (self.opt.condition ~= nil) then
    error(time and "this block has no condition, and an embedding of the time is given"
      or "this block needs the embedding of the time as its second argument", 0)
  end
  x = stream.summed(x)
  local y = stream.summed(self.first(ops.silu(self.norm1(x))))
  if self.time then
    local shift = stream.to(self.time(ops.silu(time)), 1) -- one layer alone changes how rows are cut in 3D
    y = ops.add(y, ops.reshape(shift, { y:size(1), y:size(2), 1, 1 }))
  end
  if self.opt.scale_shift then y = self.norm2(y, time) else y = self.norm2(y) end
  y = ops.silu(y)
  if self.dropout then y = self.dropout(y) end
  if self.shortcut then x = stream.summed(self.shortcut(x)) end
  return ops.add(stream.summed(self.second(y)), x)
end

return TimeResidualBlock
