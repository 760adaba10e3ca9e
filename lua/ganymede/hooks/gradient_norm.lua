--- GradientNormHook measures the norm of all gradients before clipping. The last one is trainer.states.gradient_norm;
-- the mean and the largest of the epoch are gradient_norm and gradient_norm_max in trainer.metrics.train.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.nn.metrics"

local GradientNormHook = base.class("GradientNormHook", {
  norm_type = { type = "number", above = 0, default = 2, infinite = true,
    doc = "the p of the norm: 1, 2, 3 and so on, or math.huge for the largest entry" },
}, { priority = 10, needs_output = false, needs_loss = false })

function GradientNormHook:build() self.mean, self.largest = metrics.Mean(), 0 end

function GradientNormHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self:build() end
end

-- A norm that is not a number stays the largest: math.max would take it, or not, as code is compiled or is not.
local function note(self, trainer, norm)
  self.mean:update(norm, 1)
  if norm > self.largest or norm ~= norm then self.largest = norm end
  trainer.states.gradient_norm = norm
  trainer.metrics.train.gradient_norm, trainer.metrics.train.gradient_norm_max = self.mean:value(), self.largest
end

-- Whether the hook needs a norm of its own. The engine measures one norm before it clips. Gradients stay as they were,
-- so another norm can be measured after the step, but this waits for the device.
local function is_own(self, trainer) return self.opt.norm_type ~= trainer.engine.norm_type end

function GradientNormHook:after_train_iter(trainer)
  if is_own(self, trainer) then note(self, trainer, trainer.engine:gradient_norm(self.opt.norm_type)) end
end

function GradientNormHook:after_train_loss(trainer, step)
  if not is_own(self, trainer) then note(self, trainer, step.gradient_norm) end
end

function GradientNormHook:after_train_epoch(trainer)
  if self.mean:value() then
    trainer:say(("gradient norm  mean %.4g  largest %.4g"):format(self.mean:value(), self.largest))
  end
end

function GradientNormHook:state() return { mean = self.mean:state(), largest = self.largest } end

function GradientNormHook:load_state(state)
  self.mean:load_state(state.mean)
  self.largest = tonumber(state.largest) -- "nan" and "inf" are texts in JSON
end

return GradientNormHook
