--- PrometheusHook keeps a file with the state of the run, as Prometheus' node_exporter reads it (textfile collector).
--
--     hooks = { { type = "PrometheusHook", file = "/var/lib/node_exporter/gpt.prom", labels = { job = "gpt" } } }
--
-- The file is replaced whole, at most every `seconds`, after evaluations and at the end; the name of the file that is
-- written beside it does not end in .prom. Rank 0 writes. A file that cannot be replaced is said once, and training
-- goes on. Names: ganymede_..., base units, counters end in _total. A counter of a run that resumes goes on.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local prometheus = require "ganymede.observe.prometheus"

local PrometheusHook = base.class("PrometheusHook", {
  file = { type = "string", optional = true, doc = "the file, whose name ends in .prom; default: metrics.prom in the "
    .. "run's folder" },
  seconds = { type = "number", min = 0, default = 10, doc = "the seconds between two writes, at least" },
  labels = { type = "table", default = {}, doc = "more labels of every metric, texts by name" },
}, { priority = 11, needs_output = false, needs_loss = false, saves = true })

function PrometheusHook:build(opt)
  if opt.file and not opt.file:match "%.prom$" then
    error(("PrometheusHook: file must end in .prom, or node_exporter does not read it; got %q"):format(opt.file), 0)
  end
  for name, text in pairs(opt.labels) do
    if type(name) ~= "string" or not name:match "^[%a_][%w_]*$" or name:match "^__" or name == "run" then
      error(("PrometheusHook: labels: %s is no name of a label, or is taken"):format(tostring(name)), 0)
    end
    if type(text) ~= "string" then error(("PrometheusHook: labels.%s must be a string"):format(name), 0) end
  end
end

function PrometheusHook:before_train(trainer)
  local path = self.opt.file or base.folder(self, trainer, "file") .. "/metrics.prom"
  if core.rank() > 0 then return end
  local ok, why = core.check_writable(path)
  if not ok then failure(2, "PrometheusHook: %s", why) end
  self.path, self.told, self.tokens, self.last = path, -math.huge, 0, {}
  self.labels = { run = trainer.settings and trainer.settings.name or "run" }
  for name, text in pairs(self.opt.labels) do self.labels[name] = text end
end

-- The metrics of the run as a list. running: 1 or 0.
local function metrics_of(self, trainer, running)
  local last, memory, list = self.last, core.memory(), {}
  local function add(kind, name, value, help)
    list[#list + 1] = { kind = kind, name = "ganymede_" .. name, value = value, help = help }
  end
  add("gauge", "running", running, "Whether the run goes on (1) or has ended (0).")
  add("counter", "steps_total", trainer.step, "Optimizer steps that the run has made.")
  add("counter", "samples_total", last.total_samples, "Samples that were trained on.")
  add("counter", "tokens_total", self.tokens, "Tokens that were trained on since the run began or resumed.")
  add("counter", "training_seconds_total", trainer.seconds, "Seconds in steps since the run began or resumed.")
  add("gauge", "planned_steps", trainer:total_steps(), "Optimizer steps of the whole run.")
  add("gauge", "epoch", last.epoch and last.epoch + 1, "The epoch, from 1.")
  add("gauge", "loss", last.loss, "Loss of the last step, before its update.")
  add("gauge", "learning_rate", last.lr, "Learning rate of the last step.")
  add("gauge", "gradient_norm", last.gradient_norm, "Norm of all gradients of the last step, before clipping.")
  add("gauge", "memory_live_bytes", memory.live, "Bytes of tensors on rank 0.")
  add("gauge", "memory_peak_bytes", memory.peak, "Most bytes of tensors on rank 0 at a time.")
  for _, name in ipairs(options.sorted_keys(trainer.metrics.test or {})) do
    add("gauge", "evaluation_" .. prometheus.word(name), trainer.metrics.test[name], "Of the last evaluation: " .. name
      .. ".")
  end
  add("gauge", "written_timestamp_seconds", core.wall(), "When this was written, in seconds since 1970.")
  return list
end

local function write(self, trainer, running)
  if not self.path then return end
  self.told = core.now()
  local ok, why = failure.try(core.write_whole, self.path, prometheus.text(metrics_of(self, trainer, running),
    self.labels))
  if not ok and not self.said then log.warn("PrometheusHook: %s; training goes on", failure.text(why)) end
  self.said = not ok
end

function PrometheusHook:after_train_loss(trainer, step)
  if not self.path then return end
  self.last, self.tokens = step, self.tokens + (step.tokens or 0)
  if core.now() - self.told >= self.opt.seconds then write(self, trainer, 1) end
end

function PrometheusHook:after_test(trainer) write(self, trainer, 1) end

function PrometheusHook:after_train(trainer)
  write(self, trainer, 0)
  self.path = nil
end

return PrometheusHook
