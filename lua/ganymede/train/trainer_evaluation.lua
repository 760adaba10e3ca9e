--- Evaluation and prediction of a trainer: forward passes of the engine's schedule in evaluation mode, without
-- recording gradients. Losses are means over the targets of all batches and ranks.
-- The trap: only one stage of a pipeline has the outputs; on the others hooks receive nil.
-- @module ganymede.train.trainer_evaluation
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local metrics = require "ganymede.nn.metrics"
local micro_batches = require "ganymede.data.micro_batches"
local options = require "ganymede.base.options"
local projection = require "ganymede.nn.projection"
local ranks = require "ganymede.job.ranks"
local StepLoader = require "ganymede.train.step_loader"
local tensor = require "ganymede.tensor"

local no_grad, scope = tensor.no_grad, tensor.scope

local function flat(lists)
  local out = {}
  for _, list in ipairs(lists) do
    for _, v in ipairs(list) do out[#out + 1] = v end
  end
  return out
end

-- Returns the list of the mean losses of a list of outputs (nil: another stage has them), by one small sum over all
-- ranks. An output without targets has no entry.
local function measure(engine, outputs, labels, mean)
  local sums, counts, losses = {}, {}, {}
  for k, label in ipairs(labels) do
    sums[k], counts[k] = engine:loss_parts(outputs and outputs[k], label), engine:targets_parts(label)
  end
  local terms = #counts[1]
  local all_sums, all_counts = metrics.over_ranks(flat(sums), flat(counts))
  for k = 1, #labels do
    local first, last = (k - 1) * terms + 1, k * terms
    mean:update({ unpack(all_sums, first, last) }, { unpack(all_counts, first, last) })
    losses[k] = mean:last()
  end
  return losses
end

-- Returns a batch, or the list of its micro-batches, as a list.
local function listed(x)
  if x == nil or micro_batches.is_list(x) then return x end
  return { x }
end

-- Evaluates one batch; each of its micro-batches is an iteration for the hooks.
local function test_step(self, batches, mean)
  self:call "before_test_iter"
  local engine, losses = self.engine, {}
  local output, label, _, pieces = engine:execute_schedule(batches,
    { forward_only = true, return_loss = false, pieces = true })
  local outputs, labels = listed(output), listed(label)
  if engine.loss_function and labels then losses = measure(engine, outputs, labels, mean) end
  for k = 1, pieces or 1 do
    if k > 1 then self:call "before_test_iter" end
    self:call("after_test_iter", outputs and outputs[k], labels and labels[k], losses[k])
  end
end

local function next_test_step(self, loader, mean)
  local step = loader:next_step()
  if not step then return false end
  local batches = self.engine.iterate(step)
  for _ = 1, #step do no_grad(test_step, self, batches, mean) end
  return true
end

-- Gives fn the outputs and labels of the first step of a loader.
local function first_outputs(engine, loader, fn)
  local step = loader:next_step()
  local batches = step and engine.iterate(step)
  for _ = 1, step and #step or 0 do
    local output, label = engine:execute_schedule(batches, { forward_only = true, return_loss = false })
    local outputs, labels = listed(output), listed(label)
    for k = 1, outputs and #outputs or 0 do fn(outputs[k], labels and labels[k]) end
  end
end

-- Whether two loaders are known to give samples of one shape.
local function alike(loader, other)
  local a, b = loader.shapes and loader:shapes(), other.shapes and other:shapes()
  return a ~= nil and b ~= nil and options.literal(a) == options.literal(b)
end

-- Returns the whole output for one input: from the model itself, or through the schedule if the model is in parts.
local function predict_one(engine, x)
  if engine.stage.stages == 1 then return projection.whole(engine(x)) end
  local given = false
  local function iter()
    if given then return nil end
    given = true
    return x
  end
  local run = { forward_only = true, return_loss = false, inputs_only = true }
  return projection.whole((engine:execute_schedule(iter, run)))
end

--- Adds evaluate, with_first_outputs, try_test and predict to the class Trainer.
return function(Trainer)

--- Runs the loader once in evaluation mode and returns a table of metrics: loss, and what hooks add to
-- trainer.metrics.test. It changes neither parameters nor the random numbers of training.
function Trainer:evaluate(loader)
  if loader == nil then error("trainer:evaluate(loader) needs the loader of what it shall evaluate", 2) end
  local engine, mean = self.engine, metrics.SumOfMeans()
  loader = StepLoader.of(loader, nil, 1, engine.schedule.num_microbatches)
  self:settle()
  engine:restart_draws()
  local training = engine.training
  self.metrics.test = {}
  self:call "before_test"
  loader:set_epoch(0)
  engine:eval()
  self:call "before_test_epoch"
  while scope(next_test_step, self, loader, mean) do collectgarbage("step", self.collector_step) end
  self.metrics.test.loss, self.tested_at = mean:value(), self.step
  self:call "after_test_epoch"
  if training then engine:train() end
  ranks.phase "other"
  self:call "after_test"
  if self.on_test then self.on_test(self) end
  return self.metrics.test
end

--- Calls fn(output, label) for each micro-batch of the first step of a loader, in evaluation mode: in a pipeline on the
-- stage that has the outputs. It changes neither parameters, metrics nor the random numbers of training. A loader that
-- a program has written and that cannot go back to its first batch is left alone. Collective.
function Trainer:with_first_outputs(loader, fn)
  local engine, training = self.engine, self.engine.training
  loader = StepLoader.of(loader, nil, 1, engine.schedule.num_microbatches)
  if not loader:can_return() then return end
  self:settle()
  engine:restart_draws()
  loader:set_epoch(0)
  engine:eval()
  scope(no_grad, first_outputs, engine, loader, fn)
  if training then engine:train() end
  ranks.phase "other"
end

--- Lets the model and the loss see the first batch of the test data, if it is not known that its samples are like those
-- of training: what does not fit ends the run here, and not after the first epoch. Collective.
function Trainer:try_test(train_loader, test_loader)
  if not test_loader or alike(train_loader, test_loader) then return end
  local ok, err = failure.try(self.with_first_outputs, self, test_loader, function(output, label)
    if self.engine.loss_function and label ~= nil then self.engine:loss_parts(output, label) end
  end)
  if ok then return end
  error(failure.changed(err, function(text)
    return text .. "\n  in the first batch of the test data, which is tried before training"
  end), 0)
end

--- Returns the output of the model for one input, or for each of a list of inputs, in evaluation mode. In a pipeline
-- all ranks call it with the same inputs. Only the stage that holds the last part has the outputs; on others the result
-- is nil, or an empty list for a list.
function Trainer:predict(data)
  local engine = self.engine
  local training = engine.training
  engine:eval()
  local function run(x) return scope(no_grad, predict_one, engine, x) end
  local ok, result = pcall(function()
    if core.is_tensor(data) then return run(data) end
    local out = {}
    for i, x in ipairs(data) do out[i] = run(x) end
    return out
  end)
  if training then engine:train() end
  if not ok then error(result, 0) end
  return result
end

end
