--- NaNWatchHook says what happens when a loss or a gradient is not finite. stop ends the run with status 8 before any
-- parameter changes, as without this hook. skip leaves out the update of the step. warn prints a line and makes the
-- update. `limit` such steps in a row end the run in every case.
local base = require "ganymede.hooks.base"
local ranks = require "ganymede.job.ranks"

local NaNWatchHook = base.class("NaNWatchHook", {
  action = { type = "string", one_of = { "stop", "skip", "warn" }, default = "stop",
    doc = "what happens in a step whose loss or gradient is not finite; stop: the run ends, skip: the step makes no "
      .. "update, warn: a line is printed and the update is made" },
  limit = { type = "integer", min = 1, default = 10,
    doc = "the number of such steps in a row after which the run ends with status 8" },
}, { priority = 5, needs_output = false })

function NaNWatchHook:build(opt) -- luacheck: ignore self
  if opt.action ~= "stop" or opt.limit == self.options.limit.default then return end
  error("NaNWatchHook: limit is for action = \"skip\" and \"warn\"; with \"stop\" the first such step ends the run", 0)
end

function NaNWatchHook:before_train(trainer)
  self.before, trainer.engine.on_not_finite = trainer.engine.on_not_finite, self.opt.action
  if not self.restored then self.in_a_row = 0 end
  self.restored = nil
end

function NaNWatchHook:after_train_loss(trainer, step)
  if not step.not_finite then
    self.in_a_row = 0
    return
  end
  self.in_a_row = self.in_a_row + 1
  trainer:say(("step %d  loss %g  gradient norm %g: %s"):format(step.step, step.loss, step.gradient_norm,
    self.opt.action == "skip" and "not finite, the update was skipped" or "not finite"))
  if self.in_a_row < self.opt.limit then return end
  ranks.fail(8, "diverged: %d steps in a row were not finite, the last was step %d (loss %g, gradient norm %g)",
    self.in_a_row, step.step, step.loss, step.gradient_norm)
end

function NaNWatchHook:after_train(trainer) trainer.engine.on_not_finite = self.before end

--- A run that is resumed among such steps goes on to count them.
function NaNWatchHook:state() return (self.in_a_row or 0) > 0 and { in_a_row = self.in_a_row } or nil end

function NaNWatchHook:load_state(state) self.in_a_row, self.restored = state.in_a_row, true end

return NaNWatchHook
