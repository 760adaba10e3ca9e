--- What a training run is at the end of a step, as a checkpoint; and the way back.
--
-- Tensors: the model's (under their names), the optimizer's moments (under "optimizer/<moment>/<parameter>"), and for a
-- parameter that had no gradient in some updates their number ("optimizer/missed/<parameter>"), those of hooks that
-- have a method `tensors` ("average/<parameter>"), and the scales that layers of 8 bits keep ("optimizer/float8/...");
-- on each stage of a pipeline those of its part, of which the checkpoint holds the union.
-- Everything else is in meta: step, the adapters of the model (ganymede.nn.lora) and what is trained beside them,
-- position of the data, scheduler, states of hooks, seed, config. Random
-- numbers need no state: they are functions of (seed, module, step, sample). So a run that was resumed
-- has the same bits as one that was never stopped. Nothing in memory changes before all of the checkpoint
-- has been checked. The trap: resuming takes rates and other settings from this run, not from the file;
-- what must be equal for the same bits (seed, samples, dtype, shapes) is compared. The number of ranks and the
-- layout need not be: a checkpoint holds global tensors, and meta what is global.
-- @module ganymede.checkpoint.snapshot
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local lora = require "ganymede.nn.lora"
local options = require "ganymede.base.options"
local products = require "ganymede.job.products"
local ranks = require "ganymede.job.ranks"
local tensor = require "ganymede.tensor"

local snapshot = { format = 1 }

-- Tensors of the trainer's hooks: list of { hook, entries }. The names of a second hook begin with "average2/".
local function of_hooks(trainer)
  local out = {}
  for _, hook in ipairs(trainer.hooks) do
    local entries = hook.tensors and hook:tensors()
    if entries then
      out[#out + 1] = { hook = hook, entries = entries }
      for _, entry in ipairs(#out > 1 and entries or {}) do entry.name = entry.name:gsub("/", #out .. "/", 1) end
    end
  end
  return out
end

-- hooks: of of_hooks; default: all. scales: those of float8; default: those that the model keeps.
local function tensors_of(trainer, hooks, scales)
  local kept = trainer.engine.float8
  local out = {}
  for _, entry in ipairs(trainer.engine.model:state()) do out[#out + 1] = entry end
  for _, entry in ipairs(trainer.engine.optimizer:state()) do
    out[#out + 1] = { name = "optimizer/" .. entry.name, tensor = entry.tensor, store = entry.store }
  end
  for _, own in ipairs(hooks or of_hooks(trainer)) do
    for _, entry in ipairs(own.entries) do out[#out + 1] = entry end
  end
  for _, entry in ipairs(scales or kept and kept:tensors() or {}) do out[#out + 1] = entry end
  return out
end

-- Whether a tensor of this name is of the scales that layers of 8 bits keep.
local function is_scale(name) return name:find "^optimizer/float8/" ~= nil end

--- Returns the bytes of tensors that a checkpoint has of this rank's stage, all its ranks together. Scales of 8 bits,
-- which all stages have, count on the first.
function snapshot.bytes(trainer)
  return tensor.scope(tensor.no_grad, function()
    local bytes, stage = 0, ranks.stage()
    for _, entry in ipairs(tensors_of(trainer)) do
      local counts = stage == 0 or not is_scale(entry.name)
      bytes = bytes + (counts and entry.tensor:numel() * dtypes.bytes[entry.tensor:dtype()] or 0)
    end
    return bytes
  end)
end

local MISSED = "optimizer/missed/"

-- What a save holds besides: numbers, as tensors, so that the stages of a pipeline have one way to tell theirs.
local function with_missed(trainer)
  local out = tensors_of(trainer)
  for _, entry in ipairs(trainer.engine.optimizer:missed()) do
    local number = tensor.full({ 1 }, entry.updates, { dtype = "f64" })
    out[#out + 1] = { name = MISSED .. entry.name, tensor = number }
  end
  return out
end

-- The parameter that such a name belongs to, or nil.
local function misser(name) return name:sub(1, #MISSED) == MISSED and name:sub(#MISSED + 1) or nil end

local function scheduler_of(trainer) return trainer.engine.lr_scheduler end

-- The adapters of a model, from which ganymede.hub.adapters makes them again, and the names of other trained
-- parameters; nil if there is none.
local function adapters_of(model)
  local list, trained = lora.describe(model), {}
  if #list == 0 then return nil end
  for _, p in ipairs(model:declared()) do
    if not (p.entry.frozen or p.tied or p.name:find "%.lora%.") then trained[#trained + 1] = p.name end
  end
  return json.array(list), json.array(trained)
end

--- Everything but tensors, as plain values.
function snapshot.meta(trainer)
  local engine, scheduler = trainer.engine, scheduler_of(trainer)
  local adapters, trained = adapters_of(engine.model)
  return {
    adapters = adapters, trained = trained,
    kind = "ganymede training", format = snapshot.format, step = trainer.step,
    trainer = trainer:state(), config = trainer.config,
    optimizer = { type = engine.optimizer.name, steps = engine.optimizer:steps(), lr = engine.optimizer.lr },
    lr_scheduler = scheduler and scheduler:state() or nil,
    rng = { seed = core.seed(), step = engine.steps_done },
    dtype = core.default_dtype(),
    loss_scaling = engine.loss_scaling and engine.loss_scaling:state() or nil,
    products = products.state(),
    float8 = engine.float8 and json.array(engine.float8.paths) or nil,
  }
end

-- The save of a run that is under way, by trainer: { saving, step, passing, background, seconds (in which training has
-- stood still for it) }.
local under_way = setmetatable({}, { __mode = "k" })

--- Waits for the save under way -> its path; or nil, why it failed, the kind of failure, its step. Nothing where none
-- was under way. Collective.
function snapshot.finish(trainer)
  local entry = under_way[trainer]
  if not entry then return nil end
  local began = core.now()
  local path, message, kind = entry.saving:finish()
  under_way[trainer] = nil
  if trainer.happened and not entry.passing then
    trainer.happened { event = "checkpoint", step = entry.step, seconds = entry.seconds + core.now() - began,
      background = entry.background, failed = message }
  end
  if path then return path end
  if trainer.states.checkpoint_step == entry.step then
    trainer.states.checkpoint, trainer.states.checkpoint_step = nil, nil
  end
  return nil, message, kind, entry.step
end

--- Whether the save under way is none that the run could be said to have.
function snapshot.is_passing(trainer) return under_way[trainer] ~= nil and under_way[trainer].passing == true end

--- Whether no save is under way that a rank still writes. Collective.
function snapshot.is_over(trainer)
  local entry = under_way[trainer]
  return not entry or not require("ganymede.job.ranks").any(not entry.saving:is_over())
end

--- For a run that ends with an error, instead of finish: waits for no other rank. A single rank completes what it
-- began to save; one of several gives it at most a second, since the job must end.
function snapshot.leave(trainer)
  local entry = under_way[trainer]
  if not entry then return end
  under_way[trainer] = nil
  entry.saving:leave(core.world() == 1 and 600 or 1)
end

--- Begins to write a checkpoint of the trainer's run into directory; snapshot.finish tells how it went. The save before
-- must have been finished. opt: keep_last, spared, background, apart, as checkpoint.start has them; passing: whether it
-- is for others, and no checkpoint that this run could be said to have -> is it written in the background?, the save
-- itself. Collective.
function snapshot.start(trainer, directory, opt)
  local checkpoint, began = require "ganymede.checkpoint", core.now()
  products.join() -- a run that is resumed has the same ways from here on
  core.scope_open()
  local ok, result = pcall(function()
    return checkpoint.start(directory, { tensors = with_missed(trainer), meta = snapshot.meta(trainer) },
      { keep_last = opt.keep_last, spared = opt.spared, background = opt.background, apart = opt.apart })
  end)
  core.scope_close()
  if not ok then error(result, 0) end
  under_way[trainer] = { saving = result, step = trainer.step, passing = opt.passing,
    background = result.background == true, seconds = core.now() - began }
  if not opt.passing then trainer.states.checkpoint, trainer.states.checkpoint_step = result.path, trainer.step end
  return result.background == true, result
end

--- Writes a checkpoint of the trainer's run into directory, and waits for it -> its path. opt.keep_last: how many stay.
-- Collective.
function snapshot.save(trainer, directory, opt)
  snapshot.finish(trainer)
  snapshot.start(trainer, directory, { keep_last = opt and opt.keep_last, background = false })
  local path, message, kind = snapshot.finish(trainer)
  if not path then require("ganymede.checkpoint").raise(message, kind) end
  return path
end

-- ---------------------------------------------------------------- the way back

local function refuse(path, fmt, ...) failure(2, "cannot resume from %s: " .. fmt, path, ...) end

local function same(path, what, here, there)
  if here ~= there then refuse(path, "%s is %s here, %s in the checkpoint", what, tostring(here), tostring(there)) end
end

local function is_count(v) return type(v) == "number" and v >= 0 and v < 2 ^ 53 and v == math.floor(v) end

-- What a field of meta must be; a name with ? may be missing. meta is what a file says, which nobody need have written.
local shape = {
  format = is_count, step = is_count, dtype = "string",
  trainer = { step = is_count, ["steps_per_epoch?"] = is_count, ["samples_per_step?"] = is_count,
    ["samples?"] = is_count, ["samples_of_dataset?"] = is_count, ["ended_at?"] = is_count, ["tested_at?"] = is_count,
    ["epoch?"] = is_count, ["step_of_epoch?"] = is_count, ["batching?"] = "table",
    metrics = { ["train?"] = "table", ["test?"] = "table" }, ["hooks?"] = "table" },
  optimizer = { type = "string", ["steps?"] = "number", ["lr?"] = "number" },
  ["lr_scheduler?"] = { type = "string", position = is_count, ["options?"] = "table", ["base?"] = "number" },
  rng = { seed = is_count, step = is_count },
  ["loss_scaling?"] = "table", ["products?"] = "table", ["float8?"] = "table",
}

local function fits(value, wanted)
  if type(wanted) == "function" then return wanted(value) end
  return type(value) == (type(wanted) == "table" and "table" or wanted)
end

local function check_shape(path, value, wanted, at)
  for name, kind in pairs(wanted) do
    local key, optional = name:gsub("%?$", "")
    local field = value[key]
    if not (field == nil and optional > 0) then
      if not fits(field, kind) then failure(5, "%s: %s.%s is missing or of a wrong kind", path, at, key) end
      if type(kind) == "table" then check_shape(path, field, kind, at .. "." .. key) end
    end
  end
end

local function check_meta(trainer, meta, path)
  local engine, scheduler = trainer.engine, scheduler_of(trainer)
  if type(meta) ~= "table" or meta.kind ~= "ganymede training" then
    failure(5, "%s is a checkpoint, but not of a training run", path)
  end
  check_shape(path, meta, shape, "meta")
  if meta.step ~= meta.trainer.step then failure(5, "%s: meta.step is not meta.trainer.step", path) end
  same(path, "the format of checkpoints", snapshot.format, meta.format)
  same(path, "the optimizer", engine.optimizer.name, meta.optimizer.type)
  same(path, "the seed", core.seed(), meta.rng.seed)
  same(path, "dtype", core.default_dtype(), meta.dtype)
  same(path, "the learning-rate scheduler", scheduler and scheduler.name or "none",
    meta.lr_scheduler and meta.lr_scheduler.type or "none")
  local batching = trainer.batching
  same(path, "the number of steps an epoch", batching and batching.usual or trainer.steps_per_epoch,
    meta.trainer.steps_per_epoch)
  local here, there = trainer.samples_of_dataset, meta.trainer.samples_of_dataset -- nil: nobody knows
  if here and there and here ~= there then
    refuse(path, "the training data have %d samples here, %d in the checkpoint, and so another order; init_from begins "
      .. "a run of its own with the weights", here, there)
  end
  same(path, "the number of samples a step", trainer.samples_per_step, meta.trainer.samples_per_step)
  if meta.trainer.batching and not batching then
    refuse(path, "the batch of that run has changed, and this recipe has no adaptive_batch")
  end
end

-- Why a name of the checkpoint is not expected.
local function unknown_reason(name)
  if name:match "^average%d*/" then return "no hook takes '%s'; it was saved with the hook EMA" end
  return "this model has no '%s'"
end

-- expected: the names on all stages. known_scales says why a scale is not taken.
local function check_tensors(ck, wanted, expected, path)
  local has_state = {}
  for name in pairs(expected) do has_state[name:match "^optimizer/[^/]+/(.+)$" or ""] = true end
  for _, entry in ipairs(wanted) do
    if not ck:has(entry.name) then refuse(path, "it has no '%s'", entry.name) end
    local info = ck:info(entry.name)
    local here = table.concat(entry.tensor:shape(), ", ")
    same(path, ("the shape of '%s'"):format(entry.name), here, table.concat(info.shape, ", "))
    same(path, ("the dtype of '%s'"):format(entry.name), entry.tensor:dtype(), info.dtype)
  end
  local names = ck:names()
  for _, name in ipairs(names) do
    local counted = has_state[misser(name)]
    if not (expected[name] or counted or is_scale(name)) then refuse(path, unknown_reason(name), name) end
    if counted then same(path, ("the shape of '%s'"):format(name), "1", table.concat(ck:info(name).shape, ", ")) end
  end
end

-- Options of the scheduler that are not what they were: they are used, and said.
local function say_changes(trainer, state)
  local scheduler = scheduler_of(trainer)
  if not scheduler then return end
  local now, before = scheduler:state(), json.plain(state)
  local function differs(name, a, b)
    if options.literal(a) ~= options.literal(b) then
      trainer:say(("resume: %s of %s was %s, is %s now"):format(name, now.type, options.literal(b),
        options.literal(a)))
    end
  end
  differs("base rate", now.base, before.base)
  for _, name in ipairs(options.sorted_keys(now.options)) do
    differs(name, now.options[name], before.options and before.options[name])
  end
end

-- Of this rank's parameters: list of { name, parameter, tensor (to be read) }.
local function missed_of(ck, wanted)
  local out, own = {}, {}
  for _, entry in ipairs(wanted) do own[entry.name:match "^optimizer/[^/]+/(.+)$" or ""] = true end
  for _, name in ipairs(ck:names()) do
    local parameter = misser(name)
    if parameter and own[parameter] then
      out[#out + 1] = { name = name, parameter = parameter, tensor = tensor.zeros({ 1 }, { dtype = "f64" }) }
    end
  end
  return out
end

local function load_missed(ck, optimizer, wanted, path)
  local numbers = {}
  for _, entry in ipairs(missed_of(ck, wanted)) do
    local number = ck:read_into(entry.name, entry.tensor):item()
    if not is_count(number) then failure(5, "%s: '%s' is no number of updates", path, entry.name) end
    numbers[entry.parameter] = number
  end
  optimizer:set_missed(numbers)
end

-- Brings the files here that this rank reads -> the checkpoint, with them.
local function fetched(ck, wanted, fetch)
  local all = missed_of(ck, wanted)
  for _, entry in ipairs(wanted) do all[#all + 1] = entry end
  fetch(ck:files(all))
  ck:close()
  return require("ganymede.checkpoint").open(ck.path, { partly = true })
end

local function take_up(trainer, meta)
  local engine, scheduler = trainer.engine, scheduler_of(trainer)
  products.load(meta.products)
  engine:set_steps(meta.rng.step, engine.optimizer.counts_updates and meta.optimizer.steps)
  if engine.loss_scaling and meta.loss_scaling then engine.loss_scaling:load_state(meta.loss_scaling) end
  if scheduler then
    say_changes(trainer, meta.lr_scheduler)
    scheduler:seek(meta.lr_scheduler.position)
  end
  trainer:load_state(meta.trainer)
end

-- The hooks whose tensors the checkpoint holds, and those that were not there when it was saved.
local function known_hooks(trainer, ck)
  local known, new = {}, {}
  for _, own in ipairs(of_hooks(trainer)) do
    local first = own.entries[1]
    local list = (not first or ck:has(first.name)) and known or new
    list[#list + 1] = own
  end
  return known, new
end

-- What a checkpoint says of the layers that keep scales, in words that are compared.
local function layers_of(paths) return table.concat(paths, "\n") end

-- The scales that are taken from the checkpoint: list of entries; and why there are none, if one side has some.
local function known_scales(trainer, ck)
  local kept, saved = trainer.engine.float8, type(ck.meta) == "table" and ck.meta.float8 or nil
  if not kept then
    return {}, saved and "the checkpoint's scales of float8 are not used: layers here do not keep scales"
  end
  local entries, why = kept:tensors(), nil
  local text = "no scales"
  if type(saved) == "table" then text = pcall(layers_of, saved) and layers_of(saved) or "none that can be read" end
  if text ~= layers_of(kept.paths) then why = saved and "of other layers" or "none" end
  for _, entry in ipairs(why and {} or entries) do
    local info = ck:info(entry.name)
    local same_shape = info and table.concat(info.shape, " ") == table.concat(entry.tensor:shape(), " ")
    if not same_shape then why = "of another length" end
  end
  if not why then return entries end
  return {}, ("the checkpoint's histories of float8: %s; they begin empty"):format(why)
end

local function apply(trainer, ck, wanted, path, new_hooks)
  for _, entry in ipairs(wanted) do
    ck:read_into(entry.name, entry.tensor)
    if entry.store then entry.store() end
  end
  for _, own in ipairs(new_hooks) do
    own.hook:begin_anew()
    trainer:say(("resume: the checkpoint has no tensors of %s, which begins with what was loaded"):format(
      own.hook.name))
  end
  load_missed(ck, trainer.engine.optimizer, wanted, path)
  local ok, err = failure.try(take_up, trainer, ck.meta)
  if ok then return end
  if failure.is(err) then error(err, 0) end
  failure(5, "%s: meta holds a state that cannot be taken up: %s", path, failure.text(err))
end

--- Puts the run that the checkpoint at path holds into the trainer, which must be prepared for the same
-- model, data and optimizer. Raises failure(2) where they differ, failure(5) where the file is damaged. fetch: the
-- checkpoint is one of joined parts; fetch(set) brings the files of these ranks to this machine. Collective.
function snapshot.restore(trainer, path, fetch)
  local checkpoint = require "ganymede.checkpoint"
  local ck = checkpoint.open(path, { partly = fetch ~= nil })
  core.scope_open()
  local ok, err = pcall(function()
    local hooks, new_hooks = known_hooks(trainer, ck)
    local scales, why = known_scales(trainer, ck)
    if why then trainer:say("resume: " .. why) end
    local wanted = tensors_of(trainer, hooks, scales)
    local expected = checkpoint.names_on_stages(wanted)
    checkpoint.agree(pcall(function()
      check_meta(trainer, ck.meta, path)
      check_tensors(ck, wanted, expected, path)
    end))
    if fetch then ck = fetched(ck, wanted, fetch) end
    apply(trainer, ck, wanted, path, new_hooks)
  end)
  core.scope_close()
  ck:close()
  if not ok then error(err, 0) end
  return trainer
end

--- Does once what a restore does, with the tensors of this run in place of others, so that a restore soon after takes
-- no longer than it must: code is loaded and compiled, memory touched, ranks connected. folder: which this makes, and
-- removes again, also where it has no room. Collective.
function snapshot.rehearse(trainer, folder)
  local checkpoint = require "ganymede.checkpoint"
  core.scope_open()
  local ok, err = pcall(function()
    local ck = checkpoint.open(checkpoint.save(folder, { tensors = with_missed(trainer), meta = { step = 0 } }))
    local wanted = tensors_of(trainer)
    check_tensors(ck, wanted, checkpoint.names_on_stages(wanted), ck.path)
    for _, entry in ipairs(wanted) do
      ck:read_into(entry.name, entry.tensor)
      if entry.store then entry.store() end
    end
    ck:close()
  end)
  core.scope_close()
  if core.rank() == 0 then core.apart_remove(folder) end
  if not ok then error(err, 0) end
end

return snapshot
