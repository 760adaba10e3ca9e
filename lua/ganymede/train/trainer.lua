--- The trainer runs epochs of an engine's steps, and evaluation, with hooks around both.
--
--     local trainer = gm.trainer(engine)
--     trainer:fit { train_dataloader = train, epochs = 2, test_dataloader = test, hooks = { gm.hooks.LossHook() } }
--     trainer.metrics.test.accuracy
--
-- Each step runs in a scope, and so does each hook call. After each update Lua's collector makes one bounded step, at
-- the same place on every rank. All ranks run the same hooks at the same points, so hooks may communicate. Only rank 0
-- prints what trainer:say is given. The trap: `step` counts the optimizer steps of the whole run, and `step_of_epoch`
-- those of this epoch; both are the number of steps already made.
--
-- A hook may read epoch (that is made, from 0), step, step_of_epoch, samples, tokens, seconds, losses (by step),
-- metrics.train, metrics.test, states (what hooks leave for each other, such as lr), hooks, engine (its model,
-- optimizer.lr, grad_norm) and total_steps(). It may define these moments, and hooks/base.lua says what each receives:
-- after_hook_is_attached, before_train, before_train_epoch, before_train_iter, after_train_iter, after_train_loss,
-- before_test, before_test_epoch, before_test_iter, after_test_iter, after_test_epoch, after_test, after_train_epoch,
-- after_train, after_failure.
--
-- On a GPU the numbers of a step (loss, gradient norm) are known when the next step has been queued. Then
-- after_train_loss of the hooks is called with them. A hook whose after_train_iter needs the loss makes every step wait
-- for the device (hooks/base.lua); trainer:settle() waits once. On a CPU nothing is late.
-- @module ganymede.train.trainer
local at_path = require "ganymede.tensor.at_path"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local hook_states = require "ganymede.hooks.states"
local hooks_base = require "ganymede.hooks.base"
local idle_axes = require "ganymede.train.idle_axes"
local join = require "ganymede.data.join"
local lent = require "ganymede.train.lent"
local live = require "ganymede.job.live"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local StepLoader = require "ganymede.train.step_loader"
local tensor = require "ganymede.tensor"

local no_grad, scope = tensor.no_grad, tensor.scope

local Trainer = {}
Trainer.__index = Trainer

-- The KB of the Lua heap that the collector may visit after each step: this takes less than 0.1 ms, and is more than
-- the Lua code of a step leaves behind.
Trainer.collector_step = 64

-- engine: the engine that gm.initialize returned, or { engine = ... }.
local new = signature.constructor("engine table", function(_, engine)
  if type(engine) == "table" and getmetatable(engine) == nil then
    engine = options.check("Trainer", { engine = { type = "table",
      doc = "the engine that gm.initialize returned" } }, engine, 2).engine
  end
  return setmetatable({ engine = engine, hooks = {}, epoch = 0, step = 0, step_of_epoch = 0, states = {},
                        metrics = { train = {}, test = {} }, losses = {}, samples = 0, samples_before = 0,
                        targets = 0, tokens = 0,
                        seconds = 0, pending = {} }, Trainer)
end)

--- Prints one line for the user, on rank 0, to trainer.sink(text) or, by default, to standard error.
function Trainer:say(text)
  if not ranks.is_first() then return end
  if self.sink then return self.sink(text) end
  io.stderr:write(text, "\n")
end

--- Returns the number of steps of the whole run; nil if the loader does not know its length.
function Trainer:total_steps()
  local by_epochs = self.max_epochs and self.steps_per_epoch and self.max_epochs * self.steps_per_epoch
  if self.batching then by_epochs = self.batching:total_steps() end
  return by_epochs and self.max_steps and math.min(by_epochs, self.max_steps) or by_epochs or self.max_steps
end

-- ---------------------------------------------------------------- hooks

local function sorted(hooks)
  local order, out = {}, {}
  for i, hook in ipairs(hooks) do
    out[i] = hook
    order[hook] = i
  end
  table.sort(out, function(a, b)
    local pa, pb = a.priority or 10, b.priority or 10
    if pa ~= pb then return pa < pb end
    return order[a] < order[b]
  end)
  return out
end

-- Calls fn of a hook on a rank that has no output, because another stage of the pipeline has it. An error says so.
local function without_output(fn, hook, ...)
  local ok, err = failure.try(fn, hook, ...)
  if ok then return end
  error(failure.changed(err, function(text)
    return text .. "\n  output is nil on this rank: another stage of the pipeline has it. Write `if output then ... "
      .. "end` around the code that reads it; a MetricHook sums a measure of your own over the ranks"
  end), 0)
end

-- Calls one point of one hook.
local function call_hook(self, hook, point, output, ...)
  local fn = hook[point]
  if not fn then return end
  if output == nil and (point == "after_train_iter" and self.keep_output or point == "after_test_iter") then
    return scope(no_grad, without_output, fn, hook, self, output, ...)
  end
  return scope(no_grad, fn, hook, self, output, ...)
end

--- Calls one point of all hooks.
function Trainer:call(point, ...)
  for _, hook in ipairs(self.hooks) do call_hook(self, hook, point, ...) end
end

-- Training has ended with an error: lets hooks end what they have begun. A mistake in one is said, and hides no other.
local function tell_failure(self)
  for _, hook in ipairs(self.hooks) do
    local ok, err = pcall(call_hook, self, hook, "after_failure")
    if not ok then log.warn("hook %s: after_failure: %s", hook.name or "?", failure.text(err)) end
  end
end

-- Whether a step waits for its numbers. On a CPU they are known at once, and waiting costs nothing.
local function loss_needed(self)
  if not self.engine.ahead then return true end
  for _, hook in ipairs(self.hooks) do
    if hook.after_train_iter and hook.needs_loss ~= false then return true end
  end
  return false
end

--- Attaches hooks: objects, classes, or { type = NAME, and options }. They replace those of an earlier call.
function Trainer:attach(hooks)
  local built, seen = {}, {}
  for i, hook in ipairs(hooks or {}) do
    local object = registry.hooks:build(hook)
    built[i] = hooks_base.check(object)
    if seen[object] then error("the same hook object is given twice", 2) end
    seen[object] = true
  end
  hooks_base.refuse_places(built)
  self.hooks = sorted(built)
  self:call "after_hook_is_attached"
end

-- Whether any hook uses the outputs of a step.
local function output_needed(self)
  for _, hook in ipairs(self.hooks) do
    if hook.after_train_iter and hook.needs_output ~= false then return true end
  end
  return false
end

-- What the steps do for the hooks.
local function settle_needs(self) self.keep_output, self.waits = output_needed(self), loss_needed(self) end

--- Adds a hook (an object, a class, or { type = NAME, and options }) to a run that goes on, between two steps; all
-- ranks must. The points after_hook_is_attached and before_train of it are called. Returns the hook.
function Trainer:add_hook(hook)
  local object = hooks_base.check(registry.hooks:build(hook))
  for _, other in ipairs(self.hooks) do
    if other == object then error("this hook is there already", 2) end
  end
  self:settle()
  local list = { unpack(self.hooks) }
  list[#list + 1] = object
  hooks_base.refuse_places(list)
  self.hooks = sorted(list)
  settle_needs(self)
  call_hook(self, object, "after_hook_is_attached")
  call_hook(self, object, "before_train")
  return object
end

--- Removes the hooks of that name, between two steps; all ranks must. The point after_train of each is called, so that
-- it ends what it has begun. Returns how many they were. Raises an error if there is none.
function Trainer:remove_hook(name)
  local list, removed = hooks_base.without(self.hooks, name)
  self:settle()
  self.hooks = list
  settle_needs(self)
  for _, hook in ipairs(removed) do call_hook(self, hook, "after_train") end
  return #removed
end

-- ---------------------------------------------------------------- training

-- Returns what is known of a step when it has been queued; fill_in adds its numbers.
local function new_record(self, batches)
  self.step, self.step_of_epoch = self.step + 1, self.step_of_epoch + 1
  for _, name in ipairs { "samples", "tokens" } do self[name] = self[name] + batches[name] end
  return { step = self.step, epoch = self.epoch, samples = batches.samples, tokens = batches.tokens,
           total_samples = self.samples_before + self.samples, targets = batches.targets }
end

-- Adds the numbers of a step, as the engine reports them.
local function fill_in(self, record, numbers)
  record.loss, record.gradient_norm, record.lr = numbers.loss, numbers.gradient_norm, numbers.lr
  record.not_finite, record.targets = numbers.not_finite, record.targets or numbers.targets
  self.targets = self.targets + record.targets
  self.losses[#self.losses + 1] = record.loss
end

-- Calls both points of a step that waits for its numbers, hook by hook.
local function call_hooks(self, record, output, label)
  for _, hook in ipairs(self.hooks) do
    call_hook(self, hook, "after_train_iter", output, label, record.loss)
    call_hook(self, hook, "after_train_loss", record)
  end
end

-- Calls what has waited for the numbers of steps that are known by now.
local function tell_known(self)
  while self.pending[1] and self.pending[1].loss do
    local record = table.remove(self.pending, 1)
    self:call("after_train_loss", record)
    if self.on_step then self.on_step(self, record) end
  end
end

-- Calls on_step, once, for a step that has waited for its numbers.
local function tell_step(self)
  local record = self.untold
  self.untold = nil
  if record and self.on_step then self.on_step(self, record) end
end

--- Waits until the numbers of all steps are known, and gives them to the hooks and to on_step.
function Trainer:settle()
  self.engine:settle()
  tell_known(self)
  tell_step(self)
end

-- Runs a step and its hooks.
local function run_step(self, batches)
  local record, early
  local outputs, labels = self.engine:train_step(batches, self.keep_output, function(numbers)
    if record then fill_in(self, record, numbers) else early = numbers end
  end)
  record = new_record(self, batches)
  if early then fill_in(self, record, early) end
  if self.waits then self.engine:settle() end
  record.lr = record.lr or self.engine.optimizer.lr
  self.last = record
  local output, label
  if self.keep_output then output, label = no_grad(join, outputs), no_grad(join, labels) end
  if self.waits then
    self.untold = record
    call_hooks(self, record, output, label)
    return
  end
  table.insert(self.pending, record)
  self:call("after_train_iter", output, label)
  tell_known(self)
end

-- Calls the point before a step, at a path of its own: what hooks draw there are other numbers than those of the model.
local function begin_step(self)
  self.engine:restart_draws()
  at_path("hooks", self.call, self, "before_train_iter")
end

-- Runs one step: its batches, the update, the hooks. Returns whether there was a batch.
local function train_step(self, loader)
  begin_step(self)
  local started = core.now()
  local batches = loader:next_step(true)
  if not batches then return false end
  run_step(self, batches)
  self.seconds = self.seconds + core.now() - started
  tell_step(self)
  return true
end

-- Whether there is another step in this epoch. For a loader of unknown length only reading can tell.
local function more_in_epoch(self) return not self.steps_per_epoch or self.step_of_epoch < self.steps_per_epoch end

-- Whether any rank was asked to stop. Several ranks ask in the middle of a step (engine:step), in the sum of the loss.
local function stop_asked(self)
  if core.world() > 1 then return self.engine.stop_asked end
  return self.should_stop and self.should_stop()
end

local function finished(self)
  if stop_asked(self) then self.stopped = true end
  return self.stopped or self.ended or (self.max_steps and self.step >= self.max_steps) or false
end

--- Ends training after this step as if it had been the last one: evaluation and after_train follow. All ranks must call
-- it in the same step.
function Trainer:stop() self.ended = true end

-- Between two steps: what others see of the run, and what they ask.
local function at_border(self)
  if not self.told_idle then idle_axes.tell() end
  self.told_idle = true
  live.step(self.step, self.samples_before + self.samples, self.tokens)
  self.engine:serve_requests { engine = self.engine, trainer = self }
end

-- Calls the point at the end of an epoch, unless that was done before the run was resumed.
local function call_epoch_end(self)
  if self.ended_at == self.step then return end
  self.ended_at = self.step -- what a checkpoint that a hook saves now says
  self:call "after_train_epoch"
end

local function train_epoch(self, loader)
  loader:set_epoch(self.epoch)
  local before, begins = self.step, self.batching and self.batching:begin_epoch(loader) or 0
  if not self.batching then StepLoader.refuse_other(loader:length(), self.steps_per_epoch, self.epoch) end
  if self.step_of_epoch > begins then loader:seek(self.step_of_epoch - begins) end
  self:call "before_train_epoch"
  self.engine:train()
  self.exhausted = false
  while more_in_epoch(self) do
    self.exhausted = not scope(train_step, self, loader)
    if self.exhausted then break end
    collectgarbage("step", self.collector_step)
    at_border(self)
    if finished(self) then break end
  end
  if self.exhausted then StepLoader.refuse_short(self, loader, self.step - before) end
  self:settle()
  if not (self.stopped and more_in_epoch(self)) then call_epoch_end(self) end -- of a stopped one, when it goes on
end

-- Returns what fit was given, completed by what was given to gm.launch.
local function completed(self, given)
  local launched = self.engine.launched
  self.engine.has_trainer = true
  if not launched or type(given) ~= "table" then return given end
  local out = {}
  for key, value in pairs(given) do out[key] = value end
  if out.epochs == nil and out.max_steps == nil then out.epochs, out.max_steps = launched.epochs, launched.steps end
  if out.hooks == nil then out.hooks = hooks_base.of_config(launched) end
  if out.test_interval == nil then out.test_interval = launched.test_interval end
  self.lent = lent.lend(self)
  return self.lent and self.lent.over(out) or out
end

local fit_options = {
  train_dataloader = { type = "table",
    doc = "the loader of the batches to train on, from gm.initialize or ganymede.data" },
  epochs = { type = "integer", min = 1, optional = true, doc = "the number of epochs of the whole run" },
  max_steps = { type = "integer", min = 1, optional = true, doc = "the number of optimizer steps of the whole run" },
  test_dataloader = { type = "table", optional = true,
    doc = "the loader of the batches that are evaluated after epochs and at the end" },
  test_interval = { type = "integer", min = 1, default = 1, doc = "the number of epochs between two evaluations" },
  hooks = { type = "list", default = {}, doc = "the list of hooks" },
}

-- Returns the hooks given, and one that moves the scheduler if none of them does.
local function with_scheduler(self, hooks)
  local out, moved = {}, not self.engine.lr_scheduler
  for i, hook in ipairs(hooks) do
    out[i] = hook
    moved = moved or (type(hook) == "table" and (hook.type or hook.name) == "LRSchedulerHook")
  end
  if not moved then out[#out + 1] = { type = "LRSchedulerHook" } end
  return out
end

--- Does everything that fit does before its first step. A program that resumes calls it first.
function Trainer:prepare(given)
  local opt = options.check("fit", fit_options, completed(self, given), 2)
  local engine, pieces = self.engine, self.engine.schedule.num_microbatches
  if given.test_interval ~= nil and given.test_dataloader == nil then
    error("fit: test_interval has no effect without a test_dataloader; give one, or leave it out", 2)
  end
  if not opt.epochs and not opt.max_steps then error("fit: give epochs or max_steps", 2) end
  opt.train_dataloader = StepLoader.of(opt.train_dataloader, engine, engine.accumulation, pieces)
  opt.test_dataloader = StepLoader.of(opt.test_dataloader, nil, 1, pieces)
  local train = opt.train_dataloader
  self.samples_of_dataset = train.samples_of_dataset and train:samples_of_dataset() or nil
  self.opt, self.steps_per_epoch = opt, opt.train_dataloader:length()
  self.max_epochs, self.max_steps, self.stopped, self.ended = opt.epochs, opt.max_steps, false, false
  if self.steps_per_epoch == 0 then error("fit: the training loader has no batch", 2) end
  self:attach(with_scheduler(self, opt.hooks))
  settle_needs(self)
  return self
end

-- Computes the position of the run in its epochs from the number of steps already made. Where epochs have no known
-- length, a checkpoint has it; a loader that another fit has left goes on as it stands, with an epoch of its own.
local function seek(self)
  local per = self.steps_per_epoch
  if self.batching and self.batching.restored then return end
  if per and self.step > 0 then
    self.epoch, self.step_of_epoch = math.floor(self.step / per), self.step % per
  elseif not per and not self.restored and self.step_of_epoch > 0 then
    self.epoch, self.step_of_epoch = self.epoch + 1, 0
  end
end

local function end_epoch(self, opt)
  local last = finished(self) or (opt.epochs and self.epoch + 1 >= opt.epochs)
  local whole = not more_in_epoch(self)
  if not self.steps_per_epoch then whole = self.exhausted end
  local due = last or (whole and (self.epoch + 1) % opt.test_interval == 0)
  if whole then self.epoch, self.step_of_epoch = self.epoch + 1, 0 end
  if opt.test_dataloader and due and not self.stopped and self.tested_at ~= self.step then
    self:evaluate(opt.test_dataloader)
  end
  return last or self.ended -- evaluation may have ended it
end

-- Whether the run goes on at the end of an epoch with something that may be left to do there: a checkpoint is saved
-- before an evaluation, and a run may be stopped before it.
local function owes_end(self)
  local restored = self.restored
  self.restored = nil
  if not (restored and self.steps_per_epoch) or self.step_of_epoch > 0 or self.epoch == 0 then return false end
  return self.ended_at ~= self.step or self.tested_at ~= self.step
end

-- Does what was left to do at the end of an epoch -> whether training is over.
local function end_restored(self, opt)
  self.epoch, self.step_of_epoch = self.epoch - 1, self.steps_per_epoch
  self.engine:train()
  if self.ended_at ~= self.step then self:call "before_train_epoch" end
  call_epoch_end(self)
  return end_epoch(self, opt)
end

local function train(self, opt)
  seek(self)
  self:try_test(opt.train_dataloader, opt.test_dataloader)
  self:call "before_train"
  local over = finished(self) or (opt.epochs and self.epoch >= opt.epochs)
  if owes_end(self) then
    over = end_restored(self, opt) or over
  elseif over and opt.test_dataloader and not self.stopped then
    self:evaluate(opt.test_dataloader)
  end
  while not over do
    train_epoch(self, opt.train_dataloader)
    over = end_epoch(self, opt)
  end
  self:call "after_train"
end

--- Trains, as prepared or as given, until `epochs` or `max_steps`, whichever comes first; both count the whole run,
-- resumed parts included. It evaluates between epochs and calls hooks in the order of hooks/base.lua.
function Trainer:fit(given)
  if given then self:prepare(given) end
  local flags = self.lent
  self.lent = nil
  if flags and flags.context then -- it comes back here when it has done what the flags ask for
    flags.run(self, flags.context)
    return self.metrics
  end
  self.engine.stop_requested, self.engine.stop_asked = self.should_stop, false
  local well
  failure.protect(function() return well or self.left or tell_failure(self) end, function()
    train(self, self.opt)
    well = true
  end)
  return self.metrics
end

-- ---------------------------------------------------------------- checkpoints of the loop itself

--- Returns the position and the states of the hooks as plain values. It waits for the numbers of all steps, because
-- hooks use them, and so that metrics.jsonl has a step before its checkpoint exists.
function Trainer:state()
  self:settle()
  local batching = self.batching -- the numbers by which runs are compared are those of its first batch
  local counts = self.steps_per_epoch == nil -- otherwise the step says where in which epoch the run is
  return { step = self.step, steps_per_epoch = batching and batching.usual or self.steps_per_epoch,
           samples_per_step = self.samples_per_step, samples = self.samples_before + self.samples,
           samples_of_dataset = self.samples_of_dataset, hooks = hook_states.of(self.hooks), metrics = self.metrics,
           batching = batching and batching:state(), ended_at = self.ended_at, tested_at = self.tested_at,
           epoch = counts and self.epoch or nil, step_of_epoch = counts and self.step_of_epoch or nil }
end

--- Restores a state. New hooks keep their fresh state.
function Trainer:load_state(state)
  self.samples_before = state.samples or state.step * (self.samples_per_step or 0)
  self.restored, self.ended_at, self.tested_at = true, state.ended_at, state.tested_at
  self.step, self.metrics = state.step, { train = state.metrics.train or {}, test = state.metrics.test or {} }
  if not self.steps_per_epoch then
    self.epoch, self.step_of_epoch = state.epoch or 0, state.step_of_epoch or state.step
  end
  for _, title in ipairs(hook_states.load(self.hooks, state.hooks or {})) do
    self:say(("resume: the checkpoint has a state of %s, which is not used: no hook here takes it"):format(title))
  end
  if self.batching then self.batching:load_state(state.batching) end
end

require "ganymede.train.trainer_evaluation"(Trainer)
require("ganymede.train.adaptive_batch").install(Trainer)
Trainer.prepare, Trainer.evaluate = failure.blaming(Trainer.prepare), failure.blaming(Trainer.evaluate)
signature.export("trainer", Trainer, ":", nil, { fit = fit_options, prepare = fit_options })
return missing.guard("trainer", setmetatable({ name = "Trainer", Trainer = Trainer, fit_options = fit_options },
  { __call = new }))
