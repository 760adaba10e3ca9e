--- AccuracyHook: share of right answers, in trainer.metrics.train.accuracy (of the epoch so far) and
-- trainer.metrics.test.accuracy.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.metrics"

local AccuracyHook = base.class("AccuracyHook", {
  accuracy_func = { type = "function", optional = true,
                    doc = "(output, label) -> number right; default: largest entry of the last dimension" },
  train = { type = "boolean", default = true, doc = "measure training batches too?" },
}, { priority = 0 })

function AccuracyHook:build(opt)
  self.right = opt.accuracy_func or metrics.correct
  self.needs_output = opt.train
  self.train, self.test = metrics.Mean(), metrics.Mean()
end

-- Labels that count: a criterion may ignore some.
local function answers(trainer, label)
  local criterion = trainer.engine.loss_function
  return criterion and criterion:count(label) or label:numel()
end

function AccuracyHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self.train:reset() end
end

function AccuracyHook:after_train_iter(trainer, output, label)
  if not self.opt.train then return end
  self.train:update(self.right(output, label), answers(trainer, label))
  trainer.metrics.train.accuracy = self.train:value()
end

function AccuracyHook:before_test_epoch() self.test:reset() end

function AccuracyHook:after_test_iter(trainer, output, label)
  self.test:update(self.right(output, label), answers(trainer, label))
end

function AccuracyHook:after_test_epoch(trainer)
  trainer.metrics.test.accuracy = self.test:value()
  if self.test:value() then trainer:say(("test  accuracy %.4f"):format(self.test:value())) end
end

function AccuracyHook:state() return self.train:state() end
function AccuracyHook:load_state(state) self.train:load_state(state) end

return AccuracyHook
