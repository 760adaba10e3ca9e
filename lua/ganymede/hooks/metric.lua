--- MetricHook measures a mean of your own over all samples: trainer.metrics.train[name] (of the epoch so far) and
-- trainer.metrics.test[name].
--
--     { type = "MetricHook", name = "error", measure = function(output, label)
--       return (output - label):abs():sum(), output:numel() end }
--
-- measure returns the sum over a batch, and the number of terms in it (default: the number of samples). It is called on
-- the stage that has the output, which holds the last part of the model. Its sums are added over the ranks, so the
-- metric is the same number on any mesh. The sum is a number or a scalar tensor. Sum and number of terms belong to the
-- whole batch: in Lua, tensors have the shape of the whole batch on every rank.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local metrics = require "ganymede.nn.metrics"
local metrics_base = require "ganymede.metrics.base"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"

local MetricHook = base.class("MetricHook", {
  name = { type = "string", doc = "the name of the metric in trainer.metrics.train and trainer.metrics.test" },
  measure = { type = "function",
    doc = "a function(output, label) that returns the sum over a batch and the number of its terms" },
  train = { type = "boolean", default = true, doc = "whether batches of training are measured, too" },
}, { priority = 0 })

function MetricHook:build(opt)
  metrics_base.refuse_loss("MetricHook", opt.name)
  self.needs_output, self.needs_loss = opt.train, opt.train
  self.train, self.test = metrics.Mean(), metrics.Mean()
end

function MetricHook:measures() return { self.opt.name } end

function MetricHook:after_hook_is_attached(trainer)
  for _, other in ipairs(trainer.hooks) do
    for _, name in ipairs(other ~= self and other.measures and other:measures(trainer) or {}) do
      if name == self.opt.name then
        error(("MetricHook: %s measures '%s', too; give one of them another name"):format(other.name, name), 0)
      end
    end
  end
end

-- Raises an error if measure returned something else than a number or a tensor.
local function check(self, what, value)
  if type(value) == "number" or core.is_tensor(value) then return end
  error(("MetricHook %s: measure must return %s, a number or a tensor of one; it returned %s"):format(self.opt.name,
    what, value == nil and "nothing" or options.brief(value)), 0)
end

-- This rank's term of a sum; 0 if the copy of another rank counts.
local function own(value) return core.is_tensor(value) and ranks.part(value) or ranks.share(value) end

local function add(self, mean, output, label)
  local sum, count = 0, 0
  if output ~= nil then
    local measured, over = self.opt.measure(output, label)
    over = over or label:size(1)
    check(self, "the sum over a batch", measured)
    check(self, "the number of its terms second", over)
    sum, count = own(measured), own(over)
  end
  local sums, counts = metrics.over_ranks({ sum }, { count })
  mean:update(sums[1], counts[1])
end

function MetricHook:before_train_epoch(trainer)
  if trainer.step_of_epoch == 0 then self.train:reset() end
end

function MetricHook:after_train_iter(trainer, output, label)
  if not self.opt.train then return end
  add(self, self.train, output, label)
  trainer.metrics.train[self.opt.name] = self.train:value()
end

function MetricHook:before_test_epoch() self.test:reset() end

function MetricHook:after_test_iter(_, output, label) add(self, self.test, output, label) end

function MetricHook:after_test_epoch(trainer)
  local value = self.test:value()
  trainer.metrics.test[self.opt.name] = value
  if value then trainer:say(("test  %s %.4f"):format(self.opt.name, value)) end
end

function MetricHook:title() return ("%s %s"):format(self.name, self.opt.name) end

function MetricHook:state() return self.train:state() end
function MetricHook:load_state(state) self.train:load_state(state) end

return MetricHook
