--- EarlyStopHook ends training when a metric of evaluation has not become better in `patience` evaluations in a row.
-- The best value so far is trainer.states.best, and its step is trainer.states.best_step. NaN is never better: nothing
-- would be better than it.
local base = require "ganymede.hooks.base"

local EarlyStopHook = base.class("EarlyStopHook", {
  metric = { type = "string", default = "loss", doc = "the name of the metric in trainer.metrics.test" },
  mode = { type = "string", one_of = { "min", "max" }, optional = true,
           doc = "whether the smallest (min) or the largest (max) value is best; default: min for loss, max for "
             .. "others" },
  patience = { type = "integer", min = 1, default = 3,
    doc = "the number of evaluations in a row without progress after which training ends" },
  min_delta = { type = "number", min = 0, default = 0,
    doc = "the change that a value must exceed to count as progress" },
}, { priority = 12, needs_output = false, adds_metrics = false })

function EarlyStopHook:build(opt)
  self.sign = (opt.mode or (opt.metric == "loss" and "min" or "max")) == "min" and -1 or 1
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

-- All ranks have the same metrics, so they all decide the same.
function EarlyStopHook:after_test(trainer)
  local value = trainer.metrics.test[self.opt.metric]
  if value == nil then
    local names = table.concat(require("ganymede.base.options").sorted_keys(trainer.metrics.test), ", ")
    error(("EarlyStopHook: evaluation has no metric '%s'; there are %s"):format(self.opt.metric, names), 0)
  end
  if type(value) ~= "number" then
    error(("EarlyStopHook: the metric '%s' is no number"):format(self.opt.metric), 0)
  end
  if value == value and (not self.best or self.sign * (value - self.best) > self.opt.min_delta) then
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
