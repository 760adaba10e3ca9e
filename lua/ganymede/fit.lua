--- gm.fit: trains what a resolved config describes. `ganymede run` calls it; so may any program.
--
--     gm.fit(config, { steps = 100, out = "runs/one", stats = stats })
--
-- The run context, every field optional:
--   steps      end after so many optimizer steps of the whole run; the schedule keeps the recipe's length
--   resume     a checkpoint, a folder of checkpoints, or a run's folder; "auto": the newest in `out`, or none
--   out        the run's folder (a string, or a function that makes it when it is first needed);
--              checkpoints go to out/checkpoints
--   log        log(text): one line for the user;        progress  progress(event) after every step
--   record     record(event): one entry of metrics.jsonl after every step and evaluation
--   stats      a table that is filled while the run goes on (see ganymede.stats)
--   no_eval    never evaluate;      recipe   its file, for messages
--   stop_requested   stop_requested() -> true: save a checkpoint at the end of the step, raise status 75
-- The trap: weights are drawn when the model is built, so seed and dtype are set here, before anything else.
-- @module ganymede.fit
local core = require "ganymede.core"
local engine_module = require "ganymede.engine"
local failure = require "ganymede.failure"
local registry = require "ganymede.registry"
local scope = require("ganymede.tensor").scope
local snapshot = require "ganymede.snapshot"
local trainer_module = require "ganymede.trainer"

local fit = {}

-- ---------------------------------------------------------------- building

local function loader(config, which)
  local data = require "ganymede.data"
  local c = config.data or {}
  local dataset = c[which]
  if not dataset then return nil end
  local training = which == "train"
  return data.loader {
    dataset = dataset, seed = config.seed, prefetch = c.prefetch,
    batch_size = not training and c.test_batch_size or c.batch_size,
    shuffle = training and c.shuffle ~= false or nil, drop_last = training and c.drop_last or nil,
    transforms = training and c.transforms or not training and c.test_transforms or nil,
  }
end

-- Steps of the whole schedule: the recipe's, or more if more were asked for.
local function schedule_steps(config, steps_per_epoch, asked)
  local own = config.epochs and steps_per_epoch and config.epochs * steps_per_epoch
  if config.steps and own then own = math.min(own, config.steps) end
  own = own or config.steps
  if not own then return asked end
  return asked and math.max(asked, own) or own
end

local function always() return true end

local function build_engine(config, model, train, test, total)
  return engine_module.initialize {
    model = model, criterion = registry.losses:build(config.loss),
    optimizer = config.optimizer, lr_scheduler = config.lr_scheduler, total_steps = total,
    train_dataloader = train, test_dataloader = test,
    clip_grad_norm = config.clip_grad_norm, gradient_accumulation = config.gradient_accumulation,
  }
end

-- The recipe's hooks; `checkpoint = { ... }` of a recipe is a CheckpointHook.
local function hooks_of(config)
  local out, saves = {}, false
  for i, hook in ipairs(config.hooks or {}) do
    out[i] = hook
    saves = saves or (type(hook) == "table" and (hook.type or hook.name) == "CheckpointHook")
  end
  if config.checkpoint and not saves then
    local c = config.checkpoint
    out[#out + 1] = { type = "CheckpointHook", interval = c.interval, keep_last = c.keep_last, directory = c.directory }
  end
  return out
end

local function folder(run)
  if type(run.out) == "function" then return run.out() end
  return run.out
end

-- ---------------------------------------------------------------- resuming

-- The newest whole checkpoint in path or path/checkpoints; nil where there is none at all.
local function newest(path)
  local checkpoint = require "ganymede.checkpoint"
  for _, place in ipairs { path .. "/checkpoints", path } do
    if #checkpoint.list(place) > 0 then
      return checkpoint.latest(place) or failure(5, "all checkpoints in %s are damaged", place)
    end
  end
end

--- The checkpoint that `resume` means, or nil for a fresh start.
function fit.find_checkpoint(resume, out)
  if not resume then return nil end
  if resume == "auto" then return out and newest(out) or nil end
  local found = newest(resume)
  if found then return found end
  local file = io.open(resume .. "/index.json")
  if file then -- one checkpoint itself
    file:close()
    return resume
  end
  failure(2, "there is no checkpoint in %s to resume from", resume)
end

-- ---------------------------------------------------------------- telling

local bytes_of = { f64 = 8, i64 = 8, f32 = 4, i32 = 4, bf16 = 2, f16 = 2, u8 = 1 }

local function size(t) return t:numel() * bytes_of[t:dtype()] end

local function held(engine)
  local parameters, gradients = 0, 0
  for _, t in ipairs(engine.parameters) do
    parameters = parameters + size(t)
    if scope(t.grad, t) then gradients = gradients + size(t) end
  end
  return parameters, gradients, engine.optimizer:bytes()
end

-- What this rank holds after the last step, and held at most.
local function fill_rank(stats, engine)
  local parameters, gradients, moments = held(engine)
  local memory, counters = core.memory(), core.counters()
  stats.ranks = { {
    rank = core.rank(), parameter_bytes = parameters, gradient_bytes = gradients, optimizer_bytes = moments,
    peak_bytes = memory.peak, activation_peak_bytes = math.max(0, memory.peak - parameters - gradients - moments),
    flops = counters.flops, kernels = counters.calls,
  } }
end

fit.fill_rank = fill_rank

local function fill_rates(stats, trainer)
  stats.steps, stats.seconds = trainer.step, trainer.seconds
  if trainer.seconds > 0 then
    stats.samples_per_second = trainer.samples / trainer.seconds
    stats.tokens_per_second = trainer.tokens > 0 and trainer.tokens / trainer.seconds or nil
  end
end

-- After every step and evaluation, so that a run that fails tells what it did before.
local function connect(trainer, run)
  local stats = run.stats or {}
  stats.loss, stats.metrics, stats.steps = trainer.losses, trainer.metrics, 0
  trainer.sink = run.log
  trainer.should_stop = run.stop_requested
  trainer.on_step = function(t)
    local last = t.last
    stats.steps, stats.metrics, stats.global_batch = t.step, t.metrics, stats.global_batch or last.samples
    local event = { step = t.step, epoch = t.epoch + 1, loss = last.loss, lr = last.lr, samples = t.samples,
                    gradient_norm = t.engine.grad_norm, accuracy = t.metrics.train.accuracy }
    if run.progress then run.progress(event) end
    if run.record then run.record(event) end
  end
  trainer.on_test = function(t)
    stats.metrics = t.metrics
    if run.record then run.record { step = t.step, test = t.metrics.test } end
  end
  return stats
end

-- ---------------------------------------------------------------- the run

local function prepare(config, run)
  local session = require "ganymede.session"
  session.load_classes()
  local function blaming_recipe(fn, ...) return session.blaming_recipe(run.recipe, always, fn, ...) end
  core.set_seed(config.seed)
  if config.dtype then core.set_default_dtype(config.dtype) end
  local train, test = loader(config, "train"), not run.no_eval and loader(config, "test") or nil
  if not train then failure(2, "the recipe has no data.train to train on") end
  local steps_per_epoch = math.ceil(train:length() / (config.gradient_accumulation or 1))
  local total = schedule_steps(config, steps_per_epoch, run.steps)
  local model = blaming_recipe(registry.models.build, registry.models, config.model)
  model:materialize() -- may lack memory, which is no mistake of the recipe
  local engine, train_loader, test_loader = blaming_recipe(build_engine, config, model, train, test, total)
  local trainer = trainer_module(engine)
  trainer.config = require("ganymede.stats").jsonable(config)
  trainer.samples_per_step = config.data.batch_size * (config.gradient_accumulation or 1)
  trainer.checkpoint_directory = function()
    local out = folder(run)
    return out and out .. "/checkpoints"
  end
  blaming_recipe(trainer.prepare, trainer, {
    train_dataloader = train_loader, test_dataloader = test_loader, hooks = hooks_of(config),
    epochs = not run.steps and config.epochs or nil, max_steps = run.steps or config.steps,
    test_interval = run.steps and 2 ^ 53 or config.test_interval, -- asked for so many steps: evaluate once, at the end
  })
  return trainer
end

local function resume(trainer, run)
  local path = fit.find_checkpoint(run.resume, run.resume == "auto" and folder(run) or nil)
  if not path then return end
  snapshot.restore(trainer, path)
  trainer:say(("resumed from %s at step %d"):format(path, trainer.step))
end

-- Asked to stop: what is there is saved, and the exit status says that the run can go on.
local function preempt(trainer)
  local directory = trainer.checkpoint_directory()
  if not directory then failure(75, "stopped after step %d; nothing was saved: the run has no folder", trainer.step) end
  local path = trainer.states.checkpoint_step == trainer.step and trainer.states.checkpoint
    or snapshot.save(trainer, directory, {})
  failure(75, "stopped after step %d; saved %s (continue with --resume)", trainer.step, path)
end

local function close(trainer)
  for _, name in ipairs { "train_dataloader", "test_dataloader" } do
    if trainer.opt[name] then trainer.opt[name]:close() end
  end
end

--- Trains -> the trainer, whose metrics, losses and engine tell the rest.
function fit.fit(config, run)
  run = run or {}
  local trainer = prepare(config, run)
  local stats = connect(trainer, run)
  local ok, err = pcall(function()
    resume(trainer, run)
    core.memory_reset_peak()
    trainer:fit()
    if trainer.stopped then preempt(trainer) end
  end)
  fill_rates(stats, trainer)
  fill_rank(stats, trainer.engine)
  close(trainer)
  if not ok then error(err, 0) end
  return trainer
end

return fit
