--- Norms of each sample (n, channels, ...) by itself: of groups of channels (Wu and He 2018), and of each channel
-- (Ulyanov, Vedaldi and Lempitsky 2016). They need no numbers of other samples, and of other ranks only where a group
-- is cut: then it is a channel to batch norm, which merges what ranks have of it. Else it is core.group_norm, which
-- does all in one (host/parallel/sharded/group_norm.h).
-- @module ganymede.nn.group_norm
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local space = require "ganymede.tensor.space"
local stream = require "ganymede.nn.stream"
local tensors = require "ganymede.tensor"

local layers = {}

local eps = { type = "number", default = 1e-5, above = 0,
  doc = "a number added to the variance, which prevents a division by 0" }

local function parameters(self, opt)
  if not opt.affine then return end
  self:param("weight", { opt.channels }, init.ones()(opt.channels))
  self:param("bias", { opt.channels }, init.zeros()(opt.channels))
end

-- y w + b, w and b a number for each channel: a batch norm whose mean is 0 and whose variance is 1, in one pass.
local function affine(y, w, b)
  if y:dim() == 2 then return ops.add(ops.mul(y, w), b) end
  local given, dtype = { w:size(1) }, { dtype = y:dtype() == "f64" and "f64" or "f32" }
  return ops.batch_norm(y, w, b, { eps = 0, mean = tensors.zeros(given, dtype), variance = tensors.ones(given, dtype) })
end

-- (n, channels, space...) as one sample (1, n groups, channels / groups, space...).
local function as_one(x, groups)
  local shape = x:shape()
  local out = { 1, shape[1] * groups, shape[2] / groups }
  for d = 3, #shape do out[d + 1] = shape[d] end
  return ops.reshape(x, out)
end

-- By how many axes dimension d of t is cut; t nil: 0.
local function cuts_of(t, d) return t and #(core.layout(t).cuts[d] or {}) or 0 end

-- x (n, channels, ...), its channels in so many groups.
local function normalised(self, x, groups)
  local weight, bias = self:use "weight", self:use "bias"
  local y
  if space.is_cut(x) then
    y = ops.reshape(ops.batch_norm(as_one(x, groups), nil, nil, { eps = self.opt.eps }), x:shape())
  elseif cuts_of(weight, 1) > cuts_of(x, 2) then -- a group may be cut where weights are
    y = core.group_norm(x, groups, nil, nil, self.opt.eps)
  else
    return core.group_norm(x, groups, weight, bias, self.opt.eps)
  end
  return weight and affine(y, weight, bias) or y
end

local GroupNorm = module.class "GroupNorm"
GroupNorm.positional = { "groups", "channels", "eps" }
GroupNorm.aliases = { num_groups = "groups", num_channels = "channels" }
GroupNorm.options = {
  groups = { type = "integer", min = 1, doc = "the number of groups of channels, which divides that of channels" },
  channels = { type = "integer", min = 1, doc = "the size of dimension 2" },
  eps = eps,
  affine = { type = "boolean", default = true, doc = "whether a learned scale and shift of each channel follow" },
}

function GroupNorm:build(opt)
  if opt.channels % opt.groups ~= 0 then
    error(("GroupNorm: %d groups do not divide %d channels"):format(opt.groups, opt.channels), 3)
  end
  parameters(self, opt)
end

--- x (n, channels, ...) -> normalised, of the same shape. Backward: dx is set, dW and db are added to.
function GroupNorm:forward(x)
  if x:dim() < 2 or x:size(2) ~= self.opt.channels then
    error(("samples must be (batch, %d, ...); got (%s)"):format(self.opt.channels, table.concat(x:shape(), ", ")), 0)
  end
  return normalised(self, stream.summed(x), self.opt.groups)
end
layers.GroupNorm = GroupNorm

local function define(name, dims, behind)
  local class = module.class(name)
  class.positional = { "channels", "eps" }
  class.aliases = { num_features = "channels" }
  class.options = {
    channels = GroupNorm.options.channels, eps = eps,
    affine = { type = "boolean", default = false, doc = GroupNorm.options.affine.doc },
  }
  class.build = parameters
  --- x (n, channels, ...) -> normalised, of the same shape. Backward: dx is set, dW and db are added to.
  function class:forward(x)
    if x:dim() ~= dims or x:size(2) ~= self.opt.channels then
      error(("samples must be (batch, %d, %s); got (%s)"):format(self.opt.channels, behind,
        table.concat(x:shape(), ", ")), 0)
    end
    if x:numel() > 0 and x:numel() == x:size(1) * x:size(2) then
      error(("a channel of (%s) is one number, which less its mean is 0; give larger images, or leave this norm out")
        :format(table.concat(x:shape(), ", ")), 0)
    end
    return normalised(self, x, self.opt.channels)
  end
  layers[name] = class
end

define("InstanceNorm1d", 3, "length")
define("InstanceNorm2d", 4, "height, width")
define("InstanceNorm3d", 5, "depth, height, width")

return layers
