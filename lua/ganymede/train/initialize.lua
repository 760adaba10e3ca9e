--- gm.initialize puts the parts of a training run together: stage, schedule, optimizer, sums of gradients.
--
-- Without a pipeline the model is whole. In a pipeline it is what gm.build_pipeline_model made of the whole model, or
-- what the recipe built for this stage alone. A whole model on every stage is refused, because each stage would train
-- its own. What is not given here comes from gm.launch: model, loss, data, and all settings of schema.engine, which are
-- declared there. Parts may be given by position, in Colossal-AI's order.
-- The trap: with several ranks, everything here is collective, from the choice of the schedule to the first values of
-- parameters that stages share.
-- @module ganymede.train.initialize
local chosen_regions = require "ganymede.train.chosen_regions"
local colossal_memory = require "ganymede.config.colossal_memory"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local fitting_data = require "ganymede.train.fitting_data"
local float8_history = require "ganymede.nn.float8_history"
local Graph = require "ganymede.train.graph"
local handlers = require "ganymede.train.gradient_handlers"
local loss_scaling = require "ganymede.optim.loss_scaling"
local model_of = require "ganymede.train.model"
local module = require "ganymede.nn.module"
local offload = require "ganymede.train.offload"
local options = require "ganymede.base.options"
local own_states = require "ganymede.optim.own_states"
local ranks = require "ganymede.job.ranks"
local region = require "ganymede.nn.region"
local registry = require "ganymede.base.registry"
local replicas = require "ganymede.train.replicas"
local resting = require "ganymede.train.resting"
local schedules = require "ganymede.schedules"
local schema = require "ganymede.config.schema"
local sections = require "ganymede.nn.sections"
local stage_gradients = require "ganymede.train.stage_gradients"
local stages = require "ganymede.pipeline.stage"
local StepLoader = require "ganymede.train.step_loader"
local zero = require "ganymede.optim.zero"

local given = {
  model = { type = { "module", "table", "string", "function" },
    doc = "the model, or { type = ... }; in a pipeline: the result of gm.build_pipeline_model, or the part or chunks "
      .. "that this stage has built" },
  criterion = { type = { "module", "table", "string", "function" }, optional = true,
                doc = "the loss: a module, { type = ... }, or a function(output, target) that returns the mean over "
                  .. "the samples" },
  train_dataloader = { type = "table", optional = true,
    doc = "the loader of the batches to train on, made by ganymede.data" },
  test_dataloader = { type = "table", optional = true,
    doc = "the loader of the batches of evaluations, made by ganymede.data" },
  total_steps = { type = "integer", min = 1, optional = true,
    doc = "the number of optimizer steps of the run, which lr_scheduler = { type = ... } may need" },
}
for _, name in ipairs(schema.engine) do
  given[name] = {}
  for key, value in pairs(schema.fields[name]) do given[name][key] = value end
  given[name].optional = true -- the default of the optimizer is AdamW
end
local aliases = { gradient_handlers = "gradient_handler" }
local by_position = { "model", "optimizer", "criterion", "train_dataloader", "test_dataloader", "lr_scheduler" }

-- ---------------------------------------------------------------- what was given

-- The table of parts. If the first argument is a model and no such table, the parts are given by position.
local function named(first, ...)
  local more = select("#", ...)
  if more == 0 and not module.is_module(first) then return first end
  if more >= #by_position then
    error(("gm.initialize takes at most %d parts by position (%s); give the others by name"):format(#by_position,
      table.concat(by_position, ", ")), 3)
  end
  local parts, values = {}, { first, ... }
  for i, name in ipairs(by_position) do parts[name] = values[i] end
  return parts
end

-- The parts, completed by what was given to gm.launch.
local function completed(parts, launched)
  if not launched or type(parts) ~= "table" then return parts end
  local out, said = {}, {}
  for key, value in pairs(parts) do
    out[key], said[aliases[key] or key] = value, true
  end
  local function add(name, value)
    if not said[name] then out[name] = value end
  end
  for _, name in ipairs(schema.engine) do add(name, launched[name]) end
  add("model", launched.model)
  add("criterion", launched.loss)
  for which, name in pairs { train = "train_dataloader", test = "test_dataloader" } do
    if not said[name] then out[name] = data.of_config(launched, which) end
  end
  return out
end

-- Applies init_from, lora, freeze and float8 to a whole model. wanted: all settings.
local function prepared(model, wanted)
  for _, name in ipairs(model_of.names) do
    if wanted[name] and (not module.is_module(model) or stages.of(model)) then
      error(("gm.initialize: %s needs the whole model, and this one is split already: call gm.%s before you split it")
        :format(name, name), 0)
    end
  end
  return model_of.prepare(model, wanted)
end

-- Builds the model that a config describes. In a pipeline the result is this rank's stage of it, unless a function has
-- already built that.
local function built(model, schedule, plan, wanted)
  local is_list = type(model) == "table" and not getmetatable(model) and not model.type
  if is_list and #model == 0 then
    error("gm.initialize: model is an empty table; give a model, { type = NAME, ... } or the parts of this stage", 0)
  end
  if module.is_module(model) or is_list then return prepared(model, wanted) end
  local made = prepared(registry.models:build(model), wanted)
  local parts = schedule.parts and schedule:parts(plan.pipeline) or { { 1 } }
  local is_own = type(model) == "function" and (stages.of(made) or not sections.of(made))
  if #parts * #parts[1] == 1 or is_own then return made end
  return require("ganymede.train.pipeline_model").build_pipeline_model(made, { schedule = schedule })
end

-- ---------------------------------------------------------------- small parts

-- A scheduler that moves once for each update, however often the loop calls it.
local function gated(scheduler, engine)
  local gate = {}
  function gate.step()
    if engine.updated then scheduler:step() end
  end
  return setmetatable(gate, { __index = scheduler })
end

-- Makes a criterion of a plain function(output, target) that returns the mean over the samples of a batch.
local function from_function(fn)
  local criterion = { count = function(_, target) return target:size(1) end, calls = fn }
  return setmetatable(criterion, {
    __call = function(_, output, target, count)
      local loss = fn(output, target)
      if not core.is_tensor(loss) then return loss end -- refused where it is called (ganymede.nn.criterion)
      return count and loss * (target:size(1) / count) or loss
    end,
  })
end

-- Refuses a criterion without a method count. Every module inherits one, which counts its parameters; it does not
-- serve.
local function must_count(criterion)
  if criterion.count ~= nil and criterion.count ~= module.Module.count then return criterion end
  local name = criterion.name or "the criterion"
  error(("%s has no method count, which returns the number of targets over which its loss is the mean:\n"
    .. "  function %s:count(target) return target:numel() end"):format(name, criterion.name or "criterion"), 0)
end

local function criterion_of(given_criterion)
  if type(given_criterion) == "function" then return from_function(given_criterion) end
  return given_criterion and must_count(registry.losses:build(given_criterion))
end

local function handlers_of(list, engine)
  local out = {}
  for i, entry in ipairs(list) do
    out[i] = registry.gradient_handlers:build(entry, engine.model, engine.optimizer)
    if type(out[i]) ~= "table" or type(out[i].handle_gradient) ~= "function" then
      error(("gm.initialize: gradient_handler[%d] has no function handle_gradient"):format(i), 0)
    end
  end
  return out
end

-- ---------------------------------------------------------------- stages

-- The names, one on each line, of the parameters that a stage declares and that PipelineSharedModuleWrapper does not
-- share.
local function own_names(stage)
  local names = {}
  for _, p in ipairs(stage.model:declared()) do
    if not p.tied and not p.entry.shared_by then names[#names + 1] = p.name end
  end
  return table.concat(names, "\n")
end

-- Checks parts that the stages have built by themselves. A name may stand on one stage only. If all stages have the
-- same names, each of them holds the whole model.
local function check_own_parts(stage, plan)
  local seen, same, alike, twice = {}, nil, true, nil
  for _, text in ipairs(ranks.texts(("%d\n%s"):format(stage.rank, own_names(stage)))) do
    local number, names = text:match "^(%d+)\n(.*)$"
    same, alike = same or names, alike and (same == nil or same == names)
    for name in names:gmatch "[^\n]+" do
      if seen[name] and seen[name] ~= number then twice = twice or { name, seen[name], number } end
      seen[name] = number
    end
  end
  if alike and same ~= "" then
    local _, why = sections.of(stage.model)
    ranks.fail(2, "parallel.pipeline is %d, and every stage holds the whole model%s", plan.pipeline, why
      and ", which cannot be cut: " .. why or ": split it with gm.build_pipeline_model(model), or build each stage's "
      .. "own part")
  elseif twice then
    ranks.fail(2, "stages %s and %s both declare a parameter '%s': build each part with the names that it has in the "
      .. "whole model (an nn.ModuleList may leave positions out), or share the parameter with "
      .. "nn.PipelineSharedModuleWrapper", twice[2], twice[3], twice[1])
  end
end

-- Checks that the stage holds the parts that the schedule will run on it.
local function check_parts(stage, parts, rank)
  local wanted, n = parts[rank + 1], #parts * #parts[1]
  if stage.n_parts == n and table.concat(stage.parts, ", ") == table.concat(wanted, ", ") then return end
  failure(2, "stage %d holds part %s of a model in %d, but the schedule needs part %s of %d there: give "
    .. "gm.build_pipeline_model the same schedule", rank, table.concat(stage.parts, ", "), stage.n_parts,
    table.concat(wanted, ", "), n)
end

-- Makes the Stage from what was given as the model.
local function stage_of(model, schedule, plan)
  local parts = schedule.parts and schedule:parts(plan.pipeline) or { { 1 } }
  local stage, rank = stages.of(model), ranks.stage()
  local settings = { stages = plan.pipeline, rank = rank, parts = parts, split = plan.split }
  if not stage and plan.pipeline > 1 then
    stage = stages.own(model, settings)
    if core.comm_transport() ~= "meta" then check_own_parts(stage, plan) end
  elseif plan.pipeline == 1 and #parts[1] > 1 and not (stage and stage.n_parts > 1) then
    stage = stages.split(model, settings)
  end
  stage = stage or stages.whole(model)
  if schedule.parts then check_parts(stage, parts, rank) end
  return stage
end

-- Tells the context what this stage holds and which of its chunks runs; layers and recipes ask it.
local function tell_context(stage)
  local now = context.current()
  now:set_pipeline_parts(stage.parts, stage.n_parts)
  now:set_virtual_pipeline_parallel_size(stage.chunks > 1 and stage.chunks or nil)
  now:set_virtual_pipeline_parallel_rank(nil)
end

-- Adds what a schedule that knows pipelines needs besides the model.
local function add_pipeline(engine)
  local schedule = engine.schedule
  tell_context(engine.stage)
  if not schedule.parts then return end
  engine.output_stage = schedule:output_stage(engine.stage.stages)
  engine.executor = schedule:new_executor()
  engine:set_counting()
end

-- ---------------------------------------------------------------- gradients

-- Whether there is something to train on this rank. A stage may have activations only.
local function has_parameters(engine)
  for _, p in ipairs(engine.parameters) do
    if p:requires_grad() then return true end
  end
  return false
end

-- ZeRO refuses handlers, because they sum whole gradients and do not know their owners.
local function refuse_handlers(list)
  if #list == 0 then return end
  error("gm.initialize: zero divides the sums of gradients over the ranks, and gradient_handler sums whole gradients; "
    .. "leave one of them out", 0)
end

-- Without data ranks a table that is cut over them lies whole on each rank.
local function refuse_sparse(stage)
  if context.current().plan.data == 1 then
    error(("gm.initialize: zero = %d does not divide a table with sparse = true, and there are no data ranks that it "
      .. "could divide anything over; leave zero out"):format(stage), 0)
  end
  error(("gm.initialize: zero = %d does not divide a table with sparse = true; give nn.EmbeddingBag cut = \"rows\" "
    .. "and zero = 2 at most, or leave sparse or zero away"):format(stage), 0)
end

-- Tables with sparse gradients are not shared out by ZeRO, and belong to one stage. A table that is cut over the data
-- ranks is divided already.
local function check_tables(engine, divided)
  local shared = {}
  for _, message in ipairs(engine.shared) do
    for _, t in ipairs(message.tensors) do shared[t] = true end
  end
  for _, p in ipairs(engine.parameters) do
    local cut = false
    for _, axes in ipairs(core.sparse_gradient(p) and core.layout(p).cuts or {}) do cut = cut or #axes > 0 end
    if core.sparse_gradient(p) and shared[p] then
      error("gm.initialize: stages of the pipeline share a table with sparse = true; leave sparse away", 0)
    elseif core.sparse_gradient(p) and divided.stage > 0 and core.world() > 1 and (not cut or divided.stage == 3) then
      refuse_sparse(divided.stage)
    end
  end
end

-- The parameters that are frozen now: a list of { name, tensor }.
local function frozen_of(model)
  local list = {}
  for _, p in ipairs(model:named_parameters()) do
    if not p.tensor:requires_grad() then list[#list + 1] = p end
  end
  return list
end

-- Decides who sums gradients over the ranks of a stage: the handlers that were given, otherwise the reducer. One rank
-- needs neither.
local function share_gradients(engine, list, divided)
  engine.shared, engine.shared_names = stage_gradients.shared(engine.stage), {}
  for _, message in ipairs(engine.shared) do
    for _, name in ipairs(message.names) do engine.shared_names[name] = true end
  end
  engine.counted = stage_gradients.counted(engine.parameters, engine.shared)
  check_tables(engine, divided)
  stage_gradients.make_equal(engine.shared)
  engine.gradient_handlers = handlers_of(list, engine)
  if divided.stage > 0 then refuse_handlers(list) end
  local alone = core.world() == engine.stage.stages -- a stage is one rank, so its gradients are complete
  if alone or #engine.gradient_handlers > 0 or not has_parameters(engine) then return end
  local chosen = context.current().plan.reducer
  engine.reducer, engine.names, engine.tables = handlers.reducer(engine.model,
    { bucket_mb = chosen.bucket_mb, overlap = chosen.overlap ~= false,
      owners = divided.stage > 0 and zero.owners() or nil })
  engine.sums_each_pass, engine.gathers = divided.stage >= 2, divided.stage > 0
end

-- In which dtype backward adds gradients up; before a reducer takes them over.
local function hold_gradients(engine, dtype)
  local trained = {}
  for _, p in ipairs(engine.parameters) do
    if dtype == "f32" and p:dtype() == "f64" then
      error("gm.initialize: gradient_dtype = \"f32\" is less than the f64 of the parameters; leave it away", 0)
    end
    if p:requires_grad() then trained[#trained + 1] = p end
  end
  core.wide_gradients(trained, dtype == "f32")
end

-- Losses are scaled if a parameter of any stage has the type f16.
local function scale_losses(engine, wanted)
  local own = loss_scaling.options(wanted)
  local narrow = false
  for _, p in ipairs(engine.parameters) do narrow = narrow or p:dtype() == "f16" end
  if engine.stage.stages > 1 then narrow = ranks.any(narrow) end
  if narrow and own then engine.loss_scaling = loss_scaling.start(engine.control, own) end
end

-- ---------------------------------------------------------------- memory

-- A region lies inside of one part of a pipeline.
local function check_borders(stage, wanted)
  for _, r in ipairs(stage.model._module.regions or {}) do
    for _, bound in ipairs(stage.bounds) do
      if r.first <= bound[2] and bound[2] < r.last then
        error(("gm.initialize: recompute = { sections = %q }: a part of the pipeline ends with section %d, inside of "
          .. "%d-%d"):format(wanted.sections, bound[2], r.first, r.last), 0)
      end
    end
  end
end

-- Marks what runs again in backward; a list that names nothing, on any stage, is a mistake.
local function choose_regions(stage, wanted)
  local model = stage.model
  local problem = region.problem(wanted)
  if problem then error("gm.initialize: recompute " .. problem, 0) end
  if type(wanted) == "table" and wanted.memory then return end -- ganymede.train.chosen_regions
  local found = region.mark(model, wanted) > 0
  check_borders(stage, wanted)
  if core.world() > 1 and core.comm_transport() ~= "meta" then found = ranks.any(found) end
  if not wanted or found or core.comm_transport() == "meta" then return end
  error(("gm.initialize: recompute = %s: the model has no such module; paths look like '%s'"):format(
    type(wanted) == "string" and ("%q"):format(wanted) or "{ " .. table.concat(wanted, ", ") .. " }",
    model:modules()[2] and model:modules()[2]:path() or ""), 0)
end

-- ---------------------------------------------------------------- data

-- Refuses what is no loader: what is read of one at least is next() -> x, y, or next_pieces().
local function check_loaders(opt)
  for _, which in ipairs { "train_dataloader", "test_dataloader" } do
    local loader = opt[which]
    if loader and type(loader.next) ~= "function" and type(loader.next_pieces) ~= "function" then
      error(("gm.initialize: %s must be a loader, such as gm.data.loader { dataset = ..., batch_size = ... } makes, or "
        .. "a table with a method next() that returns the next x, y, or nil; got %s"):format(which,
        type(loader.next_step) == "function" and "what gm.initialize returned" or options.brief(loader)), 3)
    end
  end
end

-- Ranks read parts of the same batches. A rank with other files would train on other samples, or leave the others
-- waiting at the end of an epoch.
local function check_data(opt)
  if core.world() == 1 or core.comm_transport() == "meta" then return end
  local files = {}
  for _, which in ipairs { "train", "test" } do
    local loader = opt[which .. "_dataloader"]
    files[which] = loader and loader.fingerprint and loader:fingerprint()
  end
  if next(files) then ranks.same_settings { data = files } end
end

-- The scales that layers of 8 bits keep from step to step, on all stages; nil: there are none.
local function kept_scales(stage)
  local state = float8_history.of(stage.model)
  if state and stage.stages > 1 and core.comm_transport() ~= "meta" then
    local own = table.concat(state.paths, "\n")
    for _, text in ipairs(ranks.texts(own)) do
      if text ~= own then
        ranks.fail(2, "float8: scaling = \"delayed\" needs the same model on all stages: call gm.float8 before "
          .. "gm.build_pipeline_model splits it")
      end
    end
  end
  if state then state:open(core.default_dtype()) end
  return state
end

-- ---------------------------------------------------------------- the engine

local function new(Engine, opt, launched)
  ranks.phase "initialize"
  local plan = context.current().plan
  local schedule = schedules.choose({ schedule = opt.schedule, num_microbatches = opt.num_microbatches }, plan)
  local stage = stage_of(built(opt.model, schedule, plan, opt), schedule, plan)
  local model, divided = stage.model, zero.options(opt.zero)
  replicas.check(model)
  choose_regions(stage, opt.recompute)
  local elsewhere = offload.options(opt.offload)
  local tier = resting.settle(model, divided, elsewhere, stage.stages)
  local engine = setmetatable({
    model = model, stage = stage, schedule = schedule,
    optimizer = own_states.checked(registry.optimizers:build(opt.optimizer or { type = "AdamW" }, model)),
    clip_grad_norm = opt.clip_grad_norm, norm_type = opt.norm_type, training = true,
    loss_function = criterion_of(opt.criterion), accumulation = opt.gradient_accumulation,
    parameters = model:parameters(), frozen = frozen_of(model), steps_done = 0, batch = 0, samples = 0, fresh = true,
    epoch = core.comm_epoch(),
    control = core.step_control(), known = { grad_norm = 0, not_finite = 0 }, pending = {}, launched = launched,
  }, Engine)
  local device = core.device()
  engine.float8 = kept_scales(stage)
  engine.ahead = device.has_data and not device.on_host
  engine.late = device.has_data and (engine.ahead or opt.graph == true) and engine.optimizer.takes_control or false
  hold_gradients(engine, opt.gradient_dtype)
  scale_losses(engine, opt.fp16)
  add_pipeline(engine)
  share_gradients(engine, opt.gradient_handler or {}, divided)
  offload.start(engine, elsewhere, tier, divided)
  if type(opt.recompute) == "table" and opt.recompute.memory then
    chosen_regions.start(engine, opt.recompute, divided)
  end
  engine.graph = Graph.new(engine, opt.graph)
  return engine
end

-- Refuses names that settings had before.
local function refuse_renamed(parts)
  for _, old in ipairs(options.sorted_keys(schema.renamed)) do
    if type(parts) == "table" and parts[old] ~= nil then
      error(("gm.initialize: %s %s"):format(old, schema.renamed[old]), 3)
    end
  end
end

--- For the class Engine: returns gm.initialize and its options.
return function(Engine)
  --- Builds what is given as { type = ... } and puts the parts together. Returns engine, train_loader, test_loader and
  -- lr_scheduler; a loader or scheduler that was not given is nil.
  local function initialize(...)
    local launched = context.current().launched
    local parts = colossal_memory.respelled("gm.initialize", completed(named(...), launched), schema.engine)
    refuse_renamed(parts)
    local opt = options.check("gm.initialize", given, parts, 2, aliases)
    check_loaders(opt)
    check_data(opt)
    local engine = new(Engine, opt, launched)
    fitting_data.check(engine.model, opt.criterion, { { "gm.initialize: train_dataloader", opt.train_dataloader },
      { "gm.initialize: test_dataloader", opt.test_dataloader } })
    local accumulation, pieces = opt.gradient_accumulation, engine.schedule.num_microbatches -- nil: whole batches
    local train = opt.train_dataloader and StepLoader.new(opt.train_dataloader, engine, accumulation, pieces)
    local test = opt.test_dataloader and StepLoader.new(opt.test_dataloader, nil, 1, pieces)
    local run = { total_steps = opt.total_steps, steps_per_epoch = train and train:length() }
    run.total_steps = run.total_steps or launched and schema.total_steps(launched, run.steps_per_epoch)
    local scheduler = opt.lr_scheduler and registry.lr_schedulers:build(opt.lr_scheduler, engine.optimizer, run)
    engine.lr_scheduler = scheduler
    if scheduler and accumulation > 1 then return engine, train, test, gated(scheduler, engine) end
    return engine, train, test, scheduler
  end
  return initialize, given
end
