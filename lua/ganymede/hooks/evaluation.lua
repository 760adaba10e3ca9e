--- EvaluationHook: evaluates the test loader every `interval` steps, beside what the trainer does after epochs.
-- trainer.metrics.test then is of the last evaluation, and hooks see test points in the middle of an epoch.
local base = require "ganymede.hooks.base"

local EvaluationHook = base.class("EvaluationHook", {
  interval = { type = "integer", min = 1, doc = "optimizer steps between two evaluations" },
}, { priority = 15, needs_output = false, needs_loss = false }) -- after what measures the step, before what saves it

function EvaluationHook.before_train(_, trainer)
  if not trainer.opt.test_dataloader then
    error("EvaluationHook: there is nothing to evaluate on; give data.test (test_dataloader)", 0)
  end
end

function EvaluationHook:after_train_iter(trainer)
  if trainer.step % self.opt.interval == 0 then trainer:evaluate(trainer.opt.test_dataloader) end
end

return EvaluationHook
