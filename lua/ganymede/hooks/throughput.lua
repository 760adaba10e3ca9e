--- ThroughputHook: samples and tokens a second, and the time that is left. Time spent in evaluation and
-- between epochs does not count.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"

local ThroughputHook = base.class("ThroughputHook", {
  ignored_steps = { type = "integer", min = 0, default = 0, doc = "first steps of the run that are not measured" },
  interval = { type = "integer", min = 1, optional = true, doc = "steps between two lines; default: an epoch" },
}, { priority = 10, needs_output = false })

function ThroughputHook:build()
  self.steps, self.samples, self.tokens, self.seconds, self.ignored = 0, 0, 0, 0, 0
end

function ThroughputHook:before_train_iter() self.started = core.now() end

local function line(self, trainer)
  local states = trainer.states
  local tokens = states.tokens_per_second and ("  %.0f tokens/s"):format(states.tokens_per_second) or ""
  local left = states.seconds_left and ("  %.0f s left"):format(states.seconds_left) or ""
  trainer:say(("%.1f samples/s%s  %.1f ms a step%s"):format(states.samples_per_second, tokens,
    1e3 * self.seconds / self.steps, left))
end

function ThroughputHook:after_train_iter(trainer)
  if self.ignored < self.opt.ignored_steps then
    self.ignored = self.ignored + 1
    return
  end
  self.steps = self.steps + 1
  self.samples, self.tokens = self.samples + trainer.last.samples, self.tokens + trainer.last.tokens
  self.seconds = self.seconds + core.now() - self.started
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
