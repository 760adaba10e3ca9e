--- ThroughputHook prints samples and tokens per second, and the time that is left. The time of evaluations and between
-- epochs does not count.
--
-- With peak_flops it also prints the model FLOPs utilisation (Chowdhery et al. 2022): the operations of the steps, as
-- the kernels count them, divided by those that all ranks could have done in the same time. peak_flops is the most that
-- one rank can do in a second: a number, such as that of a data sheet, or "measured": the best of a few products of 512
-- x 512 matrices before training, on all ranks at once, so that ranks that share cores share the peak.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local ThroughputHook = base.class("ThroughputHook", {
  ignored_steps = { type = "integer", min = 0, default = 0,
    doc = "the number of first steps of the run that are not measured" },
  interval = { type = "integer", min = 1, optional = true,
    doc = "the number of steps between two lines; default: one line at the end of each epoch" },
  peak_flops = { type = { "number", "string" }, above = 0, optional = true,
                 doc = "the most floating point operations that one rank can do in a second, or \"measured\"; with it "
                   .. "the line has the utilisation" },
}, { priority = 10, needs_output = false, needs_loss = false })

function ThroughputHook:build(opt)
  if type(opt.peak_flops) == "string" and opt.peak_flops ~= "measured" then
    error(("ThroughputHook: peak_flops must be a number or \"measured\"; got %q"):format(opt.peak_flops), 0)
  end
  self.steps, self.samples, self.tokens, self.seconds, self.ignored, self.flops = 0, 0, 0, 0, 0, 0
end

-- Returns the best rate of some products, after one that warms up. The kernels' own counters count the operations.
local function measured()
  local a, b = tensors.uniform { 512, 512 }, tensors.uniform { 512, 512 }
  local best = 0
  for round = 0, 4 do
    local flops, started = core.counters().flops, core.now()
    tensors.scope(function() return (a:matmul(b)):size(1) end)
    local rate = (core.counters().flops - flops) / (core.now() - started)
    if round > 0 then best = math.max(best, rate) end
  end
  return best
end

function ThroughputHook:before_train()
  local peak = self.opt.peak_flops
  if not peak then return end
  self.peak = ranks.sum { peak == "measured" and measured() or peak }[1]
end

function ThroughputHook:before_train_iter() self.started, self.flops_before = core.now(), core.counters().flops end

-- The text with the utilisation, or "". Collective: all ranks call it in the same step.
local function utilisation(self, trainer)
  if not self.peak then return "" end
  local states = trainer.states
  states.flops_per_second = ranks.sum { self.flops }[1] / self.seconds
  states.mfu = states.flops_per_second / self.peak
  return ("  %.3g GFLOP/s, MFU %.1f %%"):format(states.flops_per_second / 1e9, 100 * states.mfu)
end

local function line(self, trainer)
  local states = trainer.states
  local tokens = states.tokens_per_second and ("  %.0f tokens/s"):format(states.tokens_per_second) or ""
  local left = states.seconds_left and ("  %.0f s left"):format(states.seconds_left) or ""
  trainer:say(("%.1f samples/s%s  %.1f ms a step%s%s"):format(states.samples_per_second, tokens,
    1e3 * self.seconds / self.steps, utilisation(self, trainer), left))
end

function ThroughputHook:after_train_iter(trainer)
  if self.ignored < self.opt.ignored_steps then
    self.ignored = self.ignored + 1
    return
  end
  self.steps = self.steps + 1
  self.samples, self.tokens = self.samples + trainer.last.samples, self.tokens + trainer.last.tokens
  self.seconds = self.seconds + core.now() - self.started
  self.flops = self.flops + core.counters().flops - self.flops_before
  local states, steps = trainer.states, trainer:total_steps()
  states.samples_per_second = self.samples / self.seconds
  states.tokens_per_second = self.tokens > 0 and self.tokens / self.seconds or nil
  states.seconds_left = steps and (steps - trainer.step) * self.seconds / self.steps or nil
  if self.opt.interval and trainer.step % self.opt.interval == 0 then line(self, trainer) end
end

function ThroughputHook:after_train_epoch(trainer)
  if not self.opt.interval and self.steps > 0 then line(self, trainer) end
end

return ThroughputHook
