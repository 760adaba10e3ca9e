--- MetricsHook measures metrics (ganymede.metrics) of each evaluation, in trainer.metrics.test under their names, and
-- on request of training, in trainer.metrics.train, of the epoch so far. A recipe's `metrics = { ... }` is such a hook.
--
-- Before training the metrics measure one batch of the test data, and nothing is kept of it: what does not fit the
-- outputs (TopK of more classes than there are) is refused there, and not after the first epoch.
--
-- Evaluation sends nothing until its end. With `train`, each step makes one small sum over all ranks, and reads the
-- device. A metric that keeps every sample (AUC without bins) sorts them all in each step: give it bins there.
local base = require "ganymede.hooks.base"
local metrics = require "ganymede.metrics.base"
local options = require "ganymede.base.options"

local MetricsHook = base.class("MetricsHook", {
  metrics = { type = "list", list_of = "metrics", doc = "the list of metrics, each { type = NAME, and its options }" },
  train = { type = "boolean", default = false, doc = "whether batches of training are measured, too" },
}, { priority = 0 })

function MetricsHook:build(opt)
  self.needs_output, self.needs_loss = opt.train, opt.train
  self.test, self.train = metrics.list(opt.metrics), {}
  for i, metric in ipairs(opt.train and self.test or {}) do self.train[i] = getmetatable(metric)(metric.opt) end
end

function MetricsHook:measures()
  local names = {}
  for i, metric in ipairs(self.test) do names[i] = metric.name end
  return names
end

local function each(list, method, ...)
  for _, metric in ipairs(list) do metric[method](metric, ...) end
end

-- Writes the values into a table of metrics.
local function tell(list, into)
  for i, value in pairs(metrics.values(list)) do into[list[i].name] = value end
end

function MetricsHook:before_train(trainer)
  local test = trainer.opt.test_dataloader
  if test then trainer:with_first_outputs(test, function(...) each(self.test, "measure", ...) end) end
end

function MetricsHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then each(self.train, "reset") end
end

function MetricsHook:after_train_iter(trainer, output, label)
  each(self.train, "update", output, label)
  tell(self.train, trainer.metrics.train)
end

function MetricsHook:before_test_epoch() each(self.test, "reset") end

function MetricsHook:after_test_iter(_, output, label) each(self.test, "update", output, label) end

function MetricsHook:after_test_epoch(trainer)
  local test, said = trainer.metrics.test, {}
  tell(self.test, test)
  for _, metric in ipairs(self.test) do
    local value = test[metric.name]
    if type(value) == "number" then said[#said + 1] = ("%s %.4f"):format(metric.name:gsub("_", " "), value) end
    if type(value) == "table" then said[#said + 1] = ("%s %s"):format(metric.name:gsub("_", " "),
      options.literal(value)) end
  end
  if #said > 0 then trainer:say("test  " .. table.concat(said, "  ")) end
end

--- One that measures evaluations alone has no state, and takes none.
function MetricsHook:title() return self.opt.train and self.name .. " of training" or self.name end

--- By the metrics with their options: sums of another one say nothing, so that a new one begins with nothing.
function MetricsHook:state()
  local state = {}
  for _, metric in ipairs(self.train) do state[tostring(metric)] = metric:state() end
  return next(state) and state
end

function MetricsHook:load_state(state)
  for _, metric in ipairs(self.train) do
    local own = state[tostring(metric)]
    if own then metric:load_state(own) end
  end
end

return MetricsHook
