--- EarlyStopHook ends training when a metric of evaluation has not become better in `patience` evaluations in a row.
-- The best value so far is trainer.states.best, and its step is trainer.states.best_step. CheckpointHook { best = ... }
-- keeps the checkpoint of that step.
local base = require "ganymede.hooks.base"
local progress = require "ganymede.hooks.progress"

local EarlyStopHook = base.class("EarlyStopHook", {
  metric = { type = "string", default = "loss", doc = "the name of the metric in trainer.metrics.test" },
  mode = progress.mode,
  patience = { type = "integer", min = 1, default = 3,
    doc = "the number of evaluations in a row without progress after which training ends" },
  min_delta = { type = "number", min = 0, default = 0,
    doc = "the change that a value must exceed to count as progress" },
}, { priority = 12, needs_output = false, adds_metrics = false })

function EarlyStopHook:build(opt)
  self.sign = progress.sign(opt.metric, opt.mode)
  self.waited = 0
end

local function tell(self, trainer) trainer.states.best, trainer.states.best_step = self.best, self.best_step end

function EarlyStopHook:after_hook_is_attached(trainer) base.refuse_unmeasured(self, trainer, self.opt.metric) end

-- A run that has ended so is over where it is resumed, too; with more patience it goes on.
function EarlyStopHook:before_train(trainer)
  tell(self, trainer)
  if self.restored and self.waited >= self.opt.patience then trainer:stop() end
  self.restored = nil
end

function EarlyStopHook:after_test(trainer)
  local value = progress.value(self, trainer, self.opt.metric)
  if progress.is_better(self.sign, value, self.best, self.opt.min_delta) then
    self.best, self.best_step, self.waited = value, trainer.step, 0
  else
    self.waited = self.waited + 1
  end
  tell(self, trainer)
  if self.waited < self.opt.patience then return end
  local best = self.best and ("the best %s was %.4g, in step %d; %d evaluations since were not better"):format(
    self.opt.metric, self.best, self.best_step, self.waited)
  trainer:say((best or ("%s was NaN in all of %d evaluations"):format(self.opt.metric, self.waited))
    .. ": training ends")
  trainer:stop()
end

--- The best value of another metric says nothing of this one.
function EarlyStopHook:title() return ("%s %s"):format(self.name, self.opt.metric) end

function EarlyStopHook:state() return { best = self.best, best_step = self.best_step, waited = self.waited } end

function EarlyStopHook:load_state(state)
  self.best, self.best_step, self.waited, self.restored = state.best, state.best_step, state.waited, true
end

return EarlyStopHook
