--- gm.diffusion_sample: images out of noise, by a model that predicts what a diffusion process asks.
--
--     ddpm   draws from the process backwards (Ho, Jain and Abbeel 2020)
--     ddim   goes back without new noise, or with eta of that of ddpm (Song, Meng and Ermon 2021)
--     dpm    solves the same equation as ddim to second order (DPM-Solver++ 2M, Lu et al. 2022, arXiv:2211.01095)
--
-- Noise is a function of the seed, the step and the element alone, so it is the same on any ranks.
-- @module ganymede.nn.diffusion_sampler
local diffusion_process = require "ganymede.nn.diffusion_process"
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"
local precision = require "ganymede.tensor.precision"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local M = {}

M.options = {
  shape = { type = "list", doc = "the shape of what is drawn, (b, channels, height, width) or any other" },
  sampler = { type = "string", one_of = { "ddpm", "ddim", "dpm" }, default = "ddpm", doc = "how it goes back" },
  steps = { type = "integer", min = 1, optional = true,
    doc = "the number of calls of the model; default: the number of times of the process with ddpm, otherwise 50" },
  eta   = { type = "number", min = 0, max = 1, optional = true,
    doc = "with ddim: how much noise is added, as a share of that of ddpm; default: 0" },
  seed  = { type = "integer", min = 0, max = 2 ^ 32, default = 0, doc = "the seed of all noise" },
  clip  = { type = "list", optional = true,
    doc = "{ low, high }: the image that a prediction stands for is brought between them" },
}

-- The times, from steps - 1 down, so that the first is all noise; -1, the image, at the end.
local function times_of(n, count)
  local list = {}
  for i = 0, count - 1 do list[i + 1] = math.floor(n - i * n / count + 0.5) - 1 end
  list[count + 1] = -1
  return list
end

-- ---------------------------------------------------------------- one step, from time t to s: x, image, eps -> x
-- a, b: the factors of image and noise at t; a2, b2: at s. draw() gives new noise; kept: what a sampler remembers.

local function ddim_with(eta)
  return function(x, image, eps, f, draw) -- luacheck: ignore x
    local more = f.s >= 0 and eta * f.b2 / f.b * math.sqrt(math.max(0, 1 - f.a * f.a / (f.a2 * f.a2))) or 0
    local y = ops.add(ops.mul(image, f.a2), ops.mul(eps, math.sqrt(math.max(0, f.b2 * f.b2 - more * more))))
    return more > 0 and ops.add(y, ops.mul(draw(), more)) or y
  end
end

-- The distribution of x at s, given x at t and the image: a normal one (equations 6 and 7 of Ho et al.). DDIM with
-- eta = 1 is the same.
local function ddpm(x, image, _, f, draw)
  local step = f.a * f.a / (f.a2 * f.a2) -- 1 - beta of the whole step
  local left = f.b2 * f.b2 / (f.b * f.b)
  local y = ops.add(ops.mul(image, f.a2 * (1 - step) / (f.b * f.b)), ops.mul(x, math.sqrt(step) * left))
  local deviation = math.sqrt((1 - step) * left)
  return deviation > 0 and ops.add(y, ops.mul(draw(), deviation)) or y
end

local function dpm(x, image, _, f, _, kept)
  image = image:detach() -- a tensor of ours, which walk may free
  if f.s < 0 then return image end
  local now, next_one = math.log(f.a / f.b), math.log(f.a2 / f.b2)
  local h, towards = next_one - now, image
  if kept.image then
    local half = h / (2 * (now - kept.at)) -- 1 / (2 r) of the paper
    towards = ops.sub(ops.mul(image, 1 + half), ops.mul(kept.image, half))
  end
  kept.image, kept.at = image, now
  return ops.sub(ops.mul(x, f.b2 / f.b), ops.mul(towards, f.a2 * (math.exp(-h) - 1)))
end

local function shape_of(t) return "(" .. table.concat(t:shape(), ", ") .. ")" end

local function predicted(predict, x, t)
  local y = predict(x, t)
  if core.is_tensor(y) and shape_of(y) == shape_of(x) then return precision.wide(y) end
  error(("gm.diffusion_sample: predict must return a tensor of the shape of x, %s; it returned %s"):format(shape_of(x),
    core.is_tensor(y) and shape_of(y) or options.brief(y)), 0)
end

-- What a step no longer needs is freed at its end: hundreds of them would hold as many images. They are of f32 where
-- the model's are of 16 bits: of a thousand steps, many are smaller than what those round away.
local function walk(process, predict, opt, count)
  local dtype = core.default_dtype()
  local wide = precision.is_narrow(dtype) and "f32" or dtype
  local step = ({ ddpm = ddpm, dpm = dpm, ddim = ddim_with(opt.eta or 0) })[opt.sampler]
  local times, kept, drawn = times_of(process.opt.steps, count), {}, 0
  local function draw()
    drawn = drawn + 1
    return core.random("normal", opt.shape, wide, {}, opt.seed * 2 ^ 16 + drawn)
  end
  local x = draw()
  for i = 1, count do
    local f = { t = times[i], s = times[i + 1] }
    f.a, f.b = process:parts(f.t)
    f.a2, f.b2 = process:parts(f.s)
    local x_before, image_before = x, kept.image
    x, kept.image = tensors.scope(function()
      local t, seen = tensors.full({ opt.shape[1] }, f.t, { dtype = "i64" }), x:detach() -- predict may keep it
      local said = predicted(predict, precision.fitted(seen, dtype), t)
      local image, eps = process:understood(said, seen, f.t, opt.clip)
      return step(seen, image, eps, f, draw, kept), kept.image
    end)
    x_before:release()
    if image_before and image_before ~= kept.image then image_before:release() end
  end
  return precision.fitted(x, dtype)
end

--- Refuses options that do not fit the process or each other, at `level`. Returns the number of calls of the model.
function M.check(process, opt, level)
  if not diffusion_process.is(process) then
    error("gm.diffusion_sample: the first argument is a process, which gm.diffusion_process makes", level)
  end
  local count = opt.steps or opt.sampler == "ddpm" and process.opt.steps or math.min(50, process.opt.steps)
  if count > process.opt.steps then
    error(("gm.diffusion_sample: steps = %d, and the process has %d times"):format(count, process.opt.steps), level)
  end
  if opt.eta and opt.sampler ~= "ddim" then
    error(("gm.diffusion_sample: eta is for the sampler ddim; this one is %s"):format(opt.sampler), level)
  end
  if #opt.shape == 0 then
    error("gm.diffusion_sample: shape begins with the number of images, such as { 16, 3, 32, 32 }; it is empty", level)
  end
  local clip = opt.clip
  if clip and not (type(clip[1]) == "number" and type(clip[2]) == "number" and clip[1] < clip[2] and #clip == 2) then
    error("gm.diffusion_sample: clip is { low, high }, two numbers, low below high", level)
  end
  return count
end

--- Draws images by a model of the noise: from noise alone back to the time before the first.
-- @param process a process of gm.diffusion_process
-- @param predict a function(x, t) that returns what the process says models predict; t (b) i64
-- @param options the shape, the sampler and its steps, the seed
-- @return a new tensor of the shape
-- @error steps are more than the process has times, eta is given with another sampler than ddim, or predict returns
--   another shape
-- @layout collective where predict is; every rank has all that is drawn
-- @see gm.diffusion_process, models.Diffusion
-- @example
--   process = gm.diffusion_process { prediction = "image" }
--   function all_ones(x) return x * 0 + 1 end
--   gm.diffusion_sample(process, all_ones, { shape = { 1, 2 }, sampler = "ddim", steps = 5 }) --> { { 1, 1 } }
local function sample(process, predict, opt)
  local count = M.check(process, opt, 3)
  return tensors.no_grad(tensors.scope, walk, process, predict, opt, count)
end

local takes = "process table, predict function, options options"
M.sample = signature.declare("gm.diffusion_sample", takes, M.options, sample)

return M
