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
-- The trap: with gradient_accumulation the batches must come from the loader that gm.initialize returned,
-- which alone knows that number; any other is refused.
-- @module ganymede.engine
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local options = require "ganymede.options"
local registry = require "ganymede.registry"
local StepLoader = require "ganymede.step_loader"
local scope = require("ganymede.tensor").scope
require "ganymede.optim"
require "ganymede.lr_scheduler"

local Engine = {}
Engine.__index = Engine

local function is_finite(x) return x == x and math.abs(x) < math.huge end

-- On the meta device there are shapes and no numbers.
local function has_values() return core.device().has_data end

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

--- What the coming step holds: its contributing targets and its number of batches. The step loader calls it.
function Engine:announce(targets, batches)
  self.announced = { targets = targets, batches = batches }
  self.batch, self.samples, self.fresh = 0, 0, true
end

--- Forgets the gradients, at the first batch of a step.
function Engine:zero_grad()
  if self.batch > 0 then return end
  self.optimizer:zero_grad()
  self.samples, self.fresh = 0, true
end

-- Random numbers of a batch: call counters restart, and rows count from the samples seen in this step.
local function begin_batch(self, x)
  self.fresh = false
  core.set_rng_step(self.steps_done)
  core.begin_step()
  local n = core.is_tensor(x) and x:dim() > 0 and x:size(1) or 1
  core.set_batch(self.training and self.samples or 0, n)
  self.batch_samples = n
end

--- engine(x, ...) runs the model.
function Engine:__call(x, ...)
  if self.fresh or not self.training then begin_batch(self, x) end
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

--- The loss of one batch -> scalar tensor: sum over its targets / targets of the whole step.
function Engine:criterion(output, target)
  if not self.loss_function then error("this engine has no criterion; pass one to gm.initialize", 2) end
  return self.loss_function(output, target, divisor(self))
end

local function after_backward(self)
  self.batch = self.batch + 1
  self.samples = self.samples + (self.batch_samples or 0)
  self.fresh = true
end

--- Adds d loss / d parameter to the gradients.
function Engine:backward(loss)
  if has_values() then self.loss_sum = self.loss_sum + loss:item() end
  core.backward(loss)
  after_backward(self)
end

--- The same from a tensor and its gradient, where there is no scalar loss.
function Engine:backward_by_grad(t, gradient)
  core.backward(t, gradient)
  after_backward(self)
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
    if not is_finite(core.grad_norm { item.tensor }) then return "the gradient of " .. item.name end
    if not all_finite(item.tensor) then return item.name end
  end
  return "no parameter (the loss alone)"
end

local function diverged(self, norm)
  failure(8, "diverged: loss %g, gradient norm %g in step %d; first that is not finite: %s\n"
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
  self.last_loss, self.loss_sum, self.batch, self.announced, self.fresh = self.loss_sum, 0, 0, nil, true
  if Engine.on_update then Engine.on_update(self) end
end

--- Called with the engine after every update, when it is set: the statistics of programs without a trainer.
Engine.on_update = nil

--- One update, if all batches of the step have been through backward -> true; else nothing -> false.
-- A loss or gradient that is not finite changes no parameter and ends the run with exit status 8.
function Engine:step()
  local wanted = self.announced and self.announced.batches or self.accumulation
  if self.batch == 0 then error("engine:step() without engine:backward(loss)", 2) end
  self.updated = self.batch >= wanted
  if not self.updated then return false end
  self.grad_norm = has_values() and core.grad_norm(self.parameters) or 0
  if not is_finite(self.loss_sum) or not is_finite(self.grad_norm) then diverged(self, self.grad_norm) end
  self.optimizer:step { lr = self.optimizer.lr, clip = Engine.clip_factor(self.grad_norm, self.clip_grad_norm) }
  end_step(self)
  return true
end

--- Sets the number of updates made so far: part of resuming.
function Engine:set_steps(n)
  self.steps_done = n
  self.optimizer:set_steps(n)
end

-- ---------------------------------------------------------------- a whole step at once

local function one_batch(self, batch, keep_output)
  local output = self(batch[1])
  local loss = self:criterion(output, batch[2])
  self:backward(loss)
  return keep_output and output or nil
end

--- Forward and backward of all batches of a step from StepLoader:next_step(), each in a scope of its own.
-- -> loss of the step (a number), and with keep_output lists of outputs and labels.
function Engine:forward_backward(step, keep_output)
  self:zero_grad()
  local outputs, labels = {}, {}
  for i, batch in ipairs(step) do
    outputs[i], labels[i] = scope(one_batch, self, batch, keep_output), batch[2]
  end
  return self.loss_sum, outputs, labels
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
  clip_grad_norm = { type = "number", min = 0, default = 0, doc = "greatest 2-norm of all gradients; 0 is off" },
  gradient_accumulation = { type = "integer", min = 1, default = 1, doc = "batches a step" },
}
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

local function new(opt)
  local optimizer = registry.optimizers:build(opt.optimizer or { type = "AdamW" }, opt.model)
  return setmetatable({
    model = opt.model, optimizer = optimizer, clip_grad_norm = opt.clip_grad_norm, training = true,
    loss_function = criterion_of(opt.criterion),
    accumulation = opt.gradient_accumulation, parameters = opt.model:parameters(),
    steps_done = 0, batch = 0, samples = 0, loss_sum = 0, fresh = true, grad_norm = 0,
  }, Engine)
end

--- Builds what is given as { type = ... }, puts the parts together
-- -> engine, train_loader, test_loader, lr_scheduler (nil where none was given).
local function initialize(parts)
  local opt = options.check("gm.initialize", given, parts, 2)
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
