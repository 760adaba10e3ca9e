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
-- The trap: with gradient_accumulation the batches must come from the loader that gm.initialize returned,
-- which alone knows that number; any other is refused.
-- @module ganymede.engine
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local log = require "ganymede.log"
local options = require "ganymede.options"
local ranks = require "ganymede.ranks"
local stage_gradients = require "ganymede.stage_gradients"
local scope = require("ganymede.tensor").scope

local phase = ranks.phase

local Engine = {}
Engine.__index = Engine

local function is_finite(x) return x == x and math.abs(x) < math.huge end

-- On the meta device there are shapes and no numbers.
local function has_values() return core.device().has_data end

-- Batches that the current step takes.
local function batches_wanted(self) return self.announced and self.announced.batches or self.accumulation end

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
-- terms) and its number of batches, and of micro-batches if it knows. The step loader calls it.
function Engine:announce(targets, batches, pieces)
  self.announced = { targets = targets, batches = batches, pieces = pieces }
  self.batch, self.samples, self.loss_part, self.fresh = 0, 0, 0, true -- also of a step that an error broke off
end

-- Is the current step over without an update? So is one that has all its gradients; and after an error that the
-- program survived, in a line of the repl, ranks may have counted different batches of it.
local function given_up(self)
  return self.batch >= batches_wanted(self) or self.epoch ~= core.comm_epoch()
end

--- Forgets the gradients, at the first batch of a step.
function Engine:zero_grad()
  if self.batch > 0 and not given_up(self) then return end
  self.batch, self.epoch = 0, core.comm_epoch()
  self.optimizer:zero_grad()
  self.samples, self.loss_part, self.fresh = 0, 0, true
end

--- Says that n samples come next, which follow `before` others of their batch (schedules call it for each micro-batch):
-- call counters of random numbers restart, and rows count from the samples seen in this step.
function Engine:begin_batch(before, n)
  self.fresh = false
  core.set_rng_step(self.steps_done)
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

-- Contributing targets of the coming step, by which losses are divided; nil: those of the batch.
local function divisor(self, level)
  if not self.training then return nil end
  if self.announced then return self.announced.targets end
  if self.accumulation > 1 then
    error(("gradient_accumulation = %d: take the batches from the loader that gm.initialize returns (pass it "
      .. "train_dataloader), or tell engine:announce(targets, batches) before each step"):format(self.accumulation),
      level + 1)
  end
end

-- The criterion, which must be there.
local function criterion_of(self, level)
  if not self.loss_function then error("this engine has no criterion; pass one to gm.initialize", level + 1) end
  return self.loss_function
end

--- The loss of one batch -> scalar tensor: sum over its targets / targets of the whole step; in training, with what
-- layers add to it (ganymede.nn.auxiliary), over the batches of the step.
function Engine:criterion(output, target)
  local loss = criterion_of(self, 2)(output, target, divisor(self, 2))
  return self.training and auxiliary.add_to(loss, 1 / batches_wanted(self)) or loss
end

--- What divides the losses of the micro-batches of a batch, a list of their labels: the targets of the step, or where
-- nobody has told them, of the batch (collective then, over all ranks).
function Engine:targets_of(labels)
  criterion_of(self, 2)
  local told, parts = divisor(self, 2), {}
  if told then return told end
  for _, label in ipairs(labels or {}) do
    for k, n in ipairs(self:targets_parts(label)) do parts[k] = (parts[k] or 0) + n end
  end
  local sums = ranks.sum(#parts > 0 and parts or { 0 })
  return #sums == 1 and sums[1] or sums
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
  local last = self.batch + 1 >= batches_wanted(self)
  if self.reducer and self.batch >= batches_wanted(self) then
    error("engine:backward once more after the gradients of this step were summed over the ranks: add the losses, "
      .. "or tell the number of backward passes (gradient_accumulation, engine:announce)", 3)
  end
  phase "backward"
  if self.reducer then core.reducer_arm(self.reducer, last) end
  backward(last)
  self.batch, self.samples, self.fresh = self.batch + 1, self.samples + samples, true
  if last then finish_gradients(self) end
end

--- Adds d loss / d parameter to the gradients.
function Engine:backward(loss)
  refuse_pipeline(self, "engine:backward(loss)")
  if has_values() then self.loss_part = self.loss_part + ranks.part(loss) end
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
  one_backward(self, samples, function(final) self.loss_part = self.loss_part + run(final) end)
end

--- This rank's terms of the numbers of targets in label, a list with one for each term of the criterion. No
-- communication where the criterion needs none (count_part).
function Engine:targets_parts(label)
  local criterion = self.loss_function
  if not criterion or not criterion.count_part then
    return { ranks.share(criterion and criterion:count(label) or label:numel()) }
  end
  local part = criterion:count_part(label)
  return type(part) == "table" and part or { part }
end

--- This rank's terms of the criterion's sums, not divided by counts: a list as long as targets_parts gives. output nil:
-- another stage has it, so zeros.
function Engine:loss_parts(output, label)
  local criterion, parts = self.loss_function, {}
  if output == nil then
    for k = 1, #self:targets_parts(label) do parts[k] = 0 end
    return parts
  end
  local sums = criterion.terms and criterion:terms(output, label) or { criterion(output, label, 1) }
  for k, sum in ipairs(sums) do parts[k] = ranks.part(sum) end
  return parts
end

-- ---------------------------------------------------------------- the update

-- 0 times a number is 0 if it is finite and NaN if not: this finds either in one reduction.
local function all_finite(t)
  core.scope_open()
  local ok, sum = pcall(function() return core.is_tensor(t) and (t:detach() * 0):sum():item() end)
  core.scope_close()
  return ok and sum == 0
end

-- The first of this stage's, or nil.
local function first_bad(self)
  for _, item in ipairs(self.optimizer.items or {}) do
    if not is_finite(core.grad_norm({ item.tensor }, 2)) then return "the gradient of " .. item.name end
    if not all_finite(item.tensor) then return item.name end
  end
end

-- The same of all stages. They look at the same time, so that each communicates among its own ranks.
local function first_bad_anywhere(self)
  local found = first_bad(self) or ""
  for _, text in ipairs(self.stage.stages > 1 and ranks.texts(found) or { found }) do
    if text ~= "" then return text end
  end
  return "no parameter (the loss alone)"
end

-- On all ranks, which hold the same numbers.
local function diverged(self, norm)
  ranks.fail(8, "diverged: loss %g, gradient norm %g in step %d; first that is not finite: %s\n"
    .. "  try a smaller learning rate (it was %g), a warm-up, or clip_grad_norm = 1",
    self.loss_sum, norm, self.steps_done + 1, first_bad_anywhere(self), self.optimizer.lr)
end

--- p-norm of all gradients, of all stages; the same bits on every rank. Collective.
function Engine:gradient_norm(p) return stage_gradients.norm(self.counted, p) end

--- Factor for the gradients so that their norm is at most max_norm; 0 or nil: never clip.
-- Pascanu et al. 2013, with PyTorch's 1e-6.
function Engine.clip_factor(norm, max_norm)
  if not max_norm or max_norm == 0 then return 1 end
  return math.min(1, max_norm / (norm + 1e-6))
end

local function end_step(self)
  self.steps_done = self.steps_done + 1
  for _, m in ipairs(self.model:modules()) do
    if m.after_update and m:is_present() then m:after_update() end
  end
  self.last_loss, self.loss_part, self.batch, self.announced, self.fresh = self.loss_sum, 0, 0, nil, true
  phase "other"
  if Engine.on_update then Engine.on_update(self) end
end

--- Called with the engine after every update, when it is set: the statistics of programs without a trainer.
Engine.on_update = nil

-- What the ranks must know together before the update, in one small sum: the loss, and whether one was asked to stop.
local function agree(self)
  local asked = self.stop_requested and self.stop_requested() and 1 or 0
  local sums = ranks.sum { self.loss_part, asked }
  self.loss_sum, self.stop_asked = sums[1], sums[2] > 0
end

-- Is there an update? engine.on_not_finite says what a loss or gradient that is not finite means.
local function may_update(self)
  if is_finite(self.loss_sum) and is_finite(self.grad_norm) then return true end
  self.not_finite = self.not_finite + 1
  if self.on_not_finite == "skip" then return false end
  if self.on_not_finite ~= "warn" then diverged(self, self.grad_norm) end
  return true
end

--- One update, if all batches of the step have been through backward -> true; else nothing -> false.
-- A loss or gradient that is not finite changes no parameter and ends the run with exit status 8, unless
-- engine.on_not_finite is "skip" (no parameter changes, the step counts) or "warn" (nothing special happens).
function Engine:step()
  if self.batch == 0 then error("engine:step() without engine:backward(loss)", 2) end
  self.updated = self.batch >= batches_wanted(self)
  if not self.updated then return false end
  phase "update"
  for _, handler in ipairs(self.gradient_handlers) do handler:handle_gradient(self) end
  agree(self)
  local norm = self:gradient_norm(self.norm_type) -- on meta no number, but what it sends counts
  self.grad_norm = has_values() and norm or 0
  if may_update(self) then
    self.optimizer:step { lr = self.optimizer.lr, clip = Engine.clip_factor(self.grad_norm, self.clip_grad_norm) }
  end
  end_step(self)
  return true
end

--- Sets the number of updates made so far: part of resuming.
function Engine:set_steps(n)
  self.steps_done = n
  self.optimizer:set_steps(n)
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

local initialize, given = require "ganymede.initialize"(Engine)
Engine.options = given

return { initialize = initialize, Engine = Engine, options = given }
