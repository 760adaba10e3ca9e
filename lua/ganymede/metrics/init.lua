--- Metrics: what is measured of outputs and labels, the same number on any ranks, stages and sizes of batches.
--
--     metrics = { { type = "Accuracy" }, { type = "F1", average = "macro" } }      in a recipe: of every evaluation
--     hooks = { { type = "MetricsHook", metrics = { { type = "Accuracy" } }, train = true } }     of training, too
--
--     local f1 = gm.metrics.F1 { average = "macro" }                           in code
--     f1:update(output, label)    f1:value()    f1:reset()
--
-- base.lua says how to write one (gm.metrics.class). gm.metrics also has means over batches and the counts of right
-- answers that losses and hooks use (ganymede.nn.metrics).
-- @module ganymede.metrics
local base = require "ganymede.metrics.base"
local counts = require "ganymede.nn.metrics"

local metrics = { class = base.class, values = base.values, Metric = base.Metric }

for name, fn in pairs(counts) do metrics[name] = fn end
for _, part in ipairs { "classes", "mean", "ranking" } do
  for _, class in ipairs(require("ganymede.metrics." .. part)) do metrics[class.class_name] = class end
end

return require("ganymede.base.missing").guard("metrics", metrics)
