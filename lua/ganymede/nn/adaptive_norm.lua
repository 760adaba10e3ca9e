--- Norms whose scale and shift are functions of a condition, such as the time of a diffusion process: of groups of
-- channels (Dhariwal and Nichol 2021) and of the width (Peebles and Xie 2023, adaLN-zero).
--
-- The condition goes through SiLU and a dense layer, which begins with zeros: at first the norms do not depend on it.
-- @module ganymede.nn.adaptive_norm
local group_norm = require "ganymede.nn.group_norm"
local init = require "ganymede.nn.initializers"
local LayerNorm = require "ganymede.nn.layer_norm"
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local condition = { type = "integer", min = 1, doc = "the width of the condition" }

local function zeros(inputs, outputs)
  return Linear { inputs = inputs, outputs = outputs, partition = "whole", weight_initializer = init.zeros(),
    bias_initializer = init.zeros() }
end

-- Numbers of the condition (b, condition) in parts, each (b, n, 1, ...) for x (b, n, ...) or (b, 1, n) for sequences.
-- Their rows are cut as those of x are, which one Linear alone would change in 3D.
local function parts_of(self, given, count, shape)
  local all, out = stream.whole(stream.to(self.modulation(ops.silu(given)), 1), 2), {}
  local n = all:size(2) / count
  for i = 1, count do out[i] = ops.reshape(ops.narrow(all, 2, (i - 1) * n + 1, n), shape) end
  return unpack(out)
end

local function modulated(y, scale, shift) return ops.add(ops.mul(y, ops.add(scale, 1)), shift) end

local function check(self, given, b)
  if given:dim() == 2 and given:size(1) == b and given:size(2) == self.opt.condition then return end
  error(("the condition must be (%d, %d); got (%s)"):format(b, self.opt.condition,
    table.concat(given:shape(), ", ")), 0)
end

local AdaptiveGroupNorm = module.class "AdaptiveGroupNorm"
AdaptiveGroupNorm.options = {
  groups = group_norm.GroupNorm.options.groups, channels = group_norm.GroupNorm.options.channels,
  eps = group_norm.GroupNorm.options.eps, condition = condition,
}

function AdaptiveGroupNorm:build(opt)
  self.norm = group_norm.GroupNorm { groups = opt.groups, channels = opt.channels, eps = opt.eps }
  self.modulation = zeros(opt.condition, 2 * opt.channels)
end

--- x (b, channels, ...), a condition (b, condition) -> (1 + scale) norm(x) + shift, of the shape of x; scale and shift
-- are the first and second half of what the dense layer returns.
function AdaptiveGroupNorm:forward(x, given)
  check(self, given, x:size(1))
  local shape = { x:size(1), self.opt.channels }
  for d = 3, x:dim() do shape[d] = 1 end
  return modulated(self.norm(x), parts_of(self, given, 2, shape))
end

local AdaptiveLayerNorm = module.class "AdaptiveLayerNorm"
AdaptiveLayerNorm.options = {
  width = LayerNorm.options.width, condition = condition,
  eps = { type = "number", default = 1e-6, above = 0, doc = LayerNorm.options.eps.doc },
  gate = { type = "boolean", default = false,
    doc = "whether it also returns a gate (b, 1, width), by which the caller multiplies a branch" },
}

function AdaptiveLayerNorm:build(opt) self.modulation = zeros(opt.condition, (opt.gate and 3 or 2) * opt.width) end

--- x (b, s, width), a condition (b, condition) -> (1 + scale) norm(x) + shift, and the gate if there is one. The dense
-- layer returns shift, scale, gate in this order.
function AdaptiveLayerNorm:forward(x, given)
  check(self, given, x:size(1))
  local shape = { x:size(1), 1, self.opt.width }
  local shift, scale, gate = parts_of(self, given, self.opt.gate and 3 or 2, shape)
  return modulated(ops.layer_norm(x, false, false, self.opt.eps), scale, shift), gate
end

return { AdaptiveGroupNorm = AdaptiveGroupNorm, AdaptiveLayerNorm = AdaptiveLayerNorm }
