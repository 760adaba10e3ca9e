--- AccuracyHook measures the share of right answers, from 0 to 1: trainer.metrics.train.accuracy (of the epoch so far)
-- and trainer.metrics.test.accuracy. A criterion of several terms that counts right answers (criterion:hits) has one
-- share for each term, under the names criterion.accuracy_names: "accuracy" and "pair_accuracy" for BERTLoss.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.nn.metrics"
local ranks = require "ganymede.job.ranks"

local AccuracyHook = base.class("AccuracyHook", {
  accuracy_func = { type = "function", optional = true,
                    doc = "a function(output, label) that returns the number of right answers; default: compares the "
                      .. "largest entry along the last dimension with the label" },
  train = { type = "boolean", default = true, doc = "whether batches of training are measured, too" },
}, { priority = 0 })

function AccuracyHook:build(opt)
  self.needs_output, self.needs_loss = opt.train, opt.train -- counting reads the device in every step
  self.train, self.test = { metrics.Mean() }, { metrics.Mean() }
end

local function criterion_of(trainer) return trainer.engine.loss_function end

-- The names of the shares that are measured.
local function names(self, trainer)
  local criterion = criterion_of(trainer)
  return not self.opt.accuracy_func and criterion and criterion.hits and criterion.accuracy_names or { "accuracy" }
end

AccuracyHook.measures = names

-- The list of this rank's terms of the numbers of right answers. output nil: another stage of the pipeline has it.
local function right_answers(self, trainer, output, label)
  local own, criterion = self.opt.accuracy_func, criterion_of(trainer)
  if output == nil then
    local none = {}
    for k in ipairs(names(self, trainer)) do none[k] = 0 end
    return none
  end
  if own then return { ranks.share(own(output, label)) } end
  local hits = criterion and criterion.hits and criterion:hits(output, label) or { metrics.hits(output, label) }
  local parts = {}
  for k, hit in ipairs(hits) do parts[k] = ranks.part(hit) end
  return parts
end

-- Adds a batch: the right answers, and the labels that count (a criterion may ignore some), by one small sum over
-- ranks.
local function add(self, means, trainer, output, label)
  metrics.update_each(means, metrics.over_ranks(right_answers(self, trainer, output, label),
    trainer.engine:targets_parts(label)))
end

local function reset(means)
  for _, mean in ipairs(means) do mean:reset() end
end

-- Writes the shares into a table of metrics.
local function tell(self, means, trainer, into)
  for k, name in ipairs(names(self, trainer)) do into[name] = means[k] and means[k]:value() end
end

function AccuracyHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then reset(self.train) end
end

function AccuracyHook:after_train_iter(trainer, output, label)
  if not self.opt.train then return end
  add(self, self.train, trainer, output, label)
  tell(self, self.train, trainer, trainer.metrics.train)
end

function AccuracyHook:before_test_epoch() reset(self.test) end

function AccuracyHook:after_test_iter(trainer, output, label)
  add(self, self.test, trainer, output, label)
end

function AccuracyHook:after_test_epoch(trainer)
  local test, said = trainer.metrics.test, {}
  tell(self, self.test, trainer, test)
  for _, name in ipairs(names(self, trainer)) do
    if test[name] then said[#said + 1] = ("%s %.4f"):format(name:gsub("_", " "), test[name]) end
  end
  if #said > 0 then trainer:say("test  " .. table.concat(said, "  ")) end
end

function AccuracyHook:state()
  local state = {}
  for k, mean in ipairs(self.train) do state[k] = mean:state() end
  return state
end

function AccuracyHook:load_state(state)
  for k, one in ipairs(state) do
    self.train[k] = self.train[k] or metrics.Mean()
    self.train[k]:load_state(one)
  end
end

return AccuracyHook
