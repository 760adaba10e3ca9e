--- EvaluationHook evaluates the test loader every `interval` steps, besides the evaluations after epochs.
-- trainer.metrics.test belongs to the last evaluation. The trap: the test points of hooks are then also called in the
-- middle of an epoch.
local base = require "ganymede.hooks.base"

local EvaluationHook = base.class("EvaluationHook", {
  interval = { type = "integer", min = 1, doc = "the number of optimizer steps between two evaluations" },
}, { priority = 15, needs_output = false, needs_loss = false }) -- after what measures the step, before what saves it

function EvaluationHook.before_train(_, trainer)
  if not trainer.opt.test_dataloader then
    error("EvaluationHook: there are no test data to evaluate on; give data.test (test_dataloader)", 0)
  end
end

function EvaluationHook:after_train_iter(trainer)
  if trainer.step % self.opt.interval == 0 then trainer:evaluate(trainer.opt.test_dataloader) end
end

return EvaluationHook
