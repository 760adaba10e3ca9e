--- The best value of a metric of evaluation, for hooks that stop training or keep a checkpoint by it.
--
-- NaN is never better: nothing would be better than it. All ranks have the same metrics, so they all decide the same.
local options = require "ganymede.base.options"

local progress = {}

--- The option that says which values are better.
progress.mode = { type = "string", one_of = { "min", "max" }, optional = true,
  doc = "whether the smallest (min) or the largest (max) value is best; default: min for loss, max for others" }

--- Returns -1 where smaller values of a metric are better, else 1. mode: "min", "max"; nil: by the name of the metric.
function progress.sign(metric, mode) return (mode or (metric == "loss" and "min" or "max")) == "min" and -1 or 1 end

--- Returns the value of a metric in the last evaluation; raises that a hook cannot have it.
function progress.value(hook, trainer, metric)
  local value = trainer.metrics.test[metric]
  if value == nil then
    local names = table.concat(options.sorted_keys(trainer.metrics.test), ", ")
    error(("%s: evaluation has no metric '%s'; there are %s"):format(hook.name, metric, names), 0)
  end
  if type(value) ~= "number" then error(("%s: the metric '%s' is no number"):format(hook.name, metric), 0) end
  return value
end

--- Whether a value is better than the best one (nil: there is none) by more than min_delta.
function progress.is_better(sign, value, best, min_delta)
  return value == value and (not best or sign * (value - best) > min_delta)
end

return progress
