--- LogMetricByStepHook and LogMetricByEpochHook print all metrics of training in one line, every `interval` steps or
-- epochs, and after each evaluation all metrics of the test.
local base = require "ganymede.hooks.base"
local options = require "ganymede.base.options"

local function line(trainer, head, metrics)
  local said = { head }
  for _, name in ipairs(options.sorted_keys(metrics)) do
    local value = metrics[name]
    said[#said + 1] = type(value) == "number" and ("%s %.4g"):format(name, value) or nil
  end
  trainer:say(table.concat(said, "  "))
end

local function tell_test(_, trainer)
  line(trainer, ("test  step %d"):format(trainer.step), trainer.metrics.test)
end

local function define(name, unit, fields)
  fields.needs_output, fields.priority, fields.after_test = false, 11, tell_test
  fields.adds_metrics = false
  return base.class(name, {
    interval = { type = "integer", min = 1, default = 1, doc = ("the number of %s between two lines"):format(unit) },
  }, fields)
end

local ByStep = define("LogMetricByStepHook", "steps", {})

function ByStep:after_train_loss(trainer, step)
  if step.step % self.opt.interval ~= 0 then return end
  line(trainer, ("step %d  loss %.4g"):format(step.step, step.loss), trainer.metrics.train)
end

local ByEpoch = define("LogMetricByEpochHook", "epochs", {})

function ByEpoch:after_train_epoch(trainer)
  if (trainer.epoch + 1) % self.opt.interval ~= 0 then return end
  line(trainer, ("epoch %d  step %d"):format(trainer.epoch + 1, trainer.step), trainer.metrics.train)
end

return { ByStep, ByEpoch }
