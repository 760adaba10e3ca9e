--- Makes text in Prometheus' exposition format (version 0.0.4).
--
--     prometheus.text({ { name = "ganymede_steps_total", kind = "counter", help = "...", value = 12 } }, { run = "x" })
--
-- A metric without a value is left out. Names follow Prometheus' rules: base units, counters end in _total; `promtool
-- check metrics` has nothing to say about what PrometheusHook writes.
-- @module ganymede.observe.prometheus
local options = require "ganymede.base.options"

local prometheus = {}

local function escaped(text) return (text:gsub("[\\\n\"]", { ["\\"] = "\\\\", ["\n"] = "\\n", ['"'] = '\\"' })) end

local function number(x)
  if x ~= x then return "NaN" end
  if x == math.huge then return "+Inf" end
  if x == -math.huge then return "-Inf" end
  return ("%.17g"):format(x)
end

--- Returns a word that can be a part of a metric's name.
function prometheus.word(text) return (text:gsub("[^%w_]", "_")) end

--- Returns the text. metrics: list of { name, kind = "gauge" or "counter", help, value }; labels: texts by name.
function prometheus.text(metrics, labels)
  local pairs_of, out = {}, {}
  for i, name in ipairs(options.sorted_keys(labels)) do
    pairs_of[i] = ('%s="%s"'):format(name, escaped(labels[name]))
  end
  local label = #pairs_of > 0 and "{" .. table.concat(pairs_of, ",") .. "}" or ""
  for _, metric in ipairs(metrics) do
    if type(metric.value) == "number" then
      out[#out + 1] = ("# HELP %s %s\n# TYPE %s %s\n%s%s %s\n"):format(metric.name, (metric.help:gsub("[\\\n]", " ")),
        metric.name, metric.kind, metric.name, label, number(metric.value))
    end
  end
  return table.concat(out)
end

return prometheus
