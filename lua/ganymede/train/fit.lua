--- gm.fit trains what the table of a recipe describes. `ganymede run` calls it. Any program may call it, with a table
-- of settings or gm.recipe: gm.fit(dofile "recipe.lua").
--
--     gm.fit(config, { steps = 100, out = "runs/one", stats = stats })
--
-- The second argument is the run context; every field is optional:
--   steps      the number of optimizer steps of the whole run after which it ends; schedules keep the recipe's length
--   resume     a checkpoint, a folder of checkpoints, or a run's folder; "auto": the newest in `out`, or none
--   out        the run's folder (a string, or a function that makes it when it is first needed);
--              checkpoints go to out/checkpoints
--   log        log(text) prints a line for the user;    progress  progress(event) is called after every step
--   memory     { interval, folder } of checkpoints in memory: in a folder of a supervisor
--              (ganymede.train.memory_checkpoint), or without one in those of the machines
--              (ganymede.train.neighbour_memory)
--   leave      the run goes on in other ranks, and this rank calls it before it ends
--   taken_over   the ranks take the state over from others, and call it when they have (ganymede.train.handover)
--   begin      begin(step) is called once, before training, with the number of steps already made
--   record     record(event) receives an entry of metrics.jsonl after every step and evaluation
--   stats      a table that is filled while the run goes on (see ganymede.observe.stats)
--   no_eval    true: the run never evaluates;      recipe   the file of the recipe, for messages
--   command    { recipe = file, set = list of "key=value", seed = } from which another process gets the same settings
--   trace      a file for what the ranks did in the first 20 steps (ganymede.observe.trace)
--   profile    a file for what each op cost in 20 steps after the first 3 (ganymede.observe.profile)
--   predicted  { seconds, peak_bytes } of a step, with which steps are compared (ganymede.observe.prediction)
--   step_file  a file for the record of the second step (ganymede.observe.step_file)
--   stop_requested   if stop_requested() returns true, a checkpoint is saved after the step and status 75 is raised
-- On several ranks all of them call gm.fit with the same config. Rank 0 alone calls log, progress, begin, record and
-- out; any rank may be asked to stop. The trap: weights are drawn when the model is built, so gm.fit sets mesh, seed
-- and dtype before anything else.
-- @module ganymede.train.fit
local adaptive_batch = require "ganymede.train.adaptive_batch"
local core = require "ganymede.core"
local criteria = require "ganymede.nn.criterion"
local data = require "ganymede.data"
local engine_module = require "ganymede.train.engine"
local effects = require "ganymede.config.effects"
local energy = require "ganymede.observe.energy"
local failure = require "ganymede.base.failure"
local fitting_data = require "ganymede.train.fitting_data"
local geometry = require "ganymede.job.geometry"
local handover = require "ganymede.train.handover"
local hooks = require "ganymede.hooks.base"
local lent = require "ganymede.train.lent"
local log = require "ganymede.base.log"
local memory_checkpoint = require "ganymede.train.memory_checkpoint"
local neighbour_memory = require "ganymede.train.neighbour_memory"
local model_of = require "ganymede.train.model"
local options = require "ganymede.base.options"
local placement = require "ganymede.train.placement"
local prediction = require "ganymede.observe.prediction"
local products = require "ganymede.job.products"
local ranks = require "ganymede.job.ranks"
local regions = require "ganymede.train.regions"
local restarts = require "ganymede.job.restarts"
local resting = require "ganymede.train.resting"
local runs_folder = require "ganymede.job.runs_folder"
local schedules = require "ganymede.schedules"
local settings = require "ganymede.config"
local schema = require "ganymede.config.schema"
local sections = require "ganymede.nn.sections"
local snapshot = require "ganymede.checkpoint.snapshot"
local spares = require "ganymede.job.spares"
local stage = require "ganymede.pipeline.stage"
local signature = require "ganymede.base.signature"
local stats_module = require "ganymede.observe.stats"
local step_file = require "ganymede.observe.step_file"
local trainer_module = require "ganymede.train.trainer"

local fit = {}

-- ---------------------------------------------------------------- building

-- Returns the number of steps of the whole schedule: that of the recipe, or the number asked for if it is larger.
local function schedule_steps(config, steps_per_epoch, asked)
  local own = schema.total_steps(config, steps_per_epoch)
  if not own then return asked end
  return asked and math.max(asked, own) or own
end

local function always() return true end

local function build_engine(config, model, schedule, train, test, total)
  local parts = { model = model, criterion = criteria.of_setting(config.loss), total_steps = total,
    train_dataloader = train, test_dataloader = test }
  for _, name in ipairs(schema.engine) do parts[name] = config[name] end
  parts.schedule = schedule
  for _, name in ipairs(model_of.names) do parts[name] = nil end -- the model has them
  return engine_module.initialize(parts)
end

-- Describes each part: "4 (tokens to blocks.3)".
local function said_parts(own)
  local out = {}
  for part, bound in ipairs(own.bounds) do
    local count, first, last = bound[2] - bound[1] + 1, own.names[bound[1]], own.names[bound[2]]
    out[part] = count == 1 and ("1 (%s)"):format(first) or ("%d (%s to %s)"):format(count, first, last)
  end
  return table.concat(out, ", ")
end

-- Whether the recipe may have built this stage's own part. gm.initialize then checks that stages hold different things.
local function is_own_part(config, model)
  local by_name = type(config.model) == "table" and getmetatable(config.model) == nil
  return stage.of(model) ~= nil or not by_name and sections.of(model) == nil
end

-- In a pipeline, makes the model this rank's stage of it, before anything is allocated. A model that is already cut, or
-- that a recipe's function has built as this stage's own part (ganymede.pipeline.stage), stays as it is.
local function take_part(config, run, model, schedule, live)
  local plan = live.plan
  local parts = schedule.parts and schedule:parts(plan.pipeline)
  if not parts or #parts * #parts[1] == 1 or is_own_part(config, model) then return end
  local split = plan.split
  if split == "flops" then split = { weights = require("ganymede.pipeline.flops").weights(run.command) } end
  local ok, own = failure.try(stage.split, model, { stages = plan.pipeline, rank = live.coordinate.pipeline or 0,
    parts = parts, split = split })
  if not ok then failure(2, "parallel.pipeline: %s", failure.text(own)) end
  if not run.rehearsal then
    log.info("pipeline: %s; sections of each part, cut by %s: %s", geometry.title(schedule:order_for(plan.pipeline,
      schedule.num_microbatches)), type(plan.split) == "table" and "a list" or plan.split, said_parts(own))
  end
end

-- The settings, where recompute = { memory = ... } has become what runs again.
local function with_regions(config, run)
  local setting, said = regions.setting(config.recompute, run.command)
  if not said then return config end
  for _, line in ipairs(not run.rehearsal and core.rank() == 0 and said or {}) do log.info("recompute: %s", line) end
  return settings.with(config, { recompute = setting or false })
end

-- Returns the run's folder, which rank 0 makes; nil if there is none.
local function folder(run)
  if run.folder == nil then
    run.folder = ranks.from_first(function()
      if type(run.out) == "function" then return run.out() end
      if run.out and not run.resume then runs_folder.refuse_older(run.out) end
      return run.out
    end) or false
  end
  return run.folder or nil
end

-- ---------------------------------------------------------------- resuming

-- Returns the newest complete checkpoint in path/checkpoints or path; nil if there is no checkpoint.
local function newest(path)
  local checkpoint = require "ganymede.checkpoint"
  for _, place in ipairs { path .. "/checkpoints", path } do
    local found, seen = checkpoint.search(place)
    if seen > 0 then return found or ranks.fail(5, "all checkpoints in %s are damaged", place) end
  end
end

-- Returns "yes" for a checkpoint, also for one without its index, which is reported when it is opened.
local function is_checkpoint(path)
  local named = path:match "step%-%d%d%d%d%d%d%d%d+/*$" and #core.list_folder(path) > 0
  return (named or core.is_file(path .. "/index.json")) and "yes" or nil
end

--- Returns the checkpoint that `resume` means, or nil for a fresh start. Collective: all ranks verify it together.
function fit.find_checkpoint(resume, out)
  if not resume then return nil end
  if resume == "auto" then return out and newest(out) or nil end
  local found = newest(resume)
  if found then return found end
  if ranks.from_first(function() return is_checkpoint(resume) end) then return resume end
  ranks.fail(2, "there is no checkpoint in %s to resume from; a run saves where checkpoint.interval is set", resume)
end

-- ---------------------------------------------------------------- telling

local function fill_rates(stats, trainer)
  stats.steps, stats.seconds = trainer.step, trainer.seconds
  stats.samples, stats.tokens = trainer.samples, trainer.tokens > 0 and trainer.tokens or nil
  if trainer.seconds > 0 then
    stats.samples_per_second = trainer.samples / trainer.seconds
    stats.tokens_per_second = trainer.tokens > 0 and trainer.tokens / trainer.seconds or nil
  end
end

-- Fills stats after every step and evaluation, so that a run that fails has what it did before.
local function connect(trainer, run, meter)
  local stats = run.stats or {}
  stats.loss, stats.metrics, stats.steps = trainer.losses, trainer.metrics, 0
  trainer.sink = run.log
  trainer.should_stop = run.stop_requested
  local first = ranks.is_first()
  trainer.on_step = function(t, step)
    meter:update()
    for text in function() return core.device_note() end do log.info("%s", text) end
    stats.steps, stats.metrics, stats.global_batch = step.step, t.metrics, stats.global_batch or step.samples
    local event = { step = step.step, epoch = step.epoch + 1, loss = step.loss, lr = step.lr,
                    samples = step.total_samples, gradient_norm = step.gradient_norm,
                    accuracy = t.metrics.train.accuracy, gradient_noise = step.gradient_noise,
                    gradient_variance = step.gradient_variance, gradient_square = step.gradient_square,
                    batch = t.batching and t.batching:samples() or nil }
    if run.record and first then run.record(event) end
    event.steps = t:total_steps() -- of the display alone
    if run.progress and first then run.progress(event) end
  end
  trainer.on_test = function(t)
    stats.metrics = t.metrics
    if run.record and first then run.record { step = t.step, test = t.metrics.test } end
  end
  return stats
end

-- ---------------------------------------------------------------- the run

local function refuse_no_eval(config)
  local name, is_same_run = effects.needs_evaluation(config)
  if not name then return end
  if is_same_run then
    if core.rank() == 0 then log.warn("--no-eval: the recipe's %s does nothing without evaluations", name) end
    return
  end
  failure(2, "--no-eval: the recipe's %s has no effect without evaluations; leave one of them out", name)
end

local function prepare(config, run)
  if run.no_eval and not run.rehearsal then refuse_no_eval(config) end
  local session = require "ganymede.job.session"
  local live = session.join(config, { recipe = run.recipe, rehearsal = run.rehearsal,
    flags = { steps = run.steps, no_eval = run.no_eval, resume = run.resume } })
  local function blaming_recipe(fn, ...) return session.blaming_recipe(run.recipe, always, fn, ...) end
  core.set_seed(config.seed)
  if config.dtype then core.set_default_dtype(config.dtype) end
  session.use_ops(config, run.rehearsal)
  local schedule = blaming_recipe(schedules.choose, config, live.plan)
  local train, test = data.of_config(config, "train"), not run.no_eval and data.of_config(config, "test") or nil
  if not train then failure(2, "the recipe has no data.train to train on") end
  fitting_data.refuse_empty { { "data.train", train }, { "data.test", test } }
  local steps_per_epoch = math.ceil(train:length() / (config.gradient_accumulation or 1))
  local total = schedule_steps(config, steps_per_epoch, run.steps)
  local model = blaming_recipe(model_of.build, config, not run.rehearsal and core.rank() == 0 and function(line)
    log.info("%s", line)
  end or nil)
  fitting_data.check(model, config.loss, { { "data.train", train }, { "data.test", test } })
  blaming_recipe(take_part, config, run, model, schedule, live)
  config = placement.settled(config, run.command, run.rehearsal)
  resting.begin(model, config, live.plan.pipeline)
  model:materialize() -- a lack of memory is not a mistake of the recipe
  local engine, train_loader, test_loader = blaming_recipe(build_engine, with_regions(config, run), model, schedule,
    train, test, total)
  local trainer = trainer_module(engine)
  trainer.config = stats_module.jsonable(config)
  trainer.samples_per_step = config.data.batch_size * (config.gradient_accumulation or 1)
  blaming_recipe(trainer.prepare, trainer, {
    train_dataloader = train_loader, test_dataloader = test_loader, hooks = hooks.of_config(config),
    epochs = not run.steps and config.epochs or nil, max_steps = run.steps or config.steps,
    -- with run.steps it evaluates once, at the end
    test_interval = test_loader and (run.steps and 2 ^ 53 or config.test_interval) or nil,
  })
  if config.adaptive_batch then adaptive_batch.attach(trainer, config) end
  return trainer
end

-- Takes the state of the run from the ranks that train it (ganymede.job.elastic).
local function take_over(trainer, run)
  local before, closed = handover.take(trainer)
  run.taken_over(closed)
  trainer:say(("%d ranks took over from %d at step %d"):format(core.world(), before, trainer.step))
end

-- The step of the newest checkpoint in the run's own folder. Collective.
local function newest_in(out)
  return tonumber(ranks.from_first(function()
    return ("%d"):format(runs_folder.newest_step(out .. "/checkpoints"))
  end))
end

-- Says that a later start with `auto` would leave what this run does from here on.
local function say_later_ones(trainer, run)
  local out = run.resume ~= "auto" and folder(run)
  local last = out and newest_in(out) or 0
  if last <= trainer.step then return end
  trainer:say(("resume: %s has later checkpoints, up to step %d, which --resume auto would take until this run has "
    .. "newer ones: remove them, or give another --out"):format(out, last))
end

local function step_of(path) return tonumber(path:match "step%-(%d+)/*$") or 0 end

-- Goes on from the memory of the machines, unless the disk is newer -> the step, or nil; the checkpoint on the disk, or
-- nil. No file of a checkpoint on the disk is opened where memory serves.
local function newest_of_both(trainer, run, memory)
  local out = run.resume == "auto" and folder(run) or nil
  if not (memory and out) then return nil, fit.find_checkpoint(run.resume, out) end
  local newest_there = newest_in(out)
  local step = memory:resume(trainer, newest_there)
  if step then return step end
  local path = fit.find_checkpoint(run.resume, out)
  local is_older = path and step_of(path) < newest_there -- the newest one is damaged
  return is_older and memory:resume(trainer, step_of(path)) or nil, path
end

-- Returns the step, if it lies in the memory of the machines.
local function restore(trainer, run, memory)
  if not run.resume then return nil end
  local step, path = newest_of_both(trainer, run, memory)
  if not (step or path) then
    if run.taken_over then ranks.fail(1, "--standby: there is no checkpoint from which the ranks could go on") end
    trainer:say "there is no checkpoint to resume from: this run begins at step 1"
    return nil
  end
  if not step then
    snapshot.restore(trainer, path)
    trainer:say(("resumed from %s at step %d"):format(path, trainer.step))
    say_later_ones(trainer, run)
  end
  local total = trainer:total_steps()
  if total and trainer.step >= total then trainer:say(("no step is left: the run ends at step %d"):format(total)) end
  return step
end

-- Opens checkpoints in the memory of the machines, if the run has them.
local function open_memory(run)
  if not run.memory or run.memory.folder then return nil end
  local out = folder(run)
  if not out then ranks.fail(2, "--memory-checkpoint: the ranks find again what lies in memory by the run's folder; "
    .. "give --out DIR") end
  if core.world() == 1 then -- a change has left one rank: who started it will start others
    log.warn("--memory-checkpoint: one rank alone keeps no checkpoints in memory")
    neighbour_memory.forget(out)
    return nil
  end
  return neighbour_memory.open(run.memory.interval, out, run.resume == "auto" or run.taken_over ~= nil)
end

-- The ranks that stood by have the state. word: of handover.stand_by.
local function note_change(trainer, run, word)
  if not (run.happened and ranks.is_first()) then return end
  run.happened { event = "restart", step = trainer.step, seconds = core.now() - word.at, ranks = core.world(),
    why = ("a rank ended with status %d; those that stood by went on"):format(word.status) }
end

-- Restores the checkpoint and makes the run's folder, so that a folder that is refused ends the run before its first
-- step.
-- Returns the memory of the machines, if the run saves there.
local function begin(trainer, run)
  local word = run.taken_over and spares.folder() and handover.stand_by(trainer) or nil
  if word then run.taken_over(false) elseif run.taken_over then take_over(trainer, run) end
  local memory = open_memory(run)
  local step = (word or not run.taken_over) and restore(trainer, run, memory) or nil
  products.write_into(folder(run))
  if memory then
    memory:settle_on(step)
    table.insert(trainer.hooks, memory:hook())
  end
  adaptive_batch.show(trainer)
  if run.begin and ranks.is_first() then run.begin(trainer.step) end
  if word then note_change(trainer, run, word) end
  spares.trains(trainer.step)
  return memory
end

-- Ends a run that was asked to stop: it saves a checkpoint, and the exit status says that the run can be continued.
local function preempt(trainer)
  local directory = trainer.checkpoint_directory()
  if not directory then
    ranks.fail(75, "stopped after step %d; nothing was saved: the run has no folder", trainer.step)
  end
  local path = trainer.states.checkpoint_step == trainer.step and trainer.states.checkpoint
    or snapshot.save(trainer, directory, {})
  ranks.fail(75, "stopped after step %d; saved %s (continue with --resume)", trainer.step, path)
end

-- Refuses a file that cannot be written before the run, not after it.
local function must_be_writable(flag, path)
  if not ranks.is_first() then return end
  local ok, why = core.check_writable(path)
  if not ok then failure(2, "%s: %s", flag, why) end
end

-- Begins to record what --trace writes at the end.
local function record(engine, path)
  must_be_writable("--trace", path)
  if path:match "%.svg$" and not engine.executor then
    failure(2, "--trace %s: a picture shows a step of a pipeline schedule, and this recipe runs none; name it .json",
      path)
  end
  if engine.graph then log.info("graph: steps run one by one, because --trace shows what the host does in each") end
  engine.graph = nil
  return require("ganymede.observe.trace").attach(engine)
end

-- Begins to time what --profile writes at the end.
local function time_ops(trainer, path)
  must_be_writable("--profile", path)
  return require("ganymede.observe.profile").attach(trainer)
end

-- Records the second step: the hook comes before all others, as in a rehearsal.
local function record_step(trainer, path)
  must_be_writable("--step-file", path)
  if trainer.engine.graph then log.info("graph: steps run one by one, because --step-file records each op") end
  trainer.engine.graph = nil
  table.insert(trainer.hooks, 1, hooks.check(step_file.hook(path)))
end

local function write_profile(profiler, path)
  local written, why = profiler:write(path)
  if not written then log.warn("--profile: %s", why) end
end

local function close(trainer)
  for _, name in ipairs { "train_dataloader", "test_dataloader" } do
    if trainer.opt[name] then trainer.opt[name]:close() end
  end
end

local run_options = {
  steps = { type = "integer", doc = "the number of optimizer steps of the whole run after which it ends" },
  resume = { type = "string",
    doc = "where the run resumes from: a checkpoint, a folder of checkpoints, a run's folder, or auto" },
  out = { type = { "string", "function" }, doc = "the run's folder, or a function that makes it" },
  log = { type = "function", doc = "a function log(text) that prints a line for the user" },
  progress = { type = "function", doc = "a function progress(event) that is called after every step" },
  begin = { type = "function",
    doc = "a function begin(step) that is called once, before training, with the number of steps already made" },
  record = { type = "function", doc = "a function record(event) that receives each entry of metrics.jsonl" },
  stats = { type = "table", doc = "a table that is filled while the run goes on" },
  no_eval = { type = "boolean", doc = "whether the run never evaluates" },
  recipe = { type = "string", doc = "the file of the recipe, for messages" },
  command = { type = "table", doc = "the recipe, set and seed from which another process gets the same settings" },
  trace = { type = "string", doc = "the file for what the ranks did in the first steps" },
  profile = { type = "string", doc = "the file for what each op cost" },
  step_file = { type = "string", doc = "the file for the record of one step of this rank" },
  stop_requested = { type = "function", doc = "a function; if it returns true, the run saves a checkpoint and ends" },
  predicted = { type = "table", doc = "seconds and peak_bytes of a step as a plan has predicted them, to be compared" },
  memory = { type = "table", hidden = true,
    doc = "interval, and folder with a supervisor, of checkpoints in memory (ganymede.train.memory_checkpoint)" },
  leave = { type = "function", hidden = true, doc = "a function that gives up what the run has, for other ranks" },
  happened = { type = "function", hidden = true,
    doc = "a function that receives what happens besides steps (ganymede.job.run_events)" },
  taken_over = { type = "function", hidden = true,
    doc = "a function that is called when this rank has taken over the state of a run" },
  rehearsal = { type = "boolean", hidden = true, doc = "whether nothing is computed, as in check" },
}
for _, entry in pairs(run_options) do entry.optional = true end
fit.run_options = run_options

--- Trains a prepared trainer as the run context says. gm.fit calls it, and a program's own trainer to which gm.launch
-- lends the flags of the command line.
function fit.run(trainer, run)
  trainer.run_directory = function() return folder(run) end
  trainer.checkpoint_directory = function()
    local out = trainer.run_directory()
    return out and out .. "/checkpoints"
  end
  local memory, left
  trainer.leave, trainer.happened = run.leave, ranks.is_first() and run.happened or nil
  if run.leave then
    function trainer.leave()
      left = true
      run.leave()
    end
  end
  local meter = energy.start()
  local stats = connect(trainer, run, meter)
  local recorder = run.trace and record(trainer.engine, run.trace)
  if run.step_file then record_step(trainer, run.step_file) end
  if run.predicted then table.insert(trainer.hooks, hooks.check(prediction.hook(run.predicted))) end
  if run.memory and run.memory.folder then table.insert(trainer.hooks, memory_checkpoint.hook(run.memory)) end
  local profiler = run.profile and time_ops(trainer, run.profile)
  local ok, err = pcall(function()
    memory = begin(trainer, run)
    core.memory_reset_peak()
    trainer:fit()
    if trainer.stopped then preempt(trainer) end
  end)
  if not ok then snapshot.leave(trainer) end
  fill_rates(stats, trainer)
  stats.loss_scaling = trainer.engine.loss_scaling and trainer.engine.loss_scaling:state()
  stats.rank = stats_module.rank(trainer.engine)
  stats.rank.energy = meter:report()
  if ok or ranks.agreed(err) then -- otherwise another rank may have ended
    stats_module.gather(stats)
    if recorder then recorder:write(run.trace) end
    if profiler then write_profile(profiler, run.profile) end
    if memory and not left and (ok or restarts.is_final(failure.code(err))) then memory:close() end
  end
  if not ok then error(err, 0) end
end

--- Trains what config describes and returns the trainer, which has metrics, losses and the engine.
function fit.fit(config, run)
  run = options.check("gm.fit", run_options, run, 2)
  local resolved
  config, resolved = settings.resolved(config, "gm.fit")
  run = lent.over_run(run, resolved)
  local trainer = prepare(config, run)
  trainer.settings = config
  failure.protect(function() close(trainer) end, fit.run, trainer, run)
  return trainer
end

fit.fit = failure.blaming(fit.fit)
return signature.export("gm", fit, nil, nil, { fit = run_options })
