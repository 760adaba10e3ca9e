--- LearningRateHook: the learning rate of each step in trainer.metrics.train.lr, and a line every `interval` steps.
local base = require "ganymede.hooks.base"

local LearningRateHook = base.class("LearningRateHook", {
  interval = { type = "integer", min = 1, optional = true, doc = "steps between two lines; default: an epoch" },
}, { priority = 10, needs_output = false, needs_loss = false })

local function line(trainer) trainer:say(("step %d  learning rate %.4g"):format(trainer.step, trainer.last.lr)) end

function LearningRateHook:after_train_iter(trainer)
  trainer.metrics.train.lr = trainer.last.lr -- the one of this step: the scheduler has moved on
  if self.opt.interval and trainer.step % self.opt.interval == 0 then line(trainer) end
end

function LearningRateHook:after_train_epoch(trainer)
  if not self.opt.interval and trainer.last then line(trainer) end
end

return LearningRateHook
