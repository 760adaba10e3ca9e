--- LossHook puts the mean loss of the epoch so far into trainer.metrics.train.loss, and prints a line with the loss.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.nn.metrics"

local LossHook = base.class("LossHook", {
  interval = { type = "integer", min = 1, optional = true,
    doc = "the number of steps between two lines; default: only the line at the end of each epoch" },
}, { priority = 0, needs_output = false, adds_metrics = false })

function LossHook:build() self.mean = metrics.Mean() end

function LossHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self.mean:reset() end
end

function LossHook:after_train_loss(trainer, step)
  self.mean:update(step.loss, 1)
  trainer.metrics.train.loss = self.mean:value()
  local interval = self.opt.interval
  if interval and step.step % interval == 0 then
    trainer:say(("step %d  loss %.4f  lr %.3g"):format(step.step, step.loss, step.lr))
  end
end

function LossHook:after_train_epoch(trainer)
  local mean = self.mean:value()
  if mean then trainer:say(("epoch %d  step %d  mean loss %.4f"):format(trainer.epoch + 1, trainer.step, mean)) end
end

function LossHook.after_test(_, trainer)
  local test = trainer.metrics.test
  if test.loss then trainer:say(("test  loss %.4f"):format(test.loss)) end
end

function LossHook:state() return self.mean:state() end
function LossHook:load_state(state) self.mean:load_state(state) end

return LossHook
