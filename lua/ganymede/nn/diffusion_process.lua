--- gm.diffusion_process: how much of an image and how much noise there is at each time, and what a model predicts.
--
--     local process = gm.diffusion_process { schedule = "cosine", prediction = "v" }
--     local signal, noise = process:parts(500)                 -- numbers: x at time 500 is signal image + noise eps
--     local noisy = process:noised(image, eps, t)              -- t (b) i64, from 0, little noise, to steps - 1
--     local target = process:target(image, eps, t)             -- what a model(noisy, t) shall say
--
-- With betas b_t, signal^2 at time t is the product of 1 - b_0 .. 1 - b_t, and noise^2 is 1 less it (Ho, Jain and
-- Abbeel 2020, arXiv:2006.11239). Time -1 is the image itself.
-- @module ganymede.nn.diffusion_process
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local M = {}

M.options = {
  steps = { type = "integer", min = 2, default = 1000, doc = "the number of times" },
  schedule = { type = "string", one_of = { "linear", "scaled_linear", "cosine" }, default = "linear",
    doc = "how betas grow; linear: from beta_first to beta_last (DDPM); scaled_linear: their roots do (Stable "
      .. "Diffusion); cosine: so that the signal falls as a squared cosine (Nichol and Dhariwal 2021)" },
  beta_first = { type = "number", above = 0, below = 1, optional = true,
    doc = "the first beta; default: 0.0001 (scaled_linear: 0.00085); not with cosine" },
  beta_last = { type = "number", above = 0, below = 1, optional = true,
    doc = "the last beta; default: 0.02 (scaled_linear: 0.012); not with cosine" },
  prediction = { type = "string", one_of = { "noise", "v", "image" }, default = "noise",
    doc = "what the model predicts; noise: eps; v: signal eps - noise image (Salimans and Ho 2022); image: the image" },
}

-- ---------------------------------------------------------------- schedules: the beta of time t of n, from 0

local function between(first, last, t, n) return first + (last - first) * t / (n - 1) end

local function cosine(at) return math.cos((at + 0.008) / 1.008 * math.pi / 2) ^ 2 end

local betas = {
  linear = function(opt, t) return between(opt.beta_first or 1e-4, opt.beta_last or 0.02, t, opt.steps) end,
  scaled_linear = function(opt, t)
    return between((opt.beta_first or 0.00085) ^ 0.5, (opt.beta_last or 0.012) ^ 0.5, t, opt.steps) ^ 2
  end,
  cosine = function(opt, t) return math.min(0.999, 1 - cosine((t + 1) / opt.steps) / cosine(t / opt.steps)) end,
}

-- ---------------------------------------------------------------- a process

local Process = {}
Process.__index = Process

--- Returns the factors of the image and of the noise at time t, from -1 (no noise) to steps - 1.
function Process:parts(t)
  local kept = t == -1 and 1 or self.kept[t + 1]
  if not kept then
    error(("there is no time %s; they are whole numbers from -1 to %d"):format(tostring(t), self.opt.steps - 1), 2)
  end
  return math.sqrt(kept), math.sqrt(1 - kept)
end

-- Both factors at the times t (b) i64, each (b, 1, ...) as x.
local function factors(self, t, x)
  local shape, dtype, n = { x:size(1) }, x:dtype(), self.opt.steps
  for d = 2, x:dim() do shape[d] = 1 end
  local list = {}
  for i = 1, n do list[2 * i - 1], list[2 * i] = self:parts(i - 1) end
  local both = ops.embedding(core.tensor(list, dtype, { n, 2 }), t)
  return ops.reshape(ops.narrow(both, 2, 1, 1), shape), ops.reshape(ops.narrow(both, 2, 2, 1), shape)
end

--- Returns signal image + noise eps at the times t (b) i64, from 0; image and eps (b, ...).
function Process:noised(image, eps, t)
  local signal, noise = factors(self, t, image)
  return ops.add(ops.mul(signal, image), ops.mul(noise, eps))
end

--- Returns what a model shall predict for process:noised(image, eps, t).
function Process:target(image, eps, t)
  if self.opt.prediction == "noise" then return eps end
  if self.opt.prediction == "image" then return image end
  local signal, noise = factors(self, t, image)
  return ops.sub(ops.mul(signal, eps), ops.mul(noise, image))
end

--- Returns image and eps that a prediction for x at the time t, a number, stands for. clip: { low, high } of the image,
-- or nil.
function Process:understood(prediction, x, t, clip)
  local signal, noise = self:parts(t)
  local image, eps
  if self.opt.prediction == "noise" then
    eps, image = prediction, ops.mul(ops.sub(x, ops.mul(prediction, noise)), 1 / signal)
  elseif self.opt.prediction == "v" then
    image = ops.sub(ops.mul(x, signal), ops.mul(prediction, noise))
    eps = ops.add(ops.mul(x, noise), ops.mul(prediction, signal))
  else
    image = prediction
  end
  if clip then image, eps = ops.clamp(image, clip[1], clip[2]), nil end
  return image, eps or ops.mul(ops.sub(x, ops.mul(image, signal)), 1 / noise)
end

--- Makes a diffusion process: its noise schedule, and what a model predicts.
-- @param options the times, the schedule, what is predicted
-- @return a process: parts(t), noised(image, eps, t), target(image, eps, t), understood(prediction, x, t, clip)
-- @error beta_first or beta_last is given with the schedule cosine, or the first is above the last
-- @see gm.diffusion_sample, models.Diffusion
-- @example
--   process = gm.diffusion_process { steps = 1000 }
--   (process:parts(0)) ^ 2 --> 0.9999
M.process = signature.declare("gm.diffusion_process", "options options?", M.options, function(opt)
  if opt.schedule == "cosine" and (opt.beta_first or opt.beta_last) then
    error("gm.diffusion_process: the schedule cosine has no beta_first and no beta_last", 2)
  end
  local self, product = setmetatable({ opt = opt, kept = {} }, Process), 1
  for t = 0, opt.steps - 1 do
    product = product * (1 - betas[opt.schedule](opt, t))
    self.kept[t + 1] = product
  end
  if betas[opt.schedule](opt, 0) > betas[opt.schedule](opt, opt.steps - 1) then
    error("gm.diffusion_process: beta_first is above beta_last; noise must grow", 2)
  end
  return self
end)

--- Returns whether this is a process.
function M.is(value) return type(value) == "table" and getmetatable(value) == Process end

--- Returns a process from options that stand in those of something else, under this name.
function M.of(name, given) return M.process(options.check(name, M.options, given, 3)) end

return M
