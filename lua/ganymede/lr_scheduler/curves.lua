--- Schedules without warm-up. PyTorch's formulas in closed form, where PyTorch has the schedule; s is the
-- step from 0, T the total, lr the optimizer's own rate.
-- @module ganymede.lr_scheduler.curves
local base = require "ganymede.lr_scheduler.base"

local curves = {}

local gamma = { type = "number", above = 0, default = 0.1, doc = "factor of each drop" }

local function cosine(from, to, fraction) return to + (from - to) * (1 + math.cos(math.pi * fraction)) / 2 end

--- eta_min + (lr - eta_min) (1 + cos(pi s / T)) / 2 (Loshchilov and Hutter 2017, without restarts)
local CosineAnnealingLR = base.class("CosineAnnealingLR", { total_steps = base.total_steps, eta_min = base.eta_min })
curves.CosineAnnealingLR = CosineAnnealingLR

function CosineAnnealingLR:at(step, lr)
  local total = self.opt.total_steps
  return cosine(lr, self.opt.eta_min, math.min(step, total) / total)
end

--- Flat for int(T pct_start) steps, then a cosine over the rest.
local FlatAnnealingLR = base.class("FlatAnnealingLR", {
  total_steps = base.total_steps, eta_min = base.eta_min,
  pct_start = { type = "number", min = 0, below = 1, default = 0.72, doc = "share of the steps that are flat" },
})
curves.FlatAnnealingLR = FlatAnnealingLR

function FlatAnnealingLR:at(step, lr)
  local total = self.opt.total_steps
  local flat = math.floor(total * self.opt.pct_start)
  if step < flat then return lr end
  return cosine(lr, self.opt.eta_min, math.min(step - flat, total - flat) / (total - flat))
end

--- lr gamma^(milestones at or before s)
local MultiStepLR = base.class("MultiStepLR", {
  milestones = { type = "table", doc = "list of steps at which the rate drops" }, gamma = gamma,
  total_steps = { type = "integer", min = 1, optional = true, doc = "not used; accepted as in Colossal-AI" },
})
curves.MultiStepLR = MultiStepLR

function MultiStepLR:build(opt)
  for i, m in ipairs(opt.milestones) do
    if type(m) ~= "number" or m < 0 or m ~= math.floor(m) then
      error(("%s: milestones[%d] must be a step, a whole number from 0; got %s"):format(self.name, i, tostring(m)), 0)
    end
  end
end

function MultiStepLR:at(step, lr)
  local drops = 0
  for _, m in ipairs(self.opt.milestones) do
    if step >= m then drops = drops + 1 end
  end
  return lr * self.opt.gamma ^ drops
end

--- lr gamma^floor(s / step_size)
local StepLR = base.class("StepLR", {
  step_size = { type = "integer", min = 1, default = 1, doc = "steps between two drops" }, gamma = gamma,
  total_steps = { type = "integer", min = 1, optional = true, doc = "not used; accepted as in Colossal-AI" },
})
curves.StepLR = StepLR

function StepLR:at(step, lr) return lr * self.opt.gamma ^ math.floor(step / self.opt.step_size) end

--- lr gamma^s
local ExponentialLR = base.class("ExponentialLR", {
  gamma = { type = "number", above = 0, default = 1, doc = "factor a step" },
  total_steps = { type = "integer", min = 1, optional = true, doc = "not used; accepted as in Colossal-AI" },
})
curves.ExponentialLR = ExponentialLR

function ExponentialLR:at(step, lr) return lr * self.opt.gamma ^ step end

--- (lr - end_lr) (1 - s / T)^power + end_lr
local PolynomialLR = base.class("PolynomialLR", {
  total_steps = base.total_steps,
  end_lr = { type = "number", min = 0, default = 1e-4, doc = "rate at the end" },
  power = { type = "number", above = 0, default = 1, doc = "1 is a straight line" },
})
curves.PolynomialLR = PolynomialLR

function PolynomialLR:at(step, lr)
  local o = self.opt
  return (lr - o.end_lr) * (1 - math.min(step, o.total_steps) / o.total_steps) ^ o.power + o.end_lr
end

--- lr lr_lambda(s)
local LambdaLR = base.class("LambdaLR", {
  lr_lambda = { type = "function", doc = "step (from 0) -> factor of the rate; must be pure" },
  total_steps = { type = "integer", min = 1, optional = true, doc = "not used; accepted as in Colossal-AI" },
})
curves.LambdaLR = LambdaLR

function LambdaLR:at(step, lr) return lr * self.opt.lr_lambda(step) end

--- lr lr_lambda(1) lr_lambda(2) ... lr_lambda(s). The products are remembered: asking in order costs one call.
local MultiplicativeLR = base.class("MultiplicativeLR", LambdaLR.options)
curves.MultiplicativeLR = MultiplicativeLR

function MultiplicativeLR:build() self.products = { [0] = 1 } end

function MultiplicativeLR:at(step, lr)
  local products = self.products
  for s = #products + 1, step do products[s] = products[s - 1] * self.opt.lr_lambda(s) end
  return lr * products[step]
end

--- The 1cycle policy (Smith and Topin 2018) in two phases, PyTorch's: from lr / div_factor up to lr in
-- pct_start of the steps, then down to lr / (div_factor final_div_factor). With cycle_momentum the
-- optimizer's momentum (Adam: beta1) goes the other way, from max_momentum to base_momentum and back.
local OneCycleLR = base.class("OneCycleLR", {
  total_steps = base.total_steps,
  pct_start = { type = "number", min = 0, max = 1, default = 0.3, doc = "share of the steps that rise" },
  anneal_strategy = { type = "string", one_of = { "cos", "linear" }, default = "cos", doc = "shape of both phases" },
  cycle_momentum = { type = "boolean", default = true, doc = "move the momentum against the rate?" },
  base_momentum = { type = "number", min = 0, below = 1, default = 0.85, doc = "momentum at the highest rate" },
  max_momentum = { type = "number", min = 0, below = 1, default = 0.95, doc = "momentum at the lowest rate" },
  div_factor = { type = "number", above = 0, default = 25, doc = "highest rate / first rate" },
  final_div_factor = { type = "number", above = 0, default = 1e4, doc = "first rate / last rate" },
})
curves.OneCycleLR = OneCycleLR

local between = {
  cos = cosine,
  linear = function(from, to, fraction) return from + (to - from) * fraction end,
}

-- low at the first step, high at the peak, last at the end. As in PyTorch the peak lies at pct_start of the steps, less
-- one: before the first step where that is less than one step, so that the first is lower than the peak already.
local function one_cycle(opt, step, low, high, last)
  local at = between[opt.anneal_strategy]
  local peak, final = opt.pct_start * opt.total_steps - 1, opt.total_steps - 1
  step = math.min(step, final)
  if step <= peak then return at(low, high, step / peak) end
  return at(high, last, (step - peak) / (final - peak))
end

function OneCycleLR.build(_, opt)
  if opt.pct_start * opt.total_steps == 1 then
    error(("OneCycleLR: pct_start = %g of %d steps is one step, in which the rate would have to rise from the lowest "
      .. "to the highest; change pct_start a little"):format(opt.pct_start, opt.total_steps), 0)
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
