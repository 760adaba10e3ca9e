--- PrometheusHook shows the state of the run to Prometheus: in a file, as node_exporter reads it (textfile collector),
-- or over HTTP on a port of this machine.
--
--     hooks = { { type = "PrometheusHook", file = "/var/lib/node_exporter/gpt.prom", labels = { job = "gpt" } } }
--     hooks = { { type = "PrometheusHook", port = 9400 } }     -- http://127.0.0.1:9400/metrics; 0: any free port
--
-- A thread of rank 0 answers on the port (host/observe/text_server.h), also while a step runs, with what was known a
-- second ago or later. A port that cannot be had ends the run before its first step. With a port alone there is no
-- file.
--
-- The file is replaced whole, at most every `seconds`, after evaluations and at the end; the name of the file that is
-- written beside it does not end in .prom. Rank 0 writes. A file that cannot be replaced is said once, and training
-- goes on. Names: ganymede_..., base units, counters end in _total. A counter of a run that resumes goes on.
-- Two metrics whose names would become one are refused; those of a hook that does not say what it measures are known
-- only after an evaluation, and then a line says that the second is left out.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local prometheus = require "ganymede.observe.prometheus"

local PrometheusHook = base.class("PrometheusHook", {
  file = { type = "string", optional = true, doc = "the file, whose name ends in .prom; default: metrics.prom in the "
    .. "run's folder" },
  port = { type = "integer", min = 0, max = 65535, optional = true, doc = "the port of 127.0.0.1 at which the metrics "
    .. "are served; 0: one that is free, which is told" },
  seconds = { type = "number", min = 0, default = 10, doc = "the seconds between two writes, at least" },
  labels = { type = "table", default = {}, doc = "more labels of every metric, texts by name" },
}, { priority = 11, needs_output = false, needs_loss = false, saves = true, adds_metrics = false })

local SERVED = 1 -- seconds after which what the port serves is made anew

-- Without a file, seconds that are more than those of the port change nothing.
local function refuse_seconds(opt, default)
  if opt.file or not opt.port or opt.seconds < SERVED or opt.seconds == default then return end
  error(("PrometheusHook: seconds = %g is for a file; what a port serves is never older than %g s: give file too, or "
    .. "leave seconds out"):format(opt.seconds, SERVED), 0)
end

function PrometheusHook:build(opt)
  refuse_seconds(opt, self.options.seconds.default)
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

-- Returns the names of metrics that Prometheus can tell apart, and a text about the first two that it cannot, or nil.
local function told_apart(names)
  local kept, by_word, clash = {}, {}, nil
  for _, name in ipairs(names) do
    local word = prometheus.word(name)
    if by_word[word] then
      clash = clash or ("the metrics '%s' and '%s' are both ganymede_evaluation_%s to Prometheus; give one of them "
        .. "another name"):format(by_word[word], name, word)
    else
      by_word[word] = name
      kept[#kept + 1] = name
    end
  end
  return kept, clash
end

function PrometheusHook:after_hook_is_attached(trainer)
  local _, clash = told_apart(base.measured_names(trainer))
  if clash then error(self.name .. ": " .. clash, 0) end
end

local TYPE = "text/plain; version=0.0.4; charset=utf-8"

-- Serves the metrics on a port.
local function listen(self)
  local ok, server = failure.try(core.text_server, self.opt.port, "/metrics", TYPE)
  if not ok then failure(2, "PrometheusHook: %s", failure.text(server)) end
  self.server = server
  log.info("PrometheusHook: http://127.0.0.1:%d/metrics", server:port())
end

function PrometheusHook:before_train(trainer)
  local wants_file = self.opt.file or not self.opt.port
  local path = self.opt.file or wants_file and base.folder(self, trainer, "file") .. "/metrics.prom" or nil
  if core.rank() > 0 then return end
  local ok, why = true, nil
  if path then ok, why = core.check_writable(path) end
  if not ok then failure(2, "PrometheusHook: %s", why) end
  self.shows, self.path, self.tokens, self.last = true, path, 0, {}
  self.told, self.served = -math.huge, -math.huge
  self.labels = { run = trainer.settings and trainer.settings.name or "run" }
  for name, text in pairs(self.opt.labels) do self.labels[name] = text end
  if self.opt.port then
    listen(self)
    self:show(trainer, 1)
  end
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
  add("gauge", "gradient_noise", trainer.states.gradient_noise, "Noise scale of the gradient, in samples.")
  add("gauge", "memory_live_bytes", memory.live, "Bytes of tensors on rank 0.")
  add("gauge", "memory_peak_bytes", memory.peak, "Most bytes of tensors on rank 0 at a time.")
  local names, clash = told_apart(options.sorted_keys(trainer.metrics.test or {}))
  if clash and not self.said_clash then log.warn("PrometheusHook: %s; until then the second is left out", clash) end
  self.said_clash = self.said_clash or clash
  for _, name in ipairs(names) do
    local value = trainer.metrics.test[name]
    if type(value) == "number" then
      add("gauge", "evaluation_" .. prometheus.word(name), value, "Of the last evaluation: " .. name .. ".")
    end
  end
  add("gauge", "written_timestamp_seconds", core.wall(), "When this was written, in seconds since 1970.")
  return list
end

local function write(self, text)
  local ok, why = failure.try(core.write_whole, self.path, text)
  if not ok and not self.said then log.warn("PrometheusHook: %s; training goes on", failure.text(why)) end
  self.said = not ok
end

--- Shows the metrics. running: 1 or 0; only_due: only where it is time for it.
function PrometheusHook:show(trainer, running, only_due)
  local now = core.now()
  local file = self.path and not (only_due and now - self.told < self.opt.seconds)
  local port = self.server and not (only_due and now - self.served < math.min(SERVED, self.opt.seconds))
  if not (file or port) then return end
  local text = prometheus.text(metrics_of(self, trainer, running), self.labels)
  if port then
    self.served = now
    self.server:set(text)
  end
  if file then
    self.told = now
    write(self, text)
  end
end

function PrometheusHook:after_train_loss(trainer, step)
  if not self.shows then return end
  self.last, self.tokens = step, self.tokens + (step.tokens or 0)
  self:show(trainer, 1, true)
end

function PrometheusHook:after_test(trainer)
  if self.shows then self:show(trainer, 1) end
end

function PrometheusHook:after_failure(trainer) self:after_train(trainer) end

function PrometheusHook:after_train(trainer)
  if not self.shows then return end
  self:show(trainer, 0)
  if self.server then self.server:close() end
  self.shows, self.path, self.server = nil, nil, nil
end

return PrometheusHook
