--- LearningRateHook puts the learning rate of each step into trainer.metrics.train.lr, and prints a line with it.
local base = require "ganymede.hooks.base"

local LearningRateHook = base.class("LearningRateHook", {
  interval = { type = "integer", min = 1, optional = true,
    doc = "the number of steps between two lines; default: one line at the end of each epoch" },
}, { priority = 10, needs_output = false, needs_loss = false })

local function line(trainer) trainer:say(("step %d  learning rate %.4g"):format(trainer.step, trainer.last.lr)) end

function LearningRateHook:after_train_iter(trainer)
  trainer.metrics.train.lr = trainer.last.lr -- the rate of this step; the scheduler has already moved on
  if self.opt.interval and trainer.step % self.opt.interval == 0 then line(trainer) end
end

function LearningRateHook:after_train_epoch(trainer)
  if not self.opt.interval and trainer.last then line(trainer) end
end

return LearningRateHook
