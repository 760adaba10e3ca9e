--- Schedules that begin with a linear warm-up of W steps: the rate is (s + 1) / W lr while s < W. All except
-- LinearWarmupLR wrap another schedule (`after`), which begins at step W and counts its steps from 0. If the run ends
-- during the warm-up, the other schedule never begins.
-- @module ganymede.lr_scheduler.warmup
local base = require "ganymede.lr_scheduler.base"
local curves = require "ganymede.lr_scheduler.curves"

local warmup = {}

-- The number of steps after the warm-up.
local function left(opt) return math.max(1, opt.total_steps - opt.warmup_steps) end

-- Defines a class. after(opt) returns class and options of the wrapped schedule.
local function class(name, own_options, after)
  local opts = { total_steps = base.total_steps, warmup_steps = base.warmup_steps, warmup_epochs = base.warmup_epochs }
  for key, entry in pairs(own_options) do opts[key] = entry end
  local new = base.class(name, opts)

  function new:build(opt)
    local after_class, after_options = after(opt)
    self.after = after_class(after_options)
    self.after.base = self.base
  end

  function new:at(step, lr)
    local w = self.opt.warmup_steps
    if step < w then return (step + 1) / w * lr end
    return self.after:at(step - w, lr)
  end

  function new:seek(position)
    self.after.position = math.max(0, position - self.opt.warmup_steps)
    return base.Scheduler.seek(self, position)
  end

  warmup[name] = new
  return new
end

local function own(from, name) return curves[from].options[name] end

class("CosineAnnealingWarmupLR", { eta_min = base.eta_min }, function(opt)
  return curves.CosineAnnealingLR, { total_steps = left(opt), eta_min = opt.eta_min }
end)

class("FlatAnnealingWarmupLR", { eta_min = base.eta_min, pct_start = own("FlatAnnealingLR", "pct_start") },
  function(opt)
    return curves.FlatAnnealingLR,
      { total_steps = left(opt), eta_min = opt.eta_min, pct_start = opt.pct_start }
  end)

-- Milestones are steps of the whole run; those inside the warm-up have no effect.
class("MultiStepWarmupLR", { milestones = own("MultiStepLR", "milestones"), gamma = own("MultiStepLR", "gamma") },
  function(opt)
    local shifted = {}
    for _, m in ipairs(opt.milestones) do
      if type(m) ~= "number" then return curves.MultiStepLR, { milestones = opt.milestones } end -- it refuses it
      if m >= opt.warmup_steps then shifted[#shifted + 1] = m - opt.warmup_steps end
    end
    return curves.MultiStepLR, { milestones = shifted, gamma = opt.gamma }
  end)

class("PolynomialWarmupLR", { end_lr = own("PolynomialLR", "end_lr"), power = own("PolynomialLR", "power") },
  function(opt)
    return curves.PolynomialLR,
      { total_steps = left(opt), end_lr = opt.end_lr, power = opt.power }
  end)

--- The rate is (s + 1) / (W + 1) lr while s < W, then (T - s) / (T - W) lr, which is 0 at T.
local LinearWarmupLR = base.class("LinearWarmupLR",
  { total_steps = base.total_steps, warmup_steps = base.warmup_steps, warmup_epochs = base.warmup_epochs })
warmup.LinearWarmupLR = LinearWarmupLR

function LinearWarmupLR:at(step, lr)
  local w, total = self.opt.warmup_steps, self.opt.total_steps
  if step < w then return (step + 1) / (w + 1) * lr end
  return math.max(0, (total - step) / math.max(1, total - w)) * lr
end

return warmup
