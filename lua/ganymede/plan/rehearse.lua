--- A rehearsal finds out what a recipe would do as one rank of a world, on the meta device, which has no data.
--
--     local found = rehearse { recipe = "recipes/gpt_text.lua", ranks = 8, rank = 3, set = { "data.batch_size=64" } }
--
-- The trainer makes optimizer steps, without hooks unless they are asked for (they may read numbers:
-- ganymede.plan.hooks). The second step counts, because the optimizer's state exists then, as in every later step. A
-- collective moves nothing and is counted as it would be sent. The trap: a process can rehearse only once, because it
-- becomes that rank; ganymede.job.rehearsal starts other processes.
-- @module ganymede.plan.rehearse
local core = require "ganymede.core"
local auto = require "ganymede.plan.auto"
local borders = require "ganymede.plan.borders"
local configuration = require "ganymede.config"
local data = require "ganymede.data"
local draw_svg = require "ganymede.schedules.draw_svg"
local failure = require "ganymede.base.failure"
local Graph = require "ganymede.train.graph"
local fit = require("ganymede.train.fit").fit
local launcher = require "ganymede.job.launcher"
local micro_batches = require "ganymede.data.micro_batches"
local model_of = require "ganymede.train.model"
local modules = require "ganymede.plan.modules"
local peers = require "ganymede.plan.peers"
local placement = require "ganymede.plan.placement"
local ranks = require "ganymede.job.ranks"
local recipe = require "ganymede.config.recipe"
local regions = require "ganymede.plan.regions"
local rehearsed_hooks = require "ganymede.plan.hooks"
local rehearsed_metrics = require "ganymede.plan.metrics"
local session = require "ganymede.job.session"
local snapshot = require "ganymede.checkpoint.snapshot"
local stages = require "ganymede.plan.stages"
local zero = require "ganymede.optim.zero"

-- ---------------------------------------------------------------- the steps

-- Notes how the first batch lies on the ranks, and measures with its first piece what the parts of a pipeline cost,
-- before counting begins.
local function note_batch(notes, engine, x, y)
  local list = micro_batches.is_list(x)
  local first_x, first_y = list and x[1] or x, list and y and y[1] or y
  local shown = core.is_tensor(first_x) and first_x or first_x[1] -- of several inputs in a list
  notes.batch = { x = modules.placed(shown), y = core.is_tensor(first_y) and modules.placed(first_y) or nil,
    micro_batches = list and #x or nil }
  if notes.wants_chain then notes.chain = borders.chain(first_x, first_y, engine.loss_function) end
  if engine.executor then notes.costs = borders.costs(engine.stage, first_x, first_y, engine.loss_function) end
end

local function first_of(list, n)
  local out = {}
  for i = 1, n do out[i] = list[i] end
  return micro_batches.List(out)
end

-- The first step is there for what it leaves: the states of the optimizer, and what stages agree about. A micro-batch
-- for each stage does that; a long batch would double the time of a rehearsal.
local function few_pieces(schedule, x, y)
  local _, n = ranks.stage()
  if n == 1 or not schedule.order_for or not micro_batches.is_list(x) or #x <= n then return x, y end
  if not failure.try(schedule.order_for, schedule, n, n, false) then return x, y end
  return first_of(x, n), y ~= nil and first_of(y, n) or nil
end

-- Lets the first step have two batches, which leave the states of the optimizer that all would. Returns a function of
-- the samples of that step: those that it would have had. Where an epoch might end in the second step, and where what
-- is gathered and kept depends on what was used before (stage 3 of ZeRO, offload), nothing changes.
local function few_batches(trainer, notes)
  local loader, few = trainer.opt.train_dataloader, 2
  local whole, per_epoch = loader.accumulation or 1, trainer.steps_per_epoch
  if whole <= few or notes.remembers or trainer.batching or per_epoch and per_epoch < 3 then
    return function(samples) return samples end
  end
  loader.accumulation = few
  trainer.steps_per_epoch = loader:length() -- which the trainer compares
  return function(samples)
    loader.accumulation, trainer.steps_per_epoch = whole, per_epoch
    return samples / few * whole
  end
end

-- Returns the schedule of a rehearsal, which notes its first batch.
local function noting(schedule, engine, notes)
  local function noted(x, y)
    if x == nil or notes.batch then return x, y end
    note_batch(notes, engine, x, y)
    return few_pieces(schedule, x, y)
  end
  local load = schedule.load_batch
  if load then
    function schedule.load_batch(self, iter) return noted(load(self, iter)) end
    return
  end
  local step = schedule.forward_backward_step -- one of the recipe's own
  function schedule.forward_backward_step(self, on, iter, opt)
    return step(self, on, function() return noted(iter()) end, opt)
  end
end

-- Begins to count what a step sends, computes and holds, and returns the counters. With hooks, the list of calls has
-- begun with them. notes.step_file: the record of the step begins, too.
local function begin_counting(notes)
  borders.release()
  notes.live = core.memory().live
  core.memory_reset_peak()
  if core.world() > 1 then
    core.comm_reset_traffic()
    if not notes.left_out then core.comm_trace(true) end
  end
  if notes.step_file then core.record_start() end
  return core.counters()
end

-- Returns the hook of a rehearsal: it watches the model, begins to count before the step that counts, and ends the run
-- after it. That is the second step, or the third if the second is the rest of an epoch.
local function counting(watch, notes)
  local hook = { name = "rehearsal", needs_output = false, priority = -math.huge }
  function hook.before_train(_, trainer)
    noting(trainer.engine.schedule, trainer.engine, notes)
    watch:attach(trainer.engine)
    hook.whole = few_batches(trainer, notes)
    if notes.left_out and core.world() > 1 then core.comm_trace(true) end
  end
  function hook.before_train_iter(_, trainer)
    if trainer.step > 0 then hook.before = begin_counting(notes) end
  end
  function hook.after_train_iter(_, trainer)
    local samples = trainer.last.samples
    hook.first = hook.first or hook.whole(samples)
    if trainer.step < 2 or samples < hook.first then return end
    if notes.step_file then core.record_stop(notes.step_file) end
    trainer:stop()
  end
  return hook
end

-- Returns the settings with the hook of a rehearsal, alone or before the hooks of the recipe.
local function with_hook(settings, hook, notes, take_hooks)
  local own = {}
  if take_hooks then own, notes.left_out = rehearsed_hooks(settings.hooks) end
  return configuration.with(settings, { hooks = { hook, unpack(own) }, checkpoint = false })
end

local function nobody_listens() end

-- Makes the steps. command: where another process finds these settings. notes: { wants_chain }. Returns the trainer,
-- the figures of the rank, notes { batch, costs, left_out, live, chain }, and the rows of the modules.
local function make_steps(settings, command, take_hooks, notes)
  local watch, stats = modules.watch(), {}
  local hook = counting(watch, notes)
  notes.remembers = settings.offload ~= nil or zero.options(settings.zero).stage == 3
  borders.open(function() return model_of.build(settings) end)
  local trainer = failure.protect(function()
    watch:detach()
    borders.close()
  end, function()
    return fit(with_hook(settings, hook, notes, take_hooks), { steps = 3, no_eval = true,
      log = nobody_listens, stats = stats, rehearsal = true, recipe = command.recipe, command = command })
  end)
  local rank, before = stats.rank, hook.before
  rank.flops, rank.product_flops = rank.flops - before.flops, rank.product_flops - before.product_flops
  rank.kernels = rank.kernels - before.calls
  return trainer, rank, notes, watch:rows(trainer.engine)
end

-- ---------------------------------------------------------------- figures

local function parameters_of(model)
  local out, tensors = {}, {}
  for _, p in ipairs(model:named_parameters()) do tensors[p.name] = p.tensor end
  for i, p in ipairs(model:declared()) do
    local t = tensors[p.name]
    out[i] = { name = p.name, shape = { unpack(p.shape) }, count = p.count, tied = p.tied or nil,
      layout = t and modules.layout(t) or nil }
  end
  return out
end

-- Returns the places that made the tensors with the most bytes at their peak.
local function places()
  local out = {}
  for i, holder in ipairs(core.memory_peaks(12)) do out[i] = { place = holder.place, peak_bytes = holder.peak } end
  return out
end

-- Returns what this rank sends in a step, by op, phase and axes; nothing on one rank.
local function traffic(rank)
  local out = {}
  for i, e in ipairs(rank.comm) do
    out[i] = { op = e.op, phase = e.phase, axes = e.axes, calls = e.calls, bytes = e.bytes_logical }
  end
  return out
end

local function totals(settings, trainer, rank)
  local per_epoch = trainer.steps_per_epoch
  local steps = settings.steps
  if settings.epochs and per_epoch then steps = math.min(steps or math.huge, settings.epochs * per_epoch) end
  return {
    parameters = trainer.engine.model:count(), parameter_bytes = rank.parameter_bytes,
    gradient_bytes = rank.gradient_bytes, optimizer_bytes = rank.optimizer_bytes,
    offloaded_bytes = rank.offload and rank.offload.placed_bytes, host_peak_bytes = rank.host_peak_bytes,
    activation_peak_bytes = rank.activation_peak_bytes, peak_bytes = rank.peak_bytes,
    flops_per_step = rank.flops, product_flops_per_step = rank.product_flops,
    samples_per_step = trainer.last.samples, steps_per_epoch = per_epoch, steps = steps,
    checkpoint_bytes = snapshot.bytes(trainer), one_by_one = Graph.reason(trainer.engine),
  }
end

-- ---------------------------------------------------------------- a rank of a world

local function become(given)
  local world, rank = given.ranks or 1, given.rank or 0
  session.open_device { device = "meta", apart = given.device == "cuda", limit_memory = given.limit_memory }
  if world == 1 then return end
  if rank >= world then failure(2, "--rank %d: ranks are 0 to %d", rank, world - 1) end
  core.pretend(rank, world)
end

local function always() return true end

-- check --sections: returns where the model may be cut, and what each section costs, on one rank.
local function sections_of(config)
  session.join(config, { rehearsal = true })
  core.set_default_dtype(config.dtype)
  local loader = data.of_config(config, "train")
  local pieces, labels = loader:next_pieces(config.num_microbatches or 1)
  local process = type(config.schedule) == "table" and config.schedule.data_process_func
  local x = pieces[1]
  if process then x = process(x, labels[1]) end
  borders.open(function() return model_of.build(config) end)
  local sections = failure.protect(function()
    borders.close()
    loader:close()
  end, borders.sections, x)
  return { name = config.name, sections = sections }
end

-- check --regions.
local function regions_of(config, given, command)
  local function steps(settings, notes)
    local trainer, rank = make_steps(configuration.with(settings, { recompute = false }), command, false, notes)
    return trainer, rank
  end
  return { name = config.name, regions = regions(config, given, steps) }
end

-- Returns what is said about the pipeline; with --schedule-svg it also writes the picture.
local function pipeline_of(given, engine, notes)
  local found, built, simulation = stages.report(engine, notes)
  if given.schedule_svg then
    if not found then failure(2, "--schedule-svg %s: this recipe runs no pipeline schedule", given.schedule_svg) end
    core.write_whole(given.schedule_svg, draw_svg(built, simulation))
  end
  return found
end

--- Rehearses. given: recipe (path), ranks (1), rank (0), set (list of "key=value"), seed, calls (whether every
-- collective is listed), device ("cuda": as on a GPU, below which the host's memory is a tier), hooks (whether the
-- hooks of the recipe run; left_out then names those that cannot), schedule_svg (a file to write), step_file (a file
-- for the record of the step, host/plan/step_file.h). Returns recipe, name, world, rank, dtype, mesh, settings,
-- parameters, modules, batch, totals, places, sent, peers, calls, left_out, metrics (ganymede.plan.metrics), pipeline
-- (that of ganymede.plan.stages; nil without one): plain tables except for the values of settings. With
-- given.sections it returns name and sections alone (ganymede.pipeline.flops). With given.regions it returns name and
-- regions of recompute.memory alone (ganymede.plan.regions), and with given.placement name and placement of
-- offload.memory (ganymede.plan.placement). given.limit_memory: the bytes that tensors may take.
local function rehearse(given)
  local source = recipe.read(given.recipe)
  become(given)
  local settings = session.strictly(recipe.run, source)
  if not settings then
    failure(2, "%s returns no table: check cannot look into a recipe that trains in code", source.path)
  end
  local resolved, plan = auto.resolve(source, settings, given, { ranks = given.ranks or 1, alone = true,
    threads = launcher.threads(given.ranks or 1), memory = given.limit_memory })
  local config = resolved.config
  local command = { recipe = source.path, set = { unpack(given.set or {}) }, seed = given.seed }
  for _, text in ipairs(plan and plan.sets or {}) do table.insert(command.set, text) end
  local function blaming_recipe(...) return session.blaming_recipe(source.path, always, ...) end
  if given.sections then return blaming_recipe(sections_of, config) end
  if given.regions then return blaming_recipe(regions_of, config, given, command) end
  if given.placement then return { name = config.name, placement = blaming_recipe(placement, config, given) } end
  local trainer, rank, notes, rows = blaming_recipe(make_steps, config, command, given.hooks,
    { step_file = given.step_file })
  local pipeline = pipeline_of(given, trainer.engine, notes)
  local found = {
    recipe = source.path, name = config.name, world = core.world(), rank = core.rank(), dtype = config.dtype,
    mesh = core.mesh(), settings = resolved:rows(),
    parameters = parameters_of(trainer.engine.model), modules = rows, batch = notes.batch,
    places = places(), totals = totals(config, trainer, rank), sent = traffic(rank),
    peers = peers(pipeline and pipeline.meets), pipeline = pipeline,
    calls = given.calls and core.world() > 1 and core.comm_traced_calls() or nil, left_out = notes.left_out,
  }
  found.metrics = blaming_recipe(rehearsed_metrics, config, trainer) -- when all is counted
  return found
end

return rehearse
