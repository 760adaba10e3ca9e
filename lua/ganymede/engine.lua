--- The engine: model, criterion and optimizer under the loop that every training run has.
--
--     local engine, train_loader, test_loader, lr_scheduler = gm.initialize { model = model, ... }
--     engine:train()
--     for x, y in train_loader:batches() do
--       engine:zero_grad()
--       local loss = engine:criterion(engine(x), y)
--       engine:backward(loss)
--       engine:step()
--       lr_scheduler:step()
--     end
--
-- A schedule runs any pipeline, and does on one rank what it does on many. Batches of the loader then come in
-- micro-batches, which the schedule knows how to take; at the end of an epoch there is no loss:
--
--     local batches = train_loader:batches()
--     repeat
--       engine:zero_grad()
--       local output, label, loss = engine:execute_schedule(batches)   -- forward and backward of one batch
--       if loss then engine:step() lr_scheduler:step() end
--     until not loss
--
-- A step is one update of the parameters, from gradient_accumulation batches: then zero_grad, step and
-- lr_scheduler:step act once every so many turns, and the loop stays as it is. A loss is divided by the
-- number of contributing targets of the whole step, so gradients of the batches add up to those of one
-- big batch. Random numbers depend on (seed, module, step, place of the sample in the step) only.
--
-- On several ranks each holds its part of every batch. Gradients are summed over the ranks while the last backward of
-- a step runs (host/parallel/reducer.h), or by the gradient handlers that were given, then by them alone; the
-- loss, the gradient norm and what follows from them are the same numbers on every rank.
--
-- Whether a step makes its update, and how far its gradients are clipped, is decided on the device
-- (host/optim/control.h). On a GPU the host queues a step and goes on: the step's numbers are known when the next one
-- has been queued. engine.last_loss, engine.grad_norm and engine.not_finite are of the last step; reading one of them
-- waits for it, as engine:settle() does. So a step that diverged ends the run one step late, with its own numbers, and
-- parameters that have not changed since.
-- The trap: with gradient_accumulation the batches must come from the loader that gm.initialize returned,
-- which alone knows that number; any other is refused.
-- @module ganymede.engine
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local log = require "ganymede.log"
local options = require "ganymede.options"
local ranks = require "ganymede.ranks"
local signature = require "ganymede.signature"
local stage_gradients = require "ganymede.stage_gradients"
local scope = require("ganymede.tensor").scope
local StepLoader = require "ganymede.step_loader"

local phase = ranks.phase

local Engine = {}

-- Fields that are known late: reading one waits for the device.
local late_fields = { last_loss = true, grad_norm = true, not_finite = true }

function Engine.__index(self, key)
  local method = rawget(Engine, key)
  if method ~= nil or not late_fields[key] then return method end
  self:settle()
  return self.known[key]
end

local function is_finite(x) return x == x and math.abs(x) < math.huge end

-- On the meta device there are shapes and no numbers.
local function has_values() return core.device().has_data end

--- Batches that the current step takes.
function Engine:batches_wanted() return self.announced and self.announced.batches or self.accumulation end

--- Training mode: dropout drops, losses divide by the targets of the step.
function Engine:train()
  self.model:train()
  self.training = true
  return self
end

--- Evaluation mode: losses divide by their own number of targets.
function Engine:eval()
  self.model:eval()
  self.training = false
  return self
end

--- What the coming step holds: its contributing targets (a list, one number a term, for a criterion of several
-- terms; numbers, or f64 scalars on the device, where nobody waits for them) and its number of batches, and of
-- micro-batches if it knows. The step loader calls it.
function Engine:announce(targets, batches, pieces)
  self.announced = { targets = targets, batches = batches, pieces = pieces }
  self.batch, self.samples, self.fresh = 0, 0, true -- also of a step that an error broke off
  self.control:forget()
end

-- Is the current step over without an update? So is one that has all its gradients; and after an error that the
-- program survived, in a line of the repl, ranks may have counted different batches of it.
local function given_up(self)
  return self.batch >= self:batches_wanted() or self.epoch ~= core.comm_epoch()
end

--- Forgets the gradients, at the first batch of a step.
function Engine:zero_grad()
  if self.batch > 0 and not given_up(self) then return end
  self.batch, self.epoch = 0, core.comm_epoch()
  self.optimizer:zero_grad()
  self.samples, self.fresh = 0, true
  self.control:forget()
end

--- Says that n samples come next, which follow `before` others of their batch (schedules call it for each micro-batch):
-- call counters of random numbers restart, and rows count from the samples seen in this step.
function Engine:begin_batch(before, n)
  self.fresh = false
  core.set_rng_step(self.steps_done)
  if self.training and self.optimizer.prepare then self.optimizer:prepare() end -- what kernels read stays as it is now
  core.begin_step()
  core.set_batch((self.training and self.samples or 0) + before, n)
  self.batch_samples = n
  auxiliary.clear()
end

-- What a loop without a schedule cannot do.
local function refuse_pipeline(self, call)
  if self.stage.stages > 1 then
    error(("%s with %d pipeline stages: each has a part of the model; let the schedule run the batch: "
      .. "engine:execute_schedule(iter), then engine:step()"):format(call, self.stage.stages), 3)
  end
end

--- engine(x, ...) runs the model.
function Engine:__call(x, ...)
  refuse_pipeline(self, "engine(x)")
  if self.fresh or not self.training then
    self:begin_batch(0, core.is_tensor(x) and x:dim() > 0 and x:size(1) or 1)
  end
  phase(self.training and "forward" or "evaluate")
  return self.model(x, ...)
end

-- Names the parameters of this stage whose gradients the ranks sum although no loss touched them, once.
local function report_unused(self)
  local names = {}
  for _, place in ipairs(core.reducer_unused(self.reducer)) do
    local name = self.names[place]
    if not self.shared_names[name] then names[#names + 1] = name end -- other stages may use it
  end
  if #names == 0 or self.unused_reported then return end
  self.unused_reported = true
  if not ranks.is_first_of_stage() then return end
  local n, where = #names, self.stage.stages > 1 and (" (stage %d)"):format(self.stage.rank) or ""
  local more = n > 8 and (" and %d more"):format(n - 8) or ""
  log.warn("no loss depends on %s%s%s: the ranks sum zeros for %s", table.concat(names, ", ", 1, math.min(n, 8)), more,
    where, n > 1 and "them" or "it")
end

-- After the last backward pass of a step: gradients become those of the whole batch on every rank.
local function finish_gradients(self)
  if self.reducer then
    core.reducer_finish(self.reducer)
    report_unused(self)
  end
  if #self.gradient_handlers == 0 then stage_gradients.sum(self.shared) end
end

-- backward(is it the last of the step?) of one batch of so many samples.
local function one_backward(self, samples, backward)
  local last = self.batch + 1 >= self:batches_wanted()
  if self.reducer and self.batch >= self:batches_wanted() then
    error("engine:backward once more after the gradients of this step were summed over the ranks: add the losses, "
      .. "or tell the number of backward passes (gradient_accumulation, engine:announce)", 3)
  end
  phase "backward"
  self.control:scale_losses(self.loss_scaling ~= nil) -- another engine of this program may have had the last word
  if self.reducer then core.reducer_arm(self.reducer, last) end
  backward(last)
  self.batch, self.samples, self.fresh = self.batch + 1, self.samples + samples, true
  if last then finish_gradients(self) end
end

-- This rank's term of a loss joins those of the step.
local function add_loss(self, loss)
  local part = ranks.part_tensor(loss)
  if part then self.control:add(part) end
end

--- Adds d loss / d parameter to the gradients.
function Engine:backward(loss)
  refuse_pipeline(self, "engine:backward(loss)")
  if has_values() then scope(add_loss, self, loss) end
  one_backward(self, self.batch_samples or 0, function() core.backward(loss) end)
end

--- The same from a tensor and its gradient, where there is no scalar loss.
function Engine:backward_by_grad(t, gradient)
  refuse_pipeline(self, "engine:backward_by_grad(t, gradient)")
  one_backward(self, self.batch_samples or 0, function() core.backward(t, gradient) end)
end

--- For schedules: run(final) makes all passes of a batch of so many samples and returns this rank's term of its loss.
-- final: it is the last batch of the step.
function Engine:run_batch(samples, run)
  one_backward(self, samples, function(final)
    local part = run(final)
    if has_values() then self.control:add(part) end
  end)
end

-- ---------------------------------------------------------------- the update

-- 0 times a number is 0 if it is finite and NaN if not: this finds either in one reduction.
local function all_finite(t)
  core.scope_open()
  local ok, sum = pcall(function() return core.is_tensor(t) and (t:detach() * 0):sum():item() end)
  core.scope_close()
  if not ok then failure.let_stops_pass(sum) end
  return ok and sum == 0
end

-- This stage's first parameter that is not finite, and the last whose gradient is not: backward came to it first.
local function bad_ones(self)
  local parameter, gradient = "", ""
  for _, item in ipairs(self.optimizer.items or {}) do
    if parameter == "" and not all_finite(item.tensor) then parameter = item.name end
    if not is_finite(core.grad_norm({ item.tensor }, 2)) then gradient = item.name end
  end
  return parameter, gradient
end

-- What was not finite first, as far as is known when the step is over. Parameters are older than the loss, and the loss
-- than gradients. The stages look at the same time, so that each communicates among its own ranks.
local function first_bad(self, loss)
  local parameter, gradient = bad_ones(self)
  if self.stage.stages > 1 then
    local parameters, gradients = ranks.texts(parameter), ranks.texts(gradient)
    parameter, gradient = "", ""
    for i, text in ipairs(parameters) do
      if parameter == "" then parameter = text end
      if gradients[i] ~= "" then gradient = gradients[i] end
    end
  end
  if parameter ~= "" then return parameter end
  if not is_finite(loss) then
    return "the loss; all parameters are finite, so that an op of the model or of the loss made it (log or sqrt of a "
      .. "negative number, a division by 0, an overflow), or the data did"
  end
  return gradient ~= "" and "the gradient of " .. gradient or "the norm of the gradients"
end

-- As if the step of entry, and those that were queued behind it and changed nothing, had not been.
local function take_back(self, entry)
  self.steps_done, self.pending = entry.step - 1, {}
  if entry.late then self.optimizer:set_steps(entry.updates) end
  self.control:resume()
end

-- On all ranks, which hold the same numbers.
local function diverged(self, entry, numbers)
  local queued, where = #self.pending, ""
  if entry.late then ranks.sum { 0 } end -- a rank whose kernels have refused something fails here: its words count
  take_back(self, entry)
  if queued > 0 then
    where = (" (in the gradients of step %d, which have taken their place)"):format(entry.step + queued)
  end
  ranks.fail(8, "diverged: loss %g, gradient norm %g in step %d; first that is not finite: %s%s\n"
    .. "  if it grew from step to step: try a smaller learning rate (it was %g), a warm-up, or clip_grad_norm = 1",
    numbers.loss, numbers.norm, entry.step, first_bad(self, numbers.loss), where, entry.lr)
end

--- p-norm of all gradients, of all stages, without the loss scale; the same bits on every rank. Collective.
function Engine:gradient_norm(p)
  local norm = stage_gradients.norm(self.counted, p)
  if not self.loss_scaling then return norm end
  self:settle()
  return norm / (self.batch > 0 and self.loss_scaling.scale or self.loss_scaling.carried)
end

local function end_step(self)
  self.steps_done = self.steps_done + 1
  for _, m in ipairs(self.model:modules()) do
    if m.after_update and m:is_present() then m:after_update() end
  end
  self.batch, self.announced, self.fresh = 0, nil, true
  phase "other"
end

--- Called with the engine and the step's numbers ({ step, loss, gradient_norm, lr, samples }) after every update, in
-- the order of steps, when it is set: the statistics of programs without a trainer.
Engine.on_update = nil

-- What the ranks must know together before the decision, in one small sum: the loss, and whether one was asked to stop.
local function agree(self)
  local asked = self.stop_requested and self.stop_requested() or false
  if core.world() > 1 then
    core.comm_all_reduce(self.control:loss(asked), core.comm_group(), "sum")
  else
    self.stop_asked = asked
  end
end

-- What a loss or gradient that is not finite means to step_control.
local on_not_finite = { skip = 1, warn = 2 }

-- Is there an update? Decided on the device, from the loss and the norm of the gradients, which is worked out there,
-- too: the 2-norm of a stage that has the whole model; others pass through the host, which waits.
local function decide(self)
  local measured = self.counted
  local rule = { max_norm = self.clip_grad_norm or 0, not_finite = on_not_finite[self.on_not_finite] or 0 }
  if self.norm_type ~= 2 or self.stage.stages > 1 then measured = stage_gradients.norm(measured, self.norm_type) end
  if self.loss_scaling then self.loss_scaling:fill(rule) end
  self.control:decide(measured, rule)
end

-- What the device decided in a step: counted, or the end of the run.
local function judge(self, entry, numbers)
  self.stop_asked = self.stop_asked or numbers.asked > 0
  if self.optimizer.set_skipped then self.optimizer:set_skipped(numbers.skipped) end
  if numbers.cause == 1 then self.known.not_finite = self.known.not_finite + 1 end
  if numbers.halted == 0 then return end
  if numbers.cause == 1 then diverged(self, entry, numbers) end
  take_back(self, entry) -- a kernel has refused something: raises what
  error(("step %d: the device refused something in a kernel, and does not say what"):format(entry.step), 0)
end

local function tell(self, entry, numbers)
  entry.loss, entry.gradient_norm, entry.targets = numbers.loss, numbers.norm, numbers.targets
  entry.not_finite = numbers.cause == 1
  self.known.last_loss, self.known.grad_norm = numbers.loss, numbers.norm
  if self.loss_scaling then self.loss_scaling:tell(entry.step, numbers) end
  if Engine.on_update then Engine.on_update(self, entry) end
  if entry.told then entry.told(entry) end
end

--- Waits until the numbers of all steps are known (but those of the last `keep` steps), oldest first. Raises what a
-- step that diverged raises.
function Engine:settle(keep)
  local pending = self.pending
  while #pending > (keep or 0) do
    local numbers = self.control:take(true)
    local entry = table.remove(pending, 1)
    judge(self, entry, numbers)
    tell(self, entry, numbers)
  end
end

-- The optimizer reads the decision where it was made, or if it cannot, is called with the factor that it holds.
local function update(self, numbers)
  local optimizer = self.optimizer
  if optimizer.takes_control then
    optimizer:step { lr = optimizer.lr, control = self.control }
  elseif numbers.go ~= 0 or not has_values() then
    optimizer:step { lr = optimizer.lr, clip = has_values() and numbers.factor or 1 }
  end
end

local function new_entry(self, told)
  return { step = self.steps_done + 1, lr = self.optimizer.lr, samples = self.samples, told = told,
           updates = self.optimizer:steps() }
end

-- Where the numbers are there at once, they are looked at before anything changes.
local function step_at_once(self, entry)
  self.control:send()
  local numbers = self.control:take(true)
  judge(self, entry, numbers)
  update(self, numbers)
  end_step(self)
  tell(self, entry, numbers)
end

-- Where they are not, the update has been queued, and the step before is settled while the device works.
local function step_ahead(self, entry)
  self.control:send()
  end_step(self)
  entry.late = true
  table.insert(self.pending, entry)
  self:settle(1)
end

-- Settings of gm.launch that a trainer takes up, and there is none.
local function refuse_untaken(self)
  for _, name in ipairs(require("ganymede.schema").trainer) do
    local value = self.launched[name]
    if value ~= nil and not (type(value) == "table" and next(value) == nil) then
      failure(2, "gm.launch was given %s, which a trainer takes up, and this loop has none: train with "
        .. "gm.trainer(engine):fit { ... }, or leave %s away", name, name)
    end
  end
end

--- One update, if all batches of the step have been through backward -> true; else nothing -> false. told(numbers),
-- where it is given, is called when the step's numbers are known ({ step, loss, gradient_norm, lr, samples, targets,
-- not_finite }): on a GPU at the latest when the next step has been queued, elsewhere at once.
-- A loss or gradient that is not finite changes no parameter and ends the run with exit status 8, unless
-- engine.on_not_finite is "skip" (no parameter changes, the step counts) or "warn" (nothing special happens).
function Engine:step(told)
  if self.batch == 0 then error("engine:step() without engine:backward(loss)", 2) end
  if self.launched and not self.has_trainer then refuse_untaken(self) end
  self.updated = self.batch >= self:batches_wanted()
  if not self.updated then return false end
  phase "update"
  for _, handler in ipairs(self.gradient_handlers) do handler:handle_gradient(self) end
  agree(self)
  local entry = new_entry(self, told)
  if self.late then
    self:queue_update()
    step_ahead(self, entry)
  else
    decide(self)
    step_at_once(self, entry)
  end
  return true
end

--- For ganymede.graph: the decision and the update of a step whose gradients are there. Queued, and not counted.
function Engine:queue_update()
  phase "update"
  decide(self)
  update(self)
end

--- For ganymede.graph: counts a step of so many samples that a graph has queued; what step() does beside.
function Engine:count_step(samples, told)
  self.samples, self.updated = samples, true
  agree(self)
  local entry = new_entry(self, told)
  self.optimizer:set_steps(entry.updates + 1)
  step_ahead(self, entry)
end

--- Sets the number of steps made so far, and of updates, where some steps were left out: part of resuming.
function Engine:set_steps(n, updates)
  self.steps_done = n
  self.optimizer:set_steps(updates or n)
end

-- ---------------------------------------------------------------- a whole step at once

--- Runs the next batch of iter (a function that returns x, y, or nil at the end) as the engine's schedule says:
-- forward and, unless opt.forward_only, backward -> output, label, loss; nothing at the end. The step is the caller's.
-- loss: a scalar tensor, which opt.return_loss = false spares; opt.return_output_label = false keeps neither of the
-- others. Of a pipeline, output is nil on all ranks but those of the stage that holds the last part; opt.pieces gives
-- output and label as lists of the micro-batches' (ganymede.micro_batches), and their number as a fourth result.
function Engine:execute_schedule(iter, opt)
  return self.schedule:forward_backward_step(self, iter, options.check("execute_schedule", self.run_options, opt, 2))
end

--- Says to ganymede.ranks which stage's copies count: the one that has this engine's output. For schedules.
function Engine:set_counting() ranks.set_output_stage(self.output_stage) end

Engine.run_options = {
  forward_only = { type = "boolean", default = false, doc = "no backward" },
  return_loss = { type = "boolean", default = true, doc = "return the loss? forward only: compute it?" },
  return_output_label = { type = "boolean", default = true, doc = "return output and label?" },
  pieces = { type = "boolean", default = false, doc = "return them as lists of micro-batches, not joined?" },
  inputs_only = { type = "boolean", default = false,
    doc = "does iter give inputs of the model itself, for which data_process_func has nothing to do?" },
}

--- An iterator over the batches of a step from StepLoader:next_step(), for execute_schedule.
function Engine.iterate(step)
  local at = 0
  return function()
    at = at + 1
    if step[at] then return step[at][1], step[at][2] end
  end
end

local function one_batch(self, batches, opt)
  local output, label = self:execute_schedule(batches, opt)
  return output, label
end

--- Forward and backward of all batches of a step from StepLoader:next_step(), each in a scope of its own
-- -> with keep_output, lists of outputs and labels (micro-batches as ganymede.join takes them); engine:step() then has
-- the loss as engine.last_loss.
function Engine:forward_backward(step, keep_output)
  self:zero_grad()
  local outputs, labels, batches = {}, {}, Engine.iterate(step)
  local opt = { return_output_label = keep_output or false, return_loss = false, pieces = true }
  for i = 1, #step do outputs[i], labels[i] = scope(one_batch, self, batches, opt) end
  return outputs, labels
end

--- One step of a training loop, from StepLoader:next_step(true): announced, forward, backward and update, or a replay
-- of its graph (ganymede.graph) -> outputs and labels as forward_backward. told: as step has it.
function Engine:train_step(step, keep_output, told)
  if self.graph then return self.graph:run(step, keep_output, told) end
  StepLoader.announce(self, step)
  local outputs, labels = self:forward_backward(step, keep_output)
  self:step(told)
  return outputs, labels
end

require "ganymede.engine_loss"(Engine)
local initialize, given = require "ganymede.initialize"(Engine)
Engine.options = given
signature.export("engine", Engine, ":")
return signature.export("gm", { initialize = initialize, Engine = Engine, options = given })
