--- Loss scaling, for gradients in f16: the smallest positive number of f16 is 6e-8, and many gradients are smaller.
--
-- Backward passes begin with the loss scale in place of 1, so that gradients carry it; updates divide by it. If the
-- gradients of a step overflow, the step makes no update and the scale shrinks. After growth_interval updates in a row
-- it grows (Micikevicius et al. 2018, arXiv:1710.03740). The rule is that of PyTorch's GradScaler, and the device
-- decides (kernels/step_control.h). All ranks decide the same, because they have the same loss and norm. The trap:
-- p:grad() is the scaled gradient.
-- @module ganymede.optim.loss_scaling
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"

local loss_scaling = {}

loss_scaling.fields = {
  initial_scale = { type = "number", min = 1, max = 2 ^ 32, default = 2 ^ 16, doc = "the scale of the first step" },
  growth_factor = { type = "number", min = 1, max = 2 ^ 16, default = 2,
    doc = "the factor by which the scale grows" },
  backoff_factor = { type = "number", above = 0, max = 1, default = 0.5,
    doc = "the factor by which the scale shrinks after an overflow" },
  growth_interval = { type = "integer", min = 1, max = 2 ^ 31, default = 2000,
    doc = "the number of updates in a row after which the scale grows" },
  mode = { type = "string", one_of = { "torch", "apex", "naive" }, optional = true,
    doc = "Colossal-AI's word for the library that scales losses; all of them mean Ganymede's own scaling" },
}
loss_scaling.aliases = { init_scale = "initial_scale" }

--- Returns the checked fields of a user's table; true and nil stand for the defaults. Returns nil for false.
function loss_scaling.options(given)
  if given == false then return nil end
  return options.check("fp16", loss_scaling.fields, given ~= true and given or {}, 2, loss_scaling.aliases)
end

local Scaling = {}
Scaling.__index = Scaling

--- Starts loss scaling for the decisions of `control` (core.step_control()). given: the fields above, checked. From
-- here on the losses of this rank are scaled, until an engine that scales differently, or not at all, runs a backward
-- pass.
function loss_scaling.start(control, given)
  local self = setmetatable({ scale = given.initial_scale, carried = given.initial_scale, good = 0, overflows = 0,
                              given = given, control = control }, Scaling)
  control:set("loss_scale", self.scale)
  control:scale_losses(true)
  return self
end

--- Writes the attributes of step_control into rule.
function Scaling:fill(rule)
  rule.growth, rule.backoff = self.given.growth_factor, self.given.backoff_factor
  rule.growth_interval = self.given.growth_interval
end

--- Takes the numbers of a step about which the device has decided.
function Scaling:tell(step, numbers)
  self.carried = self.scale
  if numbers.cause == 2 then
    self.overflows = self.overflows + 1
    if ranks.is_first() then
      log.info("step %d: gradients overflowed f16, and the update was left out; the loss scale is now %g", step,
        numbers.loss_scale)
    end
  end
  if numbers.loss_scale > 0 then self.scale, self.good = numbers.loss_scale, numbers.good end -- 0: no values (meta)
end

--- Returns what a checkpoint keeps of it; load_state restores it.
function Scaling:state() return { scale = self.scale, good = self.good, overflows = self.overflows } end

function Scaling:load_state(state)
  self.scale, self.carried, self.good, self.overflows = state.scale, state.scale, state.good, state.overflows
  self.control:set("loss_scale", state.scale)
  self.control:set("good", state.good)
end

return loss_scaling
