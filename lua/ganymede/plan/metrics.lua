--- Lets the metrics of a recipe measure one batch of its test data in a rehearsal: what does not fit the outputs, such
-- as TopK of more classes than there are, is an error of `check`, too.
--
--     rehearsed_metrics(config, trainer) -> { test = names that an evaluation measures, others = whether there may be
--                                             more, train = names that steps may have }
--
-- There are no numbers on the meta device: a metric that reads one says nothing here. Nor does one of a pipeline, whose
-- outputs another stage has; `run` lets all metrics measure a batch before its first step.
-- @module ganymede.plan.metrics
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local hooks = require "ganymede.hooks.base"
local metrics = require "ganymede.metrics.base"
local registry = require "ganymede.base.registry"

-- Adds the metrics of a list of { type = NAME }, names or objects.
local function add(out, list)
  for _, metric in ipairs(metrics.list(list or {})) do out[#out + 1] = metric end
end

-- Returns the metrics of a recipe: its own list, and those of its hooks.
local function metrics_of(config)
  local out = {}
  add(out, config.metrics)
  for _, hook in ipairs(config.hooks or {}) do
    if type(hook) == "table" and hook.type == "MetricsHook" then add(out, hook.metrics) end
    if type(hook) == "table" and hook.name == "MetricsHook" then add(out, hook.test) end -- the object itself
  end
  return out
end

-- Measures, and forgives only that there are no numbers.
local function measure(metric, output, label)
  local ok, why = failure.try(metric.measure, metric, output, label)
  if not ok and not failure.text(why):find("has no values here", 1, true) then error(why, 0) end
end

-- The names of what is measured, by what the hooks of the recipe say.
local function names_of(config, trainer)
  local list = {}
  local ok = failure.try(function()
    for i, given in ipairs(hooks.of_config(config)) do list[i] = registry.hooks:build(given) end
  end)
  local test, others = hooks.measured_names { hooks = list, engine = trainer.engine }
  return { test = test, others = others or not ok, train = hooks.step_names }
end

local function measure_all(config, trainer)
  if trainer.engine.stage.stages > 1 then return end
  local list = metrics_of(config)
  local test = #list > 0 and data.of_config(config, "test")
  if not test then return end
  failure.protect(function() test:close() end, function()
    trainer:with_first_outputs(test, function(output, label)
      for _, metric in ipairs(list) do measure(metric, output, label) end
    end)
  end)
end

return function(config, trainer)
  measure_all(config, trainer)
  return names_of(config, trainer)
end
