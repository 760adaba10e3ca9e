--- A diffusion model for training: a denoiser, a process, and where images are latent a frozen autoencoder.
--
--     model = { type = "Diffusion", process = { schedule = "cosine" },
--               denoiser = { type = "UNet", channels = 1, width = 32 } }
--     loss = { type = "DiffusionLoss" }
--
-- Called with images, it draws a time and noise for each, by the place of the image in the batch of the step: the same
-- on any number of ranks and after a resume. It returns { prediction, target }, which DiffusionLoss compares. Some of
-- the conditions are left out in training (`drop`), so that the model can draw with guidance (Ho and Salimans 2022): of
-- classes the denoiser's last one stands for none, of a context zeros do.
-- @module ganymede.models.diffusion
local core = require "ganymede.core"
local diffusion_process = require "ganymede.nn.diffusion_process"
local lora = require "ganymede.nn.lora"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local precision = require "ganymede.tensor.precision"
local registry = require "ganymede.base.registry"
local sampler = require "ganymede.nn.diffusion_sampler"
local tensors = require "ganymede.tensor"

local Diffusion = module.class("Diffusion", nil, "models")

Diffusion.options = {
  denoiser = { type = "table",
    doc = "the model that predicts, called with (x, time, condition): type (UNet, DiT, one of yours) and its options" },
  process = { type = "table", optional = true, doc = "the options of gm.diffusion_process" },
  autoencoder = { type = "table", optional = true,
    doc = "a model with encode and decode, which is frozen: type (AutoencoderKL) and its options; images are then "
      .. "latent images" },
  latent_scale = { type = "number", above = 0, optional = true,
    doc = "with an autoencoder: by what latent images are multiplied, so that they vary about as noise does; default: "
      .. "the autoencoder's own latent_scale, or else 0.18215" },
  drop = { type = "number", min = 0, below = 1, default = 0,
    doc = "the probability with which the condition of a sample is left out in training; of classes the denoiser's "
      .. "last one then stands for none: give it one more than the data has" },
}

-- ---------------------------------------------------------------- what is drawn

-- One number of each sample of x, in its layout. Not of 16 bits: bf16 has every fourth time from 512 on, and rounds the
-- last one of 1000 to 1000, which is none.
local function each_sample(x)
  return precision.wide(ops.select(ops.reshape(x:detach(), { x:size(1), -1 }), 2, 1))
end

-- Draws times and noise, and leaves conditions out.
local Corruption = module.class("DiffusionCorruption", nil, false)
Corruption.options = { process = { type = "table", doc = "a process" }, drop = Diffusion.options.drop,
  none = { type = "integer", optional = true, doc = "the class that stands for none" } }

function Corruption:without(condition, samples)
  if not self.training or self.opt.drop == 0 or condition == nil then return condition end
  local kept = ops.ge(core.experts_noise(samples, "uniform", 0, 1), self.opt.drop)
  if self.opt.none then
    kept = ops.cast(kept, "f64")
    local class = ops.mul(ops.cast(condition, "f64"), kept)
    return ops.cast(ops.add(class, ops.mul(ops.sub(1, kept), self.opt.none)), "i64")
  end
  return ops.mul(condition, ops.reshape(ops.cast(kept, condition:dtype()), { condition:size(1), 1, 1 }))
end

-- x (b, ...) -> x with noise, times (b) i64, the condition, what shall be predicted
function Corruption:forward(x, condition)
  local process, samples = self.opt.process, each_sample(x)
  local n = process.opt.steps
  local t = ops.cast(ops.clamp(core.experts_noise(samples, "uniform", 0, n), 0, n - 1), "i64")
  local eps = core.experts_noise(x, "normal", 0, 1)
  return process:noised(x, eps, t), t, self:without(condition, samples), process:target(x, eps, t)
end

-- ---------------------------------------------------------------- the model

local function built(name, given)
  if type(given.type) == "string" then return registry.models:build(given) end
  error(("Diffusion: %s needs the name of its class, type = \"...\""):format(name), 4)
end

function Diffusion:build(opt)
  self.process = diffusion_process.of("Diffusion: process", opt.process or {})
  if opt.autoencoder then
    self.autoencoder = built("autoencoder", opt.autoencoder)
    if not self.autoencoder.encode or not self.autoencoder.decode then
      error(("Diffusion: %s has no encode and decode"):format(self.autoencoder.name), 3)
    end
    lora.freeze(self.autoencoder, ".")
    self.latent_scale = opt.latent_scale or self.autoencoder.opt and self.autoencoder.opt.latent_scale or 0.18215
  end
  self.denoiser = built("denoiser", opt.denoiser)
  local classes = self.denoiser.opt.classes
  if opt.drop > 0 and not classes and not self.denoiser.opt.context then
    error("Diffusion: drop leaves conditions out, and the denoiser has neither classes nor a context", 3)
  end
  self.none_class = opt.drop > 0 and classes and classes - 1 or nil -- ganymede.train.fitting_data compares it with data
  self.corruption = Corruption { process = self.process, drop = opt.drop, none = classes and classes - 1 or nil }
end

-- The latent images of images, drawn of their distributions.
local function latent_of(self, x)
  return tensors.no_grad(function()
    local mean, log_variance = self.autoencoder:encode(x)
    return ops.mul(self.autoencoder.draw(mean, log_variance), self.latent_scale)
  end)
end

-- The denoiser's own message would speak of its third argument, which a caller of this model does not write.
local function check_condition(self, condition)
  local opt = self.denoiser.opt or {}
  local needs = opt.context and "a context" or opt.classes and "classes"
  if condition ~= nil or not needs then return end
  error(("Diffusion: the denoiser needs %s, and there are images alone: call the model with { images, %s }; in a "
    .. "recipe, schedule = { type = \"NonPipelineSchedule\", data_process_func = function(x, y) return { x, y }, y end "
    .. "} does so"):format(needs, (needs:gsub("^a ", ""))), 0)
end

local function begin(self, x)
  local condition
  if not core.is_tensor(x) and type(x) == "table" then x, condition = x[1], x[2] end
  check_condition(self, condition)
  if self.autoencoder then x = latent_of(self, x) end
  local noisy, t, left, target = self.corruption(x, condition)
  return target, noisy, t, left
end

local function behind_target(fn)
  return fn and function(target, ...) return target, fn(...) end
end

--- The forward pass: images (b, ...), or { images, condition } -> { prediction, target }, each as the (latent) images.
-- Sections: what is drawn, and those of the denoiser, through all of which the target goes too.
function Diffusion:sections()
  local inner, reason = self.denoiser:section_list()
  if not inner then
    error(("Diffusion: %s cannot be called in sections: %s"):format(self.denoiser.name, reason), 0)
  end
  local list = { { modules = { self.autoencoder, self.corruption }, name = "corruption",
    forward = function(x) return begin(self, x) end } }
  if not self.autoencoder then list[1].modules = { self.corruption } end
  for _, section in ipairs(inner) do
    list[#list + 1] = { modules = section.modules, name = section.name, forward = behind_target(section.forward),
      close = behind_target(section.close), join = behind_target(section.join) }
  end
  local last = list[#list]
  local predict = last.forward
  last.forward = function(...)
    local target, prediction = predict(...)
    return { prediction, target }
  end
  return list
end

-- ---------------------------------------------------------------- drawing

local sampling = {}
for name, option in pairs(sampler.options) do sampling[name] = option end
sampling.condition = { type = "tensor", optional = true,
  doc = "classes (b) i64 or a context (b, s, width), for a denoiser that has them" }
sampling.guidance = { type = "number", min = 0, default = 1,
  doc = "how far predictions go from those without condition to those with it, and beyond; 1: the model's own; needs "
    .. "a model trained with drop" }

-- The condition of nothing.
local function no_condition(self, condition)
  local none = self.corruption.opt.none
  return none and tensors.full(condition:shape(), none, { dtype = "i64" }) or ops.mul(condition, 0)
end

local function predictor(self, opt)
  if opt.guidance == 1 or not opt.condition then
    if opt.guidance ~= 1 then error("Diffusion:sample: guidance needs a condition", 3) end
    return function(x, t) return self.denoiser(x, t, opt.condition) end
  end
  if self.opt.drop == 0 then
    error("Diffusion:sample: guidance needs a model trained with drop above 0, which knows what no condition is", 3)
  end
  local none = no_condition(self, opt.condition)
  return function(x, t)
    local without = self.denoiser(x, t, none)
    return ops.add(without, ops.mul(ops.sub(self.denoiser(x, t, opt.condition), without), opt.guidance))
  end
end

--- Draws images: options are those of gm.diffusion_sample, condition, and guidance. shape is that of the (latent)
-- images. The model draws in evaluation mode. Collective; not for a model that is cut into stages.
function Diffusion:sample(given)
  local opt = options.check("Diffusion:sample", sampling, given, 2)
  local training, predict, walk = self.training, predictor(self, opt), {}
  for name in pairs(sampler.options) do walk[name] = opt[name] end
  self:eval()
  local function finish(ok, x, ...)
    if training then self:train() end
    if not ok then error(x, 0) end
    return x, ...
  end
  return finish(pcall(tensors.no_grad, function()
    local x = sampler.sample(self.process, predict, walk)
    return self.autoencoder and self.autoencoder:decode(ops.mul(x, 1 / self.latent_scale)) or x
  end))
end

return Diffusion
