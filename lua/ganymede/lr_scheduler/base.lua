--- What all learning-rate schedulers share: checked options, a position, and a state that can be restored.
--
-- A scheduler is a pure function of the step: `at(step, base)` returns the learning rate of optimizer step `step`
-- (counted from 0) for the optimizer's own rate `base`, and depends on nothing else. The object adds a position. So a
-- run resumes by setting the position, and no rate depends on how a run came to a step.
--
--     local s = lr_scheduler.StepLR({ step_size = 30 }, optimizer)    -- sets optimizer.lr = at(0)
--     engine:step() s:step()                                          -- the next step's rate
--
-- The trap: beyond total_steps the rate stays what it was at total_steps (PyTorch's cosine rises again).
-- @module ganymede.lr_scheduler.base
local options = require "ganymede.base.options"
local own = require "ganymede.base.own"
local registry = require "ganymede.base.registry"
local sha256 = require "ganymede.base.sha256"
local signature = require "ganymede.base.signature"

local Scheduler = {}
Scheduler.__index = Scheduler

--- Returns the learning rate of optimizer step `step` (from 0) for a base rate. Each class defines it.
function Scheduler:at() error(self.name .. " does not define at(step, base)", 2) end

--- Returns the momentum (SGD) or beta1 (Adam) of a step; nil: the schedule does not change it.
function Scheduler.momentum_at(_) return nil end

-- Returns a number for a schedule that no code of a user takes part in, the same wherever its options are; false:
-- such code does, and what it returns may differ between ranks.
local function identity(self)
  if not (own.has(self.at) and own.has(self.momentum_at)) or self.opt.lr_lambda then return false end
  local text, after = tostring(self), self.after and identity(self.after)
  if after == false then return false end
  return tonumber(sha256(("%s %.17g %s"):format(text, self.base, after or "")):sub(1, 12), 16)
end

local function apply(self)
  local optimizer = self.optimizer
  if not optimizer then return end
  optimizer.lr = self:lr()
  local momentum = self:momentum_at(self.position)
  if momentum then optimizer:set_momentum(momentum) end
  if self.identity == nil then self.identity = identity(self) end
  optimizer.scheduled = self.identity and { lr = optimizer.lr, momentum = momentum, identity = self.identity,
    position = self.position } or nil
end

-- A schedule may be a user's own: what it returns wrongly is said as its own mistake.
local function check_rate(self, step, rate)
  if type(rate) == "number" and rate >= 0 and rate < math.huge then return rate end
  error(("%s:at(%d, %s) must return a learning rate, a number that is at least 0; it returned %s"):format(self.name,
    step, options.brief(self.base), rate == nil and "nothing" or options.brief(rate)), 0)
end

--- Returns the rate of the current step, or of step `step`.
function Scheduler:lr(step)
  step = step or self.position
  return check_rate(self, step, self:at(step, self.base))
end

--- Moves on by one optimizer step and sets the optimizer's rate.
function Scheduler:step() return self:seek(self.position + 1) end

--- Sets the position, which is the number of optimizer steps made, and the optimizer's rate.
function Scheduler:seek(position)
  self.position = position
  apply(self)
  return self
end

-- Functions cannot be stored. An option that is a function is left out, and comes from the recipe when a run resumes.
local function stored(opt)
  local out = {}
  for name, value in pairs(opt) do
    if type(value) == "number" or type(value) == "string" or type(value) == "boolean" then
      out[name] = value
    elseif type(value) == "table" then
      out[name] = stored(value)
    end
  end
  return out
end

--- Returns everything on which the coming rates depend, as a table of plain values, including nested schedulers.
function Scheduler:state()
  return { type = self.name, position = self.position, base = self.base, options = stored(self.opt),
           after = self.after and self.after:state() or nil }
end

-- Returns the stored options, completed by the functions of the current options.
local function with_functions(from, now)
  local out = {}
  for name, value in pairs(now) do
    if type(value) == "function" then out[name] = value end
  end
  for name, value in pairs(from) do
    local both = type(value) == "table" and type(now[name]) == "table"
    out[name] = both and with_functions(value, now[name]) or value
  end
  return out
end

-- Checks a whole state before any of it is used, and returns its options.
local function checked(self, state)
  if type(state) ~= "table" or state.type ~= self.name then
    error(("%s: the state belongs to %s"):format(self.name, tostring(type(state) == "table" and state.type or state)),
      0)
  end
  for _, field in ipairs { "position", "base" } do
    if type(state[field]) ~= "number" then error(("%s: the state has no '%s'"):format(self.name, field), 0) end
  end
  return options.check(self.name, self.options, with_functions(state.options or {}, self.opt), 0)
end

--- Restores a state: options, base rate, position, and those of nested schedulers. All of it is checked first. A state
-- of another type is an error and changes nothing.
function Scheduler:load_state(state)
  local opt = checked(self, state)
  local after = self.after and checked(self.after, state.after)
  self.opt, self.base = opt, state.base
  self:build(opt)
  if after then self.after.opt, self.after.base = after, state.after.base end
  self.identity = nil
  return self:seek(state.position)
end

function Scheduler.build(_) end

-- Refuses an end above the rate at which the schedule begins, also of a nested one: what is to fall would rise.
local function refuse_rise(self)
  for _, name in ipairs { "eta_min", "end_lr" } do
    local floor = self.opt[name]
    if floor and floor > self.base then
      error(("%s: %s is %g, above the optimizer's rate of %g, so that the rate would rise; give at most that"):format(
        self.name, name, floor, self.base), 0)
    end
  end
  if self.after then refuse_rise(self.after) end
end

-- class({ options }, optimizer, { total_steps =, steps_per_epoch = }). The trainer gives the last table, which
-- completes the options.
local takes = "options table?, optimizer any?, run table?"
local construct = signature.constructor(takes, function(class, given, optimizer, run)
  local opt = {}
  for name, value in pairs(given or {}) do opt[name] = value end
  run = run or {}
  if class.options.total_steps and opt.total_steps == nil then opt.total_steps = run.total_steps end
  local epochs = class.options.warmup_epochs
  if epochs and opt.warmup_epochs ~= nil and not options.problem(epochs, opt.warmup_epochs) then -- else check says why
    if opt.warmup_steps ~= nil then error(class.name .. ": give warmup_steps or warmup_epochs, not both", 3) end
    if not run.steps_per_epoch then
      error(class.name .. ": warmup_epochs needs a training loader of known length; give warmup_steps", 3)
    end
    opt.warmup_steps, opt.warmup_epochs = math.floor(run.steps_per_epoch * opt.warmup_epochs), nil
  end
  local self = setmetatable({ position = 0, base = optimizer and optimizer.lr or 1, optimizer = optimizer }, class)
  self.opt = options.check(class.name, class.options, opt, 2)
  self:build(self.opt)
  if optimizer then refuse_rise(self) end
  apply(self)
  return self
end)

local base = { Scheduler = Scheduler }

--- Refuses milestones of the schedule `name` that are no steps.
function base.check_milestones(name, milestones)
  for i, m in ipairs(milestones) do
    if type(m) ~= "number" or m < 0 or m ~= math.floor(m) then
      error(("%s: milestones[%d] must be a step, a whole number from 0; got %s"):format(name, i, tostring(m)), 0)
    end
  end
end

--- Makes a new class of schedulers and registers it under its name in registry.lr_schedulers.
-- options: its table of options; parent: the class from which it inherits.
function base.class(name, class_options, parent)
  parent = parent or Scheduler
  options.refuse_class("lr_scheduler.class " .. tostring(name), "schedules", parent, Scheduler, class_options)
  local class = setmetatable({ name = name, options = class_options }, { __index = parent, __call = construct })
  class.__index = class
  class.__tostring = function(self) return self.name .. options.show(self.options, self.opt) end
  registry.lr_schedulers:register(name, class)
  return class
end

--- Entries that many classes share.
base.total_steps = { type = "integer", min = 1,
  doc = "the number of optimizer steps of the whole run; the trainer sets it if it is left out" }
base.eta_min = { type = "number", min = 0, default = 0,
  doc = "the learning rate at the end, the smallest of the schedule" }
base.warmup_steps = { type = "integer", min = 0, default = 0,
  doc = "the number of steps in which the rate rises linearly to the full rate" }
base.warmup_epochs = { type = "number", min = 0, optional = true,
  doc = "the length of the warm-up in epochs, in place of warmup_steps" }

signature.export("scheduler", Scheduler, ":", { "build", "momentum_at" })
return signature.export("lr_scheduler", base)
