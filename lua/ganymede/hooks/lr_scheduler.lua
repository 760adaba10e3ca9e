--- LRSchedulerHook moves the learning-rate scheduler after every step. The trainer adds this hook by itself if the
-- engine has a scheduler.
local base = require "ganymede.hooks.base"

local LRSchedulerHook = base.class("LRSchedulerHook", {
  lr_scheduler = { type = "table", optional = true, doc = "the scheduler that it moves; default: that of the engine" },
  store_lr_in_state = { type = "boolean", default = true, doc = "whether the rate is put into trainer.states.lr" },
}, { priority = 1, needs_output = false, needs_loss = false })

function LRSchedulerHook:before_train(trainer)
  self.scheduler = self.opt.lr_scheduler or trainer.engine.lr_scheduler
  if not self.scheduler then error("LRSchedulerHook: the engine has no lr_scheduler; give one", 0) end
  if self.opt.store_lr_in_state then trainer.states.lr = trainer.engine.optimizer.lr end
end

function LRSchedulerHook:after_train_iter(trainer)
  self.scheduler:step()
  if self.opt.store_lr_in_state then trainer.states.lr = trainer.engine.optimizer.lr end
end

return LRSchedulerHook
