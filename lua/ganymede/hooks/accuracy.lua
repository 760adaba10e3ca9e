--- AccuracyHook: share of right answers, in trainer.metrics.train.accuracy (of the epoch so far) and
-- trainer.metrics.test.accuracy.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.metrics"
local ranks = require "ganymede.ranks"

local AccuracyHook = base.class("AccuracyHook", {
  accuracy_func = { type = "function", optional = true,
                    doc = "(output, label) -> number right; default: largest entry of the last dimension" },
  train = { type = "boolean", default = true, doc = "measure training batches too?" },
}, { priority = 0 })

function AccuracyHook:build(opt)
  self.needs_output = opt.train
  self.train, self.test = metrics.Mean(), metrics.Mean()
end

-- Adds a batch: right answers and labels that count (a criterion may ignore some), from one small sum over the ranks.
local function add(self, mean, trainer, output, label)
  local own = self.opt.accuracy_func
  local right = own and ranks.share(own(output, label)) or ranks.part(metrics.hits(output, label))
  local sums = ranks.sum { right, trainer.engine:targets_part(label) }
  mean:update(sums[1], sums[2])
end

function AccuracyHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self.train:reset() end
end

function AccuracyHook:after_train_iter(trainer, output, label)
  if not self.opt.train then return end
  add(self, self.train, trainer, output, label)
  trainer.metrics.train.accuracy = self.train:value()
end

function AccuracyHook:before_test_epoch() self.test:reset() end

function AccuracyHook:after_test_iter(trainer, output, label)
  add(self, self.test, trainer, output, label)
end

function AccuracyHook:after_test_epoch(trainer)
  trainer.metrics.test.accuracy = self.test:value()
  if self.test:value() then trainer:say(("test  accuracy %.4f"):format(self.test:value())) end
end

function AccuracyHook:state() return self.train:state() end
function AccuracyHook:load_state(state) self.train:load_state(state) end

return AccuracyHook
