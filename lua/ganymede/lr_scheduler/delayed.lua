--- Schedules that put a linear warm-up, a delay, or both before any other schedule. `after` names the other one:
--
--     lr_scheduler = { type = "WarmupDelayerScheduler", warmup_steps = 100, delay_steps = 50,
--                      after = { type = "CosineAnnealingLR" } }
--
-- The rate is (s + 1) / W lr while s < W, then lr for D steps, then that of `after`, which counts its own steps from 0.
-- If `after` needs total_steps and none is given, it gets the number of steps that are left. The state includes that of
-- `after`. The trap: the momentum does not change until `after` begins.
-- @module ganymede.lr_scheduler.delayed
local base = require "ganymede.lr_scheduler.base"
local registry = require "ganymede.base.registry"

local delayed = {}

local delay_steps = { type = "integer", min = 0, default = 0,
  doc = "the number of steps at the full rate before `after` begins" }

local function skipped(opt) return (opt.warmup_steps or 0) + (opt.delay_steps or 0) end

local function after_of(name, opt)
  if type(opt.after.type) ~= "string" then
    error(name .. ": option 'after' must be a table { type = NAME OF A SCHEDULE, and its options }", 0)
  end
  local class, given = registry.lr_schedulers:get(opt.after.type, 0), registry.lr_schedulers.without_type(opt.after)
  local is_class = type(class) == "table" and class.options
  if is_class and class.options.total_steps and given.total_steps == nil and opt.total_steps then
    given.total_steps = math.max(1, opt.total_steps - skipped(opt))
  end
  return class(given)
end

local function define(name, own)
  own.after = { type = "table", doc = "the schedule that follows: { type = NAME, and its options }" }
  own.total_steps = { type = "integer", min = 1, optional = true, doc = base.total_steps.doc }
  local class = base.class(name, own)

  function class:build(opt)
    self.after = after_of(name, opt)
    self.after.base = self.base
  end

  function class:at(step, lr)
    local warmup, skip = self.opt.warmup_steps or 0, skipped(self.opt)
    if step < warmup then return (step + 1) / warmup * lr end
    if step < skip then return lr end
    return self.after:at(step - skip, lr)
  end

  function class:momentum_at(step)
    local skip = skipped(self.opt)
    if step >= skip then return self.after:momentum_at(step - skip) end
  end

  function class:seek(position)
    self.after.position = math.max(0, position - skipped(self.opt))
    return base.Scheduler.seek(self, position)
  end

  delayed[name] = class
end

define("WarmupScheduler", { warmup_steps = base.warmup_steps, warmup_epochs = base.warmup_epochs })
define("DelayerScheduler", { delay_steps = delay_steps })
define("WarmupDelayerScheduler", {
  warmup_steps = base.warmup_steps, warmup_epochs = base.warmup_epochs, delay_steps = delay_steps })

return delayed
