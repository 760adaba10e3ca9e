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
-- a step runs (host/gradients/reducer.h), or by the gradient handlers that were given, then by them alone; the
-- loss, the gradient norm and what follows from them are the same numbers on every rank.
--
-- The update is in engine_update.lua. On a GPU a step's numbers are known when the next one has been queued:
-- engine.last_loss, engine.grad_norm and engine.not_finite are of the last step, and reading one of them waits for it,
-- as engine:settle() does.
-- The trap: with gradient_accumulation the batches must come from the loader that gm.initialize returned,
-- which alone knows that number; any other is refused.
-- @module ganymede.train.engine
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"
local stage_gradients = require "ganymede.train.stage_gradients"
local scope = require("ganymede.tensor").scope
local StepLoader = require "ganymede.train.step_loader"

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

-- After a backward pass: what the ranks sum after each. After the last of a step gradients become those of the whole
-- batch, on every rank or on their owners.
local function finish_gradients(self, last)
  if self.reducer and (last or self.sums_each_pass) then core.reducer_finish(self.reducer) end
  if not last then return end
  if self.reducer then report_unused(self) end
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
  if self.reducer then core.reducer_arm(self.reducer, last or self.sums_each_pass) end
  backward(last)
  self.batch, self.samples, self.fresh = self.batch + 1, self.samples + samples, true
  finish_gradients(self, last)
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

-- ---------------------------------------------------------------- a whole step at once

--- Runs the next batch of iter (a function that returns x, y, or nil at the end) as the engine's schedule says:
-- forward and, unless opt.forward_only, backward -> output, label, loss; nothing at the end. The step is the caller's.
-- loss: a scalar tensor, which opt.return_loss = false spares; opt.return_output_label = false keeps neither of the
-- others. Of a pipeline, output is nil on all ranks but those of the stage that holds the last part; opt.pieces gives
-- output and label as lists of the micro-batches' (ganymede.data.micro_batches), and their number as a fourth result.
function Engine:execute_schedule(iter, opt)
  return self.schedule:forward_backward_step(self, iter, options.check("execute_schedule", self.run_options, opt, 2))
end

--- Says to ganymede.job.ranks which stage's copies count: the one that has this engine's output. For schedules.
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
-- -> with keep_output, lists of outputs and labels (micro-batches as ganymede.data.join takes them); engine:step() then
-- has the loss as engine.last_loss.
function Engine:forward_backward(step, keep_output)
  self:zero_grad()
  local outputs, labels, batches = {}, {}, Engine.iterate(step)
  local opt = { return_output_label = keep_output or false, return_loss = false, pieces = true }
  for i = 1, #step do outputs[i], labels[i] = scope(one_batch, self, batches, opt) end
  return outputs, labels
end

--- One step of a training loop, from StepLoader:next_step(true): announced, forward, backward and update, or a replay
-- of its graph (ganymede.train.graph) -> outputs and labels as forward_backward. told: as step has it.
function Engine:train_step(step, keep_output, told)
  if self.graph then return self.graph:run(step, keep_output, told) end
  StepLoader.announce(self, step)
  local outputs, labels = self:forward_backward(step, keep_output)
  self:step(told)
  return outputs, labels
end

require "ganymede.train.engine_loss"(Engine)
require "ganymede.train.engine_update"(Engine)
local initialize, given = require "ganymede.train.initialize"(Engine)
Engine.options = given
signature.export("engine", Engine, ":")
return signature.export("gm", { initialize = initialize, Engine = Engine, options = given }, nil, nil,
  { initialize = given })
