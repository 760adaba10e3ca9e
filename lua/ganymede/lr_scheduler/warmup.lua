--- Schedules that begin with a linear warm-up of W steps: the rate is (s + 1) / W lr while s < W. All except
-- LinearWarmupLR wrap another schedule (`after`), which begins at step W and counts its steps from 0. If the run ends
-- during the warm-up, the other schedule never begins.
-- @module ganymede.lr_scheduler.warmup
local base = require "ganymede.lr_scheduler.base"
local curves = require "ganymede.lr_scheduler.curves"
local log = require "ganymede.base.log"

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

-- The milestones behind the warm-up, counted from its end. Those inside it have no effect, as in Colossal-AI.
local function behind_warmup(opt)
  local shifted, inside = {}, {}
  for _, m in ipairs(opt.milestones) do
    if m >= opt.warmup_steps then shifted[#shifted + 1] = m - opt.warmup_steps else inside[#inside + 1] = m end
  end
  return shifted, inside
end

-- Milestones are steps of the whole run.
class("MultiStepWarmupLR", { milestones = own("MultiStepLR", "milestones"), gamma = own("MultiStepLR", "gamma") },
  function(opt)
    base.check_milestones("MultiStepWarmupLR", opt.milestones)
    return curves.MultiStepLR, { milestones = behind_warmup(opt), gamma = opt.gamma }
  end)

local build = warmup.MultiStepWarmupLR.build

-- A state that is loaded builds again; what is dropped is said once.
function warmup.MultiStepWarmupLR:build(opt)
  build(self, opt)
  local _, inside = behind_warmup(opt)
  if #inside == 0 or self.said then return end
  self.said = true
  log.info("MultiStepWarmupLR: the rate does not drop at %s, inside the warm-up of %d steps; milestones count from the "
    .. "first step of the run", table.concat(inside, ", "), opt.warmup_steps)
end

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
