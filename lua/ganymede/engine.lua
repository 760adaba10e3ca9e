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
local context = require "ganymede.context"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local handlers = require "ganymede.gradient_handlers"
local log = require "ganymede.log"
local options = require "ganymede.options"
local ranks = require "ganymede.ranks"
local registry = require "ganymede.registry"
local StepLoader = require "ganymede.step_loader"
local scope = require("ganymede.tensor").scope
require "ganymede.lr_scheduler"
require "ganymede.optim"
require "ganymede.schedules"

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
-- terms) and its number of batches. The step loader calls it.
function Engine:announce(targets, batches)
  self.announced = { targets = targets, batches = batches }
  self.batch, self.samples, self.loss_part, self.fresh = 0, 0, 0, true -- also of a step that an error broke off
end

--- Forgets the gradients, at the first batch of a step.
function Engine:zero_grad()
  if self.batch > 0 then return end
  self.optimizer:zero_grad()
  self.samples, self.loss_part, self.fresh = 0, 0, true
end

-- Random numbers of a batch: call counters restart, and rows count from the samples seen in this step.
local function begin_batch(self, x)
  self.fresh = false
  core.set_rng_step(self.steps_done)
  core.begin_step()
  local n = core.is_tensor(x) and x:dim() > 0 and x:size(1) or 1
  core.set_batch(self.training and self.samples or 0, n)
  self.batch_samples = n
  auxiliary.clear()
end

--- engine(x, ...) runs the model.
function Engine:__call(x, ...)
  if self.fresh or not self.training then begin_batch(self, x) end
  phase(self.training and "forward" or "evaluate")
  return self.model(x, ...)
end

-- Divisor of the loss of one batch.
local function divisor(self)
  if not self.training then return nil end
  if self.announced then return self.announced.targets end
  if self.accumulation > 1 then
    error(("gradient_accumulation = %d: take the batches from the loader that gm.initialize returns (pass it "
      .. "train_dataloader), or tell engine:announce(targets, batches) before each step"):format(self.accumulation), 3)
  end
end

--- The loss of one batch -> scalar tensor: sum over its targets / targets of the whole step; in training, with what
-- layers add to it (ganymede.nn.auxiliary), over the batches of the step.
function Engine:criterion(output, target)
  if not self.loss_function then error("this engine has no criterion; pass one to gm.initialize", 2) end
  local loss = self.loss_function(output, target, divisor(self))
  return self.training and auxiliary.add_to(loss, 1 / batches_wanted(self)) or loss
end

-- Names of the parameters whose gradients the ranks sum although no loss touched them, once.
local function report_unused(self)
  local places = core.reducer_unused(self.reducer)
  if #places == 0 or self.unused_reported then return end
  self.unused_reported = true
  if not ranks.is_first() then return end
  local names = {}
  for i = 1, math.min(#places, 8) do names[i] = self.names[places[i]] end
  local more = #places > 8 and (" and %d more"):format(#places - 8) or ""
  log.warn("no loss depends on %s%s: the ranks sum zeros for %s", table.concat(names, ", "), more,
    #places > 1 and "them" or "it")
end

-- backward(...) of one batch; the last of a step sums the gradients over the ranks besides.
local function one_backward(self, backward, ...)
  local last = self.batch + 1 >= batches_wanted(self)
  if self.reducer and self.batch >= batches_wanted(self) then
    error("engine:backward once more after the gradients of this step were summed over the ranks: add the losses, "
      .. "or tell the number of backward passes (gradient_accumulation, engine:announce)", 3)
  end
  phase "backward"
  if self.reducer then core.reducer_arm(self.reducer, last) end
  backward(...)
  self.batch = self.batch + 1
  self.samples = self.samples + (self.batch_samples or 0)
  self.fresh = true
  if self.reducer and last then
    core.reducer_finish(self.reducer)
    report_unused(self)
  end
end

--- Adds d loss / d parameter to the gradients.
function Engine:backward(loss)
  if has_values() then self.loss_part = self.loss_part + ranks.part(loss) end
  one_backward(self, core.backward, loss)
end

--- The same from a tensor and its gradient, where there is no scalar loss.
function Engine:backward_by_grad(t, gradient) one_backward(self, core.backward, t, gradient) end

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

--- This rank's terms of the criterion's sums, not divided by counts: a list as long as targets_parts gives.
function Engine:loss_parts(output, label)
  local criterion, parts = self.loss_function, {}
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

local function first_bad(self)
  for _, item in ipairs(self.optimizer.items or {}) do
    if not is_finite(core.grad_norm({ item.tensor }, 2)) then return "the gradient of " .. item.name end
    if not all_finite(item.tensor) then return item.name end
  end
  return "no parameter (the loss alone)"
end

-- On all ranks, which hold the same numbers.
local function diverged(self, norm)
  ranks.fail(8, "diverged: loss %g, gradient norm %g in step %d; first that is not finite: %s\n"
    .. "  try a smaller learning rate (it was %g), a warm-up, or clip_grad_norm = 1",
    self.loss_sum, norm, self.steps_done + 1, first_bad(self), self.optimizer.lr)
end

--- Factor for the gradients so that their norm is at most max_norm; 0 or nil: never clip.
-- Pascanu et al. 2013, with PyTorch's 1e-6.
function Engine.clip_factor(norm, max_norm)
  if not max_norm or max_norm == 0 then return 1 end
  return math.min(1, max_norm / (norm + 1e-6))
end

local function end_step(self)
  self.steps_done = self.steps_done + 1
  for _, m in ipairs(self.model:modules()) do
    if m.after_update then m:after_update() end
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
  local norm = core.grad_norm(self.parameters, self.norm_type) -- on meta no number, but what it sends counts
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
-- forward and, unless opt.forward_only, backward. opt.return_loss = false computes no loss (forward only),
-- opt.return_output_label = false keeps neither -> output, label, loss (a tensor; item() is collective); nothing at the
-- end. The step is the caller's.
function Engine:execute_schedule(iter, opt)
  return self.schedule:forward_backward_step(self, iter, options.check("execute_schedule", self.run_options, opt, 2))
end

Engine.run_options = {
  forward_only = { type = "boolean", default = false, doc = "no backward" },
  return_loss = { type = "boolean", default = true, doc = "compute the loss?" },
  return_output_label = { type = "boolean", default = true, doc = "return output and label?" },
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
-- -> with keep_output, lists of outputs and labels; engine:step() then has the loss as engine.last_loss.
function Engine:forward_backward(step, keep_output)
  self:zero_grad()
  local outputs, labels, batches = {}, {}, Engine.iterate(step)
  local opt = { return_output_label = keep_output or false }
  for i = 1, #step do outputs[i], labels[i] = scope(one_batch, self, batches, opt) end
  return outputs, labels
end

-- ---------------------------------------------------------------- gm.initialize

-- A scheduler that moves once an update, however often the loop calls it.
local function gated(scheduler, engine)
  local gate = {}
  function gate.step()
    if engine.updated then scheduler:step() end
  end
  return setmetatable(gate, { __index = scheduler })
end

local given = {
  model = { type = "module", doc = "the model" },
  optimizer = { type = "table", optional = true, doc = "an optimizer, or { type = ... }; default AdamW" },
  criterion = { type = { "module", "table", "function" }, optional = true,
                doc = "a loss, { type = ... }, or a function(output, target) -> mean over the samples" },
  train_dataloader = { type = "table", optional = true, doc = "a loader of ganymede.data" },
  test_dataloader = { type = "table", optional = true, doc = "a loader of ganymede.data" },
  lr_scheduler = { type = "table", optional = true, doc = "a scheduler, or { type = ... }" },
  total_steps = { type = "integer", min = 1, optional = true, doc = "for lr_scheduler = { type = ... }" },
  clip_grad_norm = { type = "number", min = 0, default = 0, doc = "greatest norm of all gradients; 0 is off" },
  norm_type = { type = "number", above = 0, default = 2, infinite = true, doc = "p of that norm, or math.huge" },
  gradient_accumulation = { type = "integer", min = 1, default = 1, doc = "batches a step" },
  gradient_handler = { type = "table", default = {},
    doc = "list of handlers, or of { type = ... }, that sum gradients over the ranks; none: the buckets do" },
  schedule = { type = "table", default = { type = "NonPipelineSchedule" },
    doc = "a schedule, or { type = ... }: the order of forward and backward" },
}
local aliases = { gradient_handlers = "gradient_handler" }
Engine.options = given

-- A plain function(output, target) -> mean over the samples of a batch, as a criterion.
local function from_function(fn)
  local criterion = { count = function(_, target) return target:size(1) end }
  return setmetatable(criterion, {
    __call = function(_, output, target, count)
      local loss = fn(output, target)
      return count and loss * (target:size(1) / count) or loss
    end,
  })
end

local function criterion_of(given_criterion)
  if type(given_criterion) == "function" then return from_function(given_criterion) end
  return given_criterion and registry.losses:build(given_criterion)
end

-- Handlers as objects; what has handle_gradient already is one.
local function handlers_of(list, engine)
  local out = {}
  for i, entry in ipairs(list) do
    local is_one = type(entry) == "table" and type(entry.handle_gradient) == "function" and entry.type == nil
    out[i] = is_one and entry or registry.gradient_handlers:build(entry, engine.model, engine.optimizer)
    if type(out[i]) ~= "table" or type(out[i].handle_gradient) ~= "function" then
      error(("gm.initialize: gradient_handler[%d] has no function handle_gradient"):format(i), 0)
    end
  end
  return out
end

-- Who sums gradients over the ranks: the handlers that were given, else the reducer; one rank needs neither.
local function share_gradients(engine, list)
  engine.gradient_handlers = handlers_of(list, engine)
  if core.world() == 1 or #engine.gradient_handlers > 0 then return end
  local chosen = context.current().plan.reducer
  engine.reducer, engine.names = handlers.reducer(engine.model,
    { bucket_mb = chosen.bucket_mb, overlap = chosen.overlap ~= false })
end

local function new(opt)
  phase "initialize"
  local optimizer = registry.optimizers:build(opt.optimizer or { type = "AdamW" }, opt.model)
  local engine = setmetatable({
    model = opt.model, optimizer = optimizer, clip_grad_norm = opt.clip_grad_norm, norm_type = opt.norm_type,
    training = true, loss_function = criterion_of(opt.criterion), schedule = registry.schedules:build(opt.schedule),
    accumulation = opt.gradient_accumulation, parameters = opt.model:parameters(),
    steps_done = 0, batch = 0, samples = 0, loss_part = 0, loss_sum = 0, fresh = true, grad_norm = 0, not_finite = 0,
  }, Engine)
  share_gradients(engine, opt.gradient_handler)
  return engine
end

--- Builds what is given as { type = ... }, puts the parts together
-- -> engine, train_loader, test_loader, lr_scheduler (nil where none was given).
local function initialize(parts)
  local opt = options.check("gm.initialize", given, parts, 2, aliases)
  local engine = new(opt)
  local train = opt.train_dataloader and StepLoader.new(opt.train_dataloader, engine, opt.gradient_accumulation)
  local test = opt.test_dataloader and StepLoader.new(opt.test_dataloader, nil, 1)
  local run = { total_steps = opt.total_steps, steps_per_epoch = train and train:length() }
  local scheduler = opt.lr_scheduler and registry.lr_schedulers:build(opt.lr_scheduler, engine.optimizer, run)
  engine.lr_scheduler = scheduler
  if scheduler and opt.gradient_accumulation > 1 then return engine, train, test, gated(scheduler, engine) end
  return engine, train, test, scheduler
end

return { initialize = initialize, Engine = Engine, options = given }
