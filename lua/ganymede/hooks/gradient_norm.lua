--- GradientNormHook: the 2-norm of all gradients before clipping: the last in trainer.states.gradient_norm,
-- the mean and the largest of the epoch in trainer.metrics.train.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.metrics"

local GradientNormHook = base.class("GradientNormHook", {}, { priority = 10, needs_output = false })

function GradientNormHook:build() self.mean, self.largest = metrics.Mean(), 0 end

function GradientNormHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self:build() end
end

function GradientNormHook:after_train_iter(trainer)
  local norm = trainer.engine.grad_norm
  self.mean:update(norm, 1)
  self.largest = math.max(self.largest, norm)
  trainer.states.gradient_norm = norm
  trainer.metrics.train.gradient_norm, trainer.metrics.train.gradient_norm_max = self.mean:value(), self.largest
end

function GradientNormHook:after_train_epoch(trainer)
  if self.mean:value() then
    trainer:say(("gradient norm  mean %.4g  largest %.4g"):format(self.mean:value(), self.largest))
  end
end

function GradientNormHook:state() return { mean = self.mean:state(), largest = self.largest } end

function GradientNormHook:load_state(state)
  self.mean:load_state(state.mean)
  self.largest = state.largest
end

return GradientNormHook
