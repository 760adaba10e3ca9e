--- The engine holds model, criterion and optimizer, and does what every training loop does.
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
-- A loop with a schedule is the same on one rank and in any pipeline. Each batch of the loader is then a list of
-- micro-batches, which the schedule takes. At the end of an epoch there is no loss:
--
--     local batches = train_loader:batches()
--     repeat
--       engine:zero_grad()
--       local output, label, loss = engine:execute_schedule(batches)   -- forward and backward of one batch
--       if loss then engine:step() lr_scheduler:step() end
--     until not loss
--
-- A step is one update of the parameters, from gradient_accumulation batches. The loop does not change: zero_grad, step
-- and lr_scheduler:step act only once in so many turns. A loss is divided by the number of contributing targets of the
-- whole step, so the gradients of the batches add up to those of one big batch. Random numbers depend only on (seed,
-- module, step, place of the sample in the step).
--
-- On several ranks, each rank holds its part of every batch. Gradients are summed over the ranks while the last
-- backward pass of a step runs (host/gradients/reducer.h). If gradient handlers were given, they alone sum them. The
-- loss, the gradient norm and what follows from them are the same numbers on every rank.
--
-- engine.gradient_watch sees what each backward pass has made before it is summed over ranks
-- (ganymede.observe.gradient_noise).
--
-- The update is in engine_update.lua. On a GPU the numbers of a step are known when the next step has been queued.
-- engine.last_loss, engine.grad_norm and engine.not_finite belong to the last step; reading one of them waits for that
-- step, as engine:settle() does.
-- The trap: with gradient_accumulation the batches must come from the loader that gm.initialize returned, because only
-- that loader announces the number of targets; batches of any other are refused.
-- @module ganymede.train.engine
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"
local stage_gradients = require "ganymede.train.stage_gradients"
local scope = require("ganymede.tensor").scope
local StepLoader = require "ganymede.train.step_loader"

local phase = ranks.phase

local Engine = {}

-- Fields that become known late; reading one waits for the device.
local late_fields = { last_loss = true, grad_norm = true, not_finite = true }

function Engine.__index(self, key)
  local method = rawget(Engine, key)
  if method ~= nil or not late_fields[key] then return method end
  self:settle()
  return self.known[key]
end

--- Returns the number of batches that the current step takes.
function Engine:batches_wanted() return self.announced and self.announced.batches or self.accumulation end

--- Sets training mode: dropout drops, and losses are divided by the number of targets of the step.
function Engine:train()
  self.model:train()
  self.training = true
  return self
end

--- Sets evaluation mode: dropout does nothing, and each loss is divided by the number of its own targets.
function Engine:eval()
  self.model:eval()
  self.training = false
  return self
end

--- Says what the coming step holds. targets: the number of its contributing targets, as a number or as an f64 scalar on
-- the device (for which nobody waits); for a criterion of several terms a list with one for each term. batches: the
-- number of its batches; pieces: the number of micro-batches, if it is known. The step loader calls it.
function Engine:announce(targets, batches, pieces)
  if targets ~= nil and type(targets) ~= "number" and type(targets) ~= "table" and not core.is_tensor(targets) then
    error("engine:announce(targets): targets is the number of the coming step's targets, a scalar of f64, or a list of "
      .. "these; got " .. options.brief(targets), 2)
  end
  self.announced = { targets = targets, batches = batches, pieces = pieces }
  self.batch, self.samples, self.fresh = 0, 0, true -- also after a step that an error has ended
  self.control:forget()
  self:drop_passes()
end

--- For ganymede.train.graph: forgets what layers have taken from training passes that no update has followed, because
-- the step was given up. Modules have a method drop_passes for it.
function Engine:drop_passes()
  if not self.has_passes then return end
  self.has_passes = false
  if self.float8 then self.float8:drop_passes() end
  for _, m in ipairs(self.model:modules()) do
    if m.drop_passes and m:is_present() then m:drop_passes() end
  end
end

-- Whether the current step is given up without an update: it has all its gradients, or an error has ended it that the
-- program survived (in a line of the repl), after which ranks may have counted different numbers of batches.
local function given_up(self)
  return self.batch >= self:batches_wanted() or self.epoch ~= core.comm_epoch()
end

--- What rests outside of memory, as the setting offload asks, in bytes; nil: all is in memory.
function Engine:offloaded() return self.tier and self.tier:stats() end

-- Whether the optimizer updates this parameter; one that does not say what it updates may.
local function is_updated(optimizer, tensor)
  for _, t in ipairs(optimizer.tensors or { tensor }) do
    if t == tensor then return true end
  end
  return false
end

-- Refuses parameters that were thawed since gm.initialize, where no update would reach them, or where each rank would
-- have the gradient of its own samples.
local function refuse_thawed(self)
  for _, p in ipairs(self.frozen) do
    if p.tensor:requires_grad() and (self.reducer or not is_updated(self.optimizer, p.tensor)) then
      error(("'%s' was frozen in gm.initialize, so it belongs to no optimizer and to no sum over ranks, and cannot be "
        .. "trained now: call gm.initialize again%s"):format(p.name, self.reducer and ""
        or ", or freeze it behind that call"), 3)
    end
  end
end

--- Forgets the gradients at the first batch of a step, also those of parameters that the optimizer does not have.
-- Before its other batches it does nothing.
function Engine:zero_grad()
  if self.batch > 0 and not given_up(self) then return end
  refuse_thawed(self)
  self.batch, self.epoch = 0, core.comm_epoch()
  self.optimizer:zero_grad()
  core.zero_grad(self.parameters)
  if self.regions_wanted then self.regions_wanted:choose(self) end
  self.samples, self.fresh = 0, true
  self.control:forget()
end

--- Random numbers that are drawn outside of modules from here on, by hooks and transforms of the step that comes, are a
-- function of that step: of nothing that was done before it, such as an evaluation or the start of a run that resumes.
function Engine:restart_draws()
  core.set_rng_step(self.steps_done)
  core.begin_step()
end

--- Says that n samples come next, after `before` others of their batch. Call counters of random numbers restart, and
-- the rows count on from the samples of this step. Schedules call it for each micro-batch.
function Engine:begin_batch(before, n)
  self.fresh = false
  self.has_passes = self.has_passes or self.training
  if self.training and self.optimizer.prepare then self.optimizer:prepare() end -- what kernels read stays as it is now
  self:restart_draws()
  core.set_batch((self.training and self.samples or 0) + before, n)
  self.batch_samples = n
  auxiliary.clear()
end

-- Refuses in a pipeline what a loop without a schedule cannot do there.
local function refuse_pipeline(self, call)
  if self.stage.stages > 1 then
    error(("%s with %d pipeline stages: each stage has only a part of the model; let the schedule run the batch: "
      .. "engine:execute_schedule(iter), then engine:step()"):format(call, self.stage.stages), 3)
  end
end

--- Runs the model: engine(x, ...).
function Engine:__call(x, ...)
  refuse_pipeline(self, "engine(x)")
  if self.fresh or not self.training then
    self:begin_batch(0, core.is_tensor(x) and x:dim() > 0 and x:size(1) or 1)
  end
  phase(self.training and "forward" or "evaluate")
  if self.regions_wanted and self.training then self.regions_wanted:note_input(x, ...) end
  return self.model(x, ...)
end

-- Warns once about the parameters of this stage whose gradients the ranks sum although no loss depends on them.
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

-- Finishes the sums over the ranks after a backward pass. After the last pass of a step, the gradients are those of the
-- whole step, on every rank or on their owners.
local function finish_gradients(self, last)
  if self.reducer and (last or self.sums_each_pass) then core.reducer_finish(self.reducer) end
  if not last then return end
  if self.reducer then
    core.sparse_sum(self.tables)
    report_unused(self)
  end
  if #self.gradient_handlers == 0 then stage_gradients.sum(self.shared) end
end

-- The observer of gradients (Engine.gradient_watch), if it wants the step that is made now; else nil.
local function watch_of(self)
  local watch = self.training and self.gradient_watch
  return watch and watch:wants(self.steps_done + 1) and watch or nil
end

-- Runs backward(last) of one batch of so many samples; last: it is the last batch of the step. Where gradients are
-- watched, no sum over the ranks begins before the watcher has seen them.
local function one_backward(self, samples, backward)
  local last = self.batch + 1 >= self:batches_wanted()
  if self.reducer and self.batch >= self:batches_wanted() then
    error("engine:backward is called again after the gradients of this step were summed over the ranks: add the "
      .. "losses, or announce the number of backward passes (gradient_accumulation, engine:announce)", 3)
  end
  phase "backward"
  self.control:scale_losses(self.loss_scaling ~= nil) -- another engine of this program may have changed it
  local watch = watch_of(self)
  if self.reducer then core.reducer_arm(self.reducer, not watch and (last or self.sums_each_pass) or false) end
  if watch then watch:begin_pass(self) end
  backward(last)
  if watch then watch:end_pass(self, samples) end
  self.batch, self.samples, self.fresh = self.batch + 1, self.samples + samples, true
  finish_gradients(self, last)
end

-- Adds this rank's term of a loss to those of the step.
local function add_loss(self, loss)
  local part = ranks.part_tensor(loss)
  if part then self.control:add(part) end
end

-- Refuses what is no loss.
local function check_loss(loss)
  if core.is_tensor(loss) and loss:numel() == 1 then return end
  error("engine:backward takes the loss of a batch, a tensor of one number, as engine:criterion returns it; got "
    .. (core.is_tensor(loss) and ("a tensor (%s)"):format(table.concat(loss:shape(), ", ")) or options.brief(loss)), 3)
end

--- Adds d loss / d parameter to the gradient of each parameter.
function Engine:backward(loss)
  refuse_pipeline(self, "engine:backward(loss)")
  check_loss(loss)
  scope(add_loss, self, loss)
  one_backward(self, self.batch_samples or 0, function() core.backward(loss) end)
end

--- Does the same for a tensor and its gradient, where there is no scalar loss.
function Engine:backward_by_grad(t, gradient)
  refuse_pipeline(self, "engine:backward_by_grad(t, gradient)")
  one_backward(self, self.batch_samples or 0, function() core.backward(t, gradient) end)
end

--- For schedules: runs a batch of so many samples. run(final) makes all passes of the batch and returns this rank's
-- term of its loss. final: it is the last batch of the step.
function Engine:run_batch(samples, run)
  one_backward(self, samples, function(final)
    local part = run(final)
    if part then self.control:add(part) end
  end)
end

-- ---------------------------------------------------------------- a whole step at once

--- Runs the next batch of iter by the engine's schedule: forward and, unless opt.forward_only, backward. iter is a
-- function that returns x, y, or nil at the end. Returns output, label and loss, or nothing at the end. The caller
-- calls engine:step(). The loss is a scalar tensor; it is nil with opt.return_loss = false. Output and label are nil
-- with opt.return_output_label = false. In a pipeline only the ranks of the stage that holds the last part have the
-- output. With opt.pieces, output and label are lists with an entry for each micro-batch (ganymede.data.micro_batches),
-- and their number is a fourth result.
function Engine:execute_schedule(iter, opt)
  if type(iter) ~= "function" and not (getmetatable(iter) or {}).__call then
    error("execute_schedule: iter is a function that returns the next x, y, such as loader:batches(); got "
      .. options.brief(iter), 2)
  end
  return self.schedule:forward_backward_step(self, iter, options.check("execute_schedule", self.run_options, opt, 2))
end

--- Tells ganymede.job.ranks which stage's copies count: those of the stage that has this engine's output. Schedules
-- call it.
function Engine:set_counting() ranks.set_output_stage(self.output_stage) end

Engine.run_options = {
  forward_only = { type = "boolean", default = false, doc = "whether only the forward pass is made" },
  return_loss = { type = "boolean", default = true,
    doc = "whether the loss is returned; with forward_only, also whether it is computed" },
  return_output_label = { type = "boolean", default = true, doc = "whether output and label are returned" },
  pieces = { type = "boolean", default = false,
    doc = "whether output and label are lists with an entry for each micro-batch, and not joined" },
  inputs_only = { type = "boolean", default = false,
    doc = "whether iter returns the inputs of the model itself, so that data_process_func is not called" },
}

--- Returns an iterator over the batches of a step from StepLoader:next_step(), for execute_schedule.
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

--- Runs forward and backward of all batches of a step from StepLoader:next_step(), each in a scope of its own. With
-- keep_output it returns lists of outputs and labels (of micro-batches, as ganymede.data.join takes them). After
-- engine:step() the loss is engine.last_loss.
function Engine:forward_backward(step, keep_output)
  self:zero_grad()
  local outputs, labels, batches = {}, {}, Engine.iterate(step)
  local opt = { return_output_label = keep_output or false, return_loss = false, pieces = true }
  for i = 1, #step do outputs[i], labels[i] = scope(one_batch, self, batches, opt) end
  return outputs, labels
end

--- Runs one step of a training loop, from StepLoader:next_step(true): it announces the step and runs forward, backward
-- and update, or replays their graph (ganymede.train.graph). Returns outputs and labels as forward_backward does.
-- told: that of Engine:step.
function Engine:train_step(step, keep_output, told)
  if self.graph and not watch_of(self) then return self.graph:run(step, keep_output, told) end
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
initialize = failure.blaming(initialize)
return missing.guard("engine", signature.export("gm", { initialize = initialize, Engine = Engine, options = given },
  nil, nil, { initialize = given }))
