--- Batch normalisation (Ioffe and Szegedy 2015) of samples (n, channels, ...), each channel over the whole batch.
--
-- In training mean and variance are those of the batch of the call, of all ranks that share its samples or their space:
-- a run on more ranks trains the same model. With gradient accumulation, and in a pipeline, the batch is one of the
-- accumulated batches, one micro-batch: a batch that is cut in time is several batches to this layer. The running mean
-- and variance are buffers, so checkpoints hold them; each call in training moves them once, also where a region runs
-- it again for backward. Evaluation uses them, and sends nothing.
-- @module ganymede.nn.batch_norm
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local region = require "ganymede.nn.region"
local tensors = require "ganymede.tensor"

local layers = {}

local options = {
  channels = { type = "integer", min = 1, doc = "the size of dimension 2" },
  eps = { type = "number", default = 1e-5, above = 0,
    doc = "a number added to the variance, which prevents a division by 0" },
  momentum = { type = { "number", "boolean" }, default = 0.1, min = 0, max = 1,
    doc = "how far a batch moves the running mean and variance towards its own; false: they are the mean of all "
      .. "batches" },
  affine = { type = "boolean", default = true, doc = "whether a learned scale and shift of each channel follow" },
  track_running_stats = { type = "boolean", default = true,
    doc = "whether running mean and variance are kept; without them evaluation uses the batch too" },
}

local function build(self, opt)
  if opt.momentum == true then
    error(("%s: momentum is a number from 0 to 1, or false for the mean of all batches"):format(self.name), 3)
  end
  if opt.affine then
    self:param("weight", { opt.channels }, init.ones()(opt.channels))
    self:param("bias", { opt.channels }, init.zeros()(opt.channels))
  end
  if not opt.track_running_stats then return end
  local dtype = core.default_dtype() == "f64" and "f64" or "f32"
  self:buffer("running_mean", tensors.zeros({ opt.channels }, { dtype = dtype }))
  self:buffer("running_var", tensors.ones({ opt.channels }, { dtype = dtype }))
  self:buffer("num_batches_tracked", tensors.zeros({ 1 }, { dtype = "f64" }))
end

-- Moves a running number of each channel by the share `by`, a number or a tensor of one element, to that of the batch.
local function move(running, now, by)
  now = ops.cast(core.gather(now), running:dtype())
  if core.is_tensor(by) then by = ops.cast(by, running:dtype()) end
  running:copy_(ops.add(running, ops.mul(ops.sub(now, running), by)))
end

local function track(self, mean, variance)
  local batches = self.num_batches_tracked
  batches:copy_(ops.add(batches, 1))
  local by = self.opt.momentum or ops.reciprocal(batches)
  move(self.running_mean, mean, by)
  move(self.running_var, variance, by)
end

local function check(self, x)
  for _, dims in ipairs(self.takes) do
    if x:dim() == dims and x:size(2) == self.opt.channels then return end
  end
  error(("samples must be (batch, %d%s); got (%s)"):format(self.opt.channels, self.behind,
    table.concat(x:shape(), ", ")), 0)
end

--- x (n, channels, ...) -> normalised, of the same shape. Backward: dx is set, dW and db are added to.
local function forward(self, x)
  check(self, x)
  local given, opt = { eps = self.opt.eps }, self.opt
  if not self.training and opt.track_running_stats then
    given.mean, given.variance = self.running_mean, self.running_var
  end
  local y, mean, variance = ops.batch_norm(x, self:use "weight", self:use "bias", given)
  if self.training and opt.track_running_stats and not region.is_again() then track(self, mean, variance) end
  return y
end

-- takes: the numbers of dimensions of x; behind: those behind the channels, in words.
local function define(name, takes, behind)
  local class = module.class(name)
  class.positional = { "channels", "eps", "momentum" }
  class.aliases = { num_features = "channels" }
  class.options, class.takes, class.behind = options, takes, behind
  class.build, class.forward = build, forward
  layers[name] = class
end

define("BatchNorm1d", { 2, 3 }, " or more, with one dimension behind")
define("BatchNorm2d", { 4 }, ", height, width")
define("BatchNorm3d", { 5 }, ", depth, height, width")

return layers
