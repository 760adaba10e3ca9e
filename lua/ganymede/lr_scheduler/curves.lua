--- Schedules without warm-up. Those that PyTorch has follow its formulas, in closed form. In the formulas s is the step
-- from 0, T the number of all steps, and lr the optimizer's own rate.
-- @module ganymede.lr_scheduler.curves
local base = require "ganymede.lr_scheduler.base"
local options = require "ganymede.base.options"

local curves = {}

local gamma = { type = "number", above = 0, default = 0.1, doc = "the factor by which each drop multiplies the rate" }

local function cosine(from, to, fraction) return to + (from - to) * (1 + math.cos(math.pi * fraction)) / 2 end

--- The rate is eta_min + (lr - eta_min) (1 + cos(pi s / T)) / 2 (Loshchilov and Hutter 2017, without restarts).
local CosineAnnealingLR = base.class("CosineAnnealingLR", { total_steps = base.total_steps, eta_min = base.eta_min })
curves.CosineAnnealingLR = CosineAnnealingLR

function CosineAnnealingLR:at(step, lr)
  local total = self.opt.total_steps
  return cosine(lr, self.opt.eta_min, math.min(step, total) / total)
end

--- The rate is lr for floor(T pct_start) steps, then follows half a cosine down to eta_min in the rest.
local FlatAnnealingLR = base.class("FlatAnnealingLR", {
  total_steps = base.total_steps, eta_min = base.eta_min,
  pct_start = { type = "number", min = 0, below = 1, default = 0.72,
    doc = "the part of all steps in which the rate stays flat" },
})
curves.FlatAnnealingLR = FlatAnnealingLR

function FlatAnnealingLR:at(step, lr)
  local total = self.opt.total_steps
  local flat = math.floor(total * self.opt.pct_start)
  if step < flat then return lr end
  return cosine(lr, self.opt.eta_min, math.min(step - flat, total - flat) / (total - flat))
end

--- The rate is lr gamma^n, where n is the number of milestones up to step s.
local MultiStepLR = base.class("MultiStepLR", {
  milestones = { type = "list", doc = "the list of steps, from 0, at which the rate drops" }, gamma = gamma,
  total_steps = { type = "integer", min = 1, optional = true,
    doc = "this schedule does not use it; it is accepted because Colossal-AI passes it" },
})
curves.MultiStepLR = MultiStepLR

function MultiStepLR:build(opt) base.check_milestones(self.name, opt.milestones) end

function MultiStepLR:at(step, lr)
  local drops = 0
  for _, m in ipairs(self.opt.milestones) do
    if step >= m then drops = drops + 1 end
  end
  return lr * self.opt.gamma ^ drops
end

--- The rate is lr gamma^floor(s / step_size).
local StepLR = base.class("StepLR", {
  step_size = { type = "integer", min = 1, default = 1, doc = "the number of steps between two drops" }, gamma = gamma,
  total_steps = { type = "integer", min = 1, optional = true,
    doc = "this schedule does not use it; it is accepted because Colossal-AI passes it" },
})
curves.StepLR = StepLR

function StepLR:at(step, lr) return lr * self.opt.gamma ^ math.floor(step / self.opt.step_size) end

--- The rate is lr gamma^s.
local ExponentialLR = base.class("ExponentialLR", {
  gamma = { type = "number", above = 0, default = 1, doc = "the factor by which each step multiplies the rate" },
  total_steps = { type = "integer", min = 1, optional = true,
    doc = "this schedule does not use it; it is accepted because Colossal-AI passes it" },
})
curves.ExponentialLR = ExponentialLR

function ExponentialLR:at(step, lr) return lr * self.opt.gamma ^ step end

--- The rate is (lr - end_lr) (1 - s / T)^power + end_lr.
local PolynomialLR = base.class("PolynomialLR", {
  total_steps = base.total_steps,
  end_lr = { type = "number", min = 0, default = 0,
    doc = "the learning rate at the end; 0 as in PyTorch (Colossal-AI: 1e-4, to which a smaller rate would rise)" },
  power = { type = "number", above = 0, default = 1, doc = "the exponent of the curve; 1 is a straight line" },
})
curves.PolynomialLR = PolynomialLR

function PolynomialLR:at(step, lr)
  local o = self.opt
  return (lr - o.end_lr) * (1 - math.min(step, o.total_steps) / o.total_steps) ^ o.power + o.end_lr
end

-- What lr_lambda gives for a step.
local function factor(self, step)
  local f = self.opt.lr_lambda(step)
  if type(f) == "number" and f >= 0 and f < math.huge then return f end
  error(("%s: lr_lambda(%g) must return a number from 0; it returned %s"):format(self.name, step, options.brief(f)), 0)
end

--- The rate is lr lr_lambda(s).
local LambdaLR = base.class("LambdaLR", {
  lr_lambda = { type = "function",
    doc = "a function of the step (from 0) that returns the factor of the rate; it must depend on the step alone" },
  total_steps = { type = "integer", min = 1, optional = true,
    doc = "this schedule does not use it; it is accepted because Colossal-AI passes it" },
})
curves.LambdaLR = LambdaLR

function LambdaLR:at(step, lr) return lr * factor(self, step) end

--- The rate is lr lr_lambda(1) lr_lambda(2) ... lr_lambda(s). The products are kept, so each new step costs one call.
local MultiplicativeLR = base.class("MultiplicativeLR", LambdaLR.options)
curves.MultiplicativeLR = MultiplicativeLR

function MultiplicativeLR:build() self.products = { [0] = 1 } end

function MultiplicativeLR:at(step, lr)
  local products = self.products
  for s = #products + 1, step do products[s] = products[s - 1] * factor(self, s) end
  return lr * products[step]
end

--- The 1cycle policy (Smith and Topin 2018) in two phases, as in PyTorch. The rate rises from lr / div_factor to lr in
-- pct_start of the steps, then falls to lr / (div_factor final_div_factor). With cycle_momentum the optimizer's
-- momentum (Adam: beta1) moves in the opposite way, from max_momentum to base_momentum and back.
local OneCycleLR = base.class("OneCycleLR", {
  total_steps = base.total_steps,
  pct_start = { type = "number", min = 0, max = 1, default = 0.3,
    doc = "the part of all steps in which the rate rises" },
  anneal_strategy = { type = "string", one_of = { "cos", "linear" }, default = "cos",
    doc = "the shape of the curve in both phases" },
  cycle_momentum = { type = "boolean", default = true,
    doc = "whether the momentum (Adam: beta1) moves against the rate" },
  base_momentum = { type = "number", min = 0, below = 1, default = 0.85, doc = "the momentum at the highest rate" },
  max_momentum = { type = "number", min = 0, below = 1, default = 0.95, doc = "the momentum at the lowest rate" },
  div_factor = { type = "number", above = 0, default = 25, doc = "the highest rate divided by the first rate" },
  final_div_factor = { type = "number", above = 0, default = 1e4, doc = "the first rate divided by the last rate" },
})
curves.OneCycleLR = OneCycleLR

local between = {
  cos = cosine,
  linear = function(from, to, fraction) return from + (to - from) * fraction end,
}

-- Returns a value that is low at the first step, high at the peak and last at the end. As in PyTorch, the peak is at
-- step pct_start T - 1. If that is below 0, the peak lies before the first step, which then already has less than the
-- peak.
local function one_cycle(opt, step, low, high, last)
  local at = between[opt.anneal_strategy]
  local peak, final = opt.pct_start * opt.total_steps - 1, opt.total_steps - 1
  step = math.min(step, final)
  if step <= peak then return at(low, high, step / peak) end
  return at(high, last, (step - peak) / (final - peak))
end

local function refuse_momentum(opt)
  for _, key in ipairs { "base_momentum", "max_momentum" } do
    if opt[key] ~= OneCycleLR.options[key].default then
      error(("OneCycleLR: %s has no effect with cycle_momentum = false; leave one of both out"):format(key), 0)
    end
  end
end

function OneCycleLR.build(_, opt)
  if not opt.cycle_momentum then refuse_momentum(opt) end
  if opt.pct_start * opt.total_steps == 1 then
    error(("OneCycleLR: pct_start = %g of %d steps is one step, in which the rate cannot rise; change pct_start a "
      .. "little"):format(opt.pct_start, opt.total_steps), 0)
  end
end

function OneCycleLR:at(step, lr)
  local o = self.opt
  return one_cycle(o, step, lr / o.div_factor, lr, lr / o.div_factor / o.final_div_factor)
end

function OneCycleLR:momentum_at(step)
  local o = self.opt
  if o.cycle_momentum then return one_cycle(o, step, o.max_momentum, o.base_momentum, o.max_momentum) end
end

return curves
