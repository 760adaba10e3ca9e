--- Features drawn at random, together, on one rank: data, models, optimizers, schedules, dtypes, hooks with states,
-- evaluations. Each draw is trained in one go, and again with two stops: an error after a step whose checkpoint has
-- been saved. What both tell of steps and evaluations is the same to the bit, and so are their last checkpoints.
--
-- spec/parallel/random_modes_spec.lua goes on in other layouts. Draws are the same in each run. More of them:
-- GANYMEDE_SPEC_DRAWS=200 ./ganymede spec spec/resume/random_stops_spec.lua
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local stored = require "spec.support.stored"
local support = require "spec.resume.support"

local DRAWS, STOPS = tonumber(os.getenv "GANYMEDE_SPEC_DRAWS") or 16, 2

-- Whole numbers from 1 to `to`, the same in each run: a linear congruence modulo 2^31 (Park and Miller's, 16807).
local state
local function any(to)
  state = state * 16807 % 2147483647
  return math.floor(state / 2147483647 * to) + 1
end
local function one(list) return list[any(#list)] end
local function perhaps(list, value, chance)
  if any(100) <= chance then list[#list + 1] = value end
end

-- ---------------------------------------------------------------- what is trained

local function synthetic(length, fields, split)
  local out = { type = "Synthetic", length = length, split = split }
  for key, value in pairs(fields) do out[key] = value end
  return out
end

-- Data of one kind for training and tests, as they are or as a mixture.
local function data_of(fields)
  local length = one { 9, 11, 13, 14 } -- of batches of 4: the last one is whole, or is not
  local train = synthetic(length, fields, "train")
  if any(4) == 1 then
    train = { type = "Mix", weights = { 0.3, 0.7 }, length = length,
      datasets = { synthetic(9, fields, "train"), synthetic(5, fields, "test") } }
  end
  return { train = train, test = synthetic(7, fields, "test"), batch_size = 4, test_batch_size = 3 }
end

local function order(_, epoch, n)
  local list = {}
  for i = 1, n do list[i] = (i * 3 + epoch) % n + 1 end
  return list
end

local function noise(x, y) return x + gm.normal(x:shape(), { dtype = x:dtype() }) * 0.1, y end

local tokens = { kind = "tokens", sequence_length = 7, vocab_size = 13 }
local images = { shape = { 1, 8, 8 }, classes = 3 }

-- A function each -> changes of a config.
local models = {
  function()
    local data = data_of { shape = { 6 }, classes = 3 }
    data.transforms = any(2) == 1 and { noise } or nil
    return { model = { type = "MLP", inputs = 6, hidden = { 9 }, classes = 3, dropout = 0.3 }, data = data }
  end,
  function()
    local data = data_of(images)
    data.transforms = one { { { type = "RandomCrop", size = 8, padding = 1 }, { type = "RandomHorizontalFlip" } },
      { { type = "MixUp", alpha = 0.5, p = 0.7 } } }
    return { data = data, recompute = any(2) == 1 and "block" or nil, model = { type = "VisionTransformer",
      image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 12, depth = 2, heads = 4, drop_path = 0.2 } }
  end,
  function()
    local router = { type = "TopKRouter", k = 2, z = 0.01, noise = any(2) == 1 and "normal" or nil }
    return { data = data_of(tokens), lora = any(2) == 1 and { rank = 2, dropout = 0.1 } or nil, model = { type = "GPT",
      vocabulary = 13, sequence_length = 7, width = 12, depth = 2, heads = 4, dropout = 0.1, tied = any(2) == 1,
      moe = any(2) == 1 and { experts = 3, every = 2, router = router } or nil, head_chunk = one { 0, 3 } } }
  end,
  function()
    local denoiser = { type = "DiT", image_size = 8, patch_size = 4, channels = 1, width = 8, depth = 2, heads = 2,
      classes = 4 }
    return { data = data_of(images), loss = { type = "DiffusionLoss" },
      schedule = { type = "NonPipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
      model = { type = "Diffusion", drop = 0.3, process = { prediction = "v" }, denoiser = denoiser } }
  end,
  function()
    local nn = gm.nn
    return { data = data_of(images), model = function()
      return nn.Sequential { nn.Conv2d { in_channels = 1, out_channels = 4, kernel_size = 3, padding = 1 },
        nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(256, 3) }
    end }
  end,
  function()
    local rows = { 20, 10, 5 }
    local function part(split, length)
      return { type = "Clicks", dense = 3, rows = rows, length = length, split = split }
    end
    return { data = { train = part("train", one { 11, 13 }), test = part("test", 9), batch_size = 4 },
      loss = { type = "BCEWithLogitsLoss" }, sparse = true,
      model = { type = "DLRM", dense = 3, counts = rows, width = 6, bottom = { 8 }, top = { 7 }, sparse = true } }
  end,
}

local optimizers = { { type = "SGD", lr = 0.1, momentum = 0.9, nesterov = true }, { type = "Adam", lr = 0.01 },
  { type = "AdamW", lr = 0.01, amsgrad = true }, { type = "Lion", lr = 0.003 }, { type = "LAMB", lr = 0.02 },
  { type = "LARS", lr = 0.5 }, { type = "Adagrad", lr = 0.02, lr_decay = 0.1 }, { type = "Adafactor", lr = 0.02 },
  { type = "CAME", lr = 0.003 },
  { type = "RMSprop", lr = 0.003, momentum = 0.5, centered = true }, { type = "Muon", lr = 0.02 } }
local of_rows = { { type = "SparseAdam", lr = 0.01 }, { type = "Adagrad", lr = 0.02 }, { type = "SGD", lr = 0.1 } }

local schedules = { false, { type = "CosineAnnealingWarmupLR", warmup_steps = 3 },
  { type = "StepLR", step_size = 2, gamma = 0.5 }, { type = "OneCycleLR", cycle_momentum = false },
  { type = "WarmupDelayerScheduler", warmup_steps = 2, delay_steps = 1,
    after = { type = "ExponentialLR", gamma = 0.7 } },
  { type = "MultiplicativeLR", lr_lambda = function() return 0.9 end } }

-- ---------------------------------------------------------------- how

local Stop = gm.hooks.class("RandomStop", { at = { type = "integer", default = 0 } }, { priority = 90,
  needs_output = false, needs_loss = false })
function Stop:after_train_iter(trainer)
  if trainer.step == self.opt.at then error("stopped here", 0) end
end

-- The hooks of a draw, with states and without.
local function drawn_hooks(config)
  local list = { { type = "LossHook" } }
  if config.sparse then
    local metrics = { { type = "AUC" }, { type = "Accuracy" } }
    list[#list + 1] = { type = "MetricsHook", train = any(2) == 1, metrics = metrics }
  end
  perhaps(list, { type = "EMA", decay = 0.7, every = any(2), warmup = any(2) == 1 }, 50)
  perhaps(list, { type = "GradientNormHook", norm_type = one { 1, 2, math.huge } }, 40)
  perhaps(list, { type = "EarlyStopHook", patience = any(3), min_delta = one { 0, 0.1, 1 } }, 50)
  perhaps(list, { type = "EvaluationHook", interval = any(3) }, 30)
  perhaps(list, { type = "NaNWatchHook", action = "skip" }, 30)
  perhaps(list, { type = "GradientNoise", every = 2, needed = false }, config.gradient_accumulation > 1 and 40 or 0)
  return list
end

local function sampled(data)
  local kind = any(4)
  if kind == 1 then data.sampler = { order = order } end
  if kind == 2 then data.sampler = { type = "DataParallelSampler", shuffle = true, drop_last = true } end
  if kind == 3 then data.shuffle = false end
end

-- The settings of a draw.
local function drawn()
  local config = one(models)()
  config.gradient_accumulation, config.epochs, config.test_interval = any(3), 3, one { 1, 1, 2 }
  config.name, config.seed, config.loss = "drawn", 7, config.loss or { type = "CrossEntropyLoss" }
  config.dtype = one { "f64", "f32", "bf16", "f16" }
  if config.dtype == "f16" then config.fp16 = { initial_scale = one { 2 ^ 14, 2 ^ 24 }, growth_interval = 2 } end
  config.optimizer = one(config.sparse and of_rows or optimizers)
  config.lr_scheduler, config.clip_grad_norm = one(schedules) or nil, any(2) == 1 and 0.1 or nil
  sampled(config.data)
  config.hooks, config.sparse = drawn_hooks(config), nil
  return config
end

-- Trains in a folder, as far as the step `stop` or to the end -> what is told of steps and evaluations.
local function run(make, folder, stop, resume)
  local config, events = make(), {}
  config.hooks[#config.hooks + 1] = { type = "RandomStop", at = stop }
  config.hooks[#config.hooks + 1] = { type = "CheckpointHook", interval = 1, keep_last = 99 }
  local ok, err = pcall(fit, config, { out = folder, resume = resume and "auto" or nil, log = function() end,
    record = function(event) events[#events + 1] = json.encode(event) end })
  if not ok and not (stop and tostring(err):find "stopped here") then error(err, 0) end
  return events
end

local function last(folder)
  local list = checkpoint.list(folder .. "/checkpoints")
  return list[#list]
end

-- What a checkpoint says of the run, without its settings, as a text.
local function meta_of(path)
  local ck = checkpoint.open(path)
  local meta = ck.meta
  ck:close()
  meta.config = nil
  return options.literal(json.plain(meta))
end

local function check(make)
  local whole, parts = support.folder(), support.folder()
  local events = run(make, whole)
  local steps, told, from = last(whole).step, {}, 0
  local function go_on(stop)
    for _, event in ipairs(run(make, parts, stop, from > 0)) do told[#told + 1] = event end
  end
  for _ = 1, math.min(STOPS, steps) do
    local stop = from + any(math.max(1, steps - STOPS - from))
    go_on(stop)
    from = stop
  end
  go_on()
  assert.same(events, told)
  assert.equal(steps, last(parts).step)
  local share, name = stored.difference(last(parts).path, last(whole).path, true)
  assert.equal(0, share, name)
  assert.equal(meta_of(last(whole).path), meta_of(last(parts).path))
end

describe("features drawn at random", function()
  local dtype
  before_each(function() dtype = core.default_dtype() end)
  after_each(function()
    core.set_default_dtype(dtype)
    support.clean()
  end)

  for number = 1, DRAWS do
    it("train as if nothing had stopped them: draw " .. number, function()
      local function make()
        state = 1234
        for _ = 1, 50 * number do any(2) end -- each draw by itself, also where -f leaves others out
        return drawn()
      end
      local ok, err = pcall(check, make)
      if not ok then error(("%s\n%s"):format(tostring(err), options.literal(make())), 0) end
    end)
  end
end)
