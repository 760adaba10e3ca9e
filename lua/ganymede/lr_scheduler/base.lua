--- What every learning-rate scheduler shares: checked options, a position, state that can be restored.
--
-- A scheduler is a pure function of the step: `at(step, base)` gives the learning rate of optimizer step
-- `step` (counted from 0) from the optimizer's own rate `base`, and looks at nothing else. The object adds
-- a position. So resuming is setting the position, and no rate depends on how one came to a step.
--
--     local s = lr_scheduler.StepLR({ step_size = 30 }, optimizer)    -- sets optimizer.lr = at(0)
--     engine:step() s:step()                                          -- the next step's rate
--
-- The trap: beyond total_steps the rate stays what it was at total_steps (PyTorch's cosine rises again).
-- @module ganymede.lr_scheduler.base
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local Scheduler = {}
Scheduler.__index = Scheduler

--- Learning rate of optimizer step `step` (from 0), for a base rate.
function Scheduler:at() error(self.name .. " does not define at(step, base)", 2) end

--- Momentum (SGD) or beta1 (Adam) of a step, or nil where the schedule leaves it alone.
function Scheduler.momentum_at(_) return nil end

local function apply(self)
  local optimizer = self.optimizer
  if not optimizer then return end
  optimizer.lr = self:lr()
  local momentum = self:momentum_at(self.position)
  if momentum then optimizer:set_momentum(momentum) end
end

--- Rate of the current step, or of step `step`.
function Scheduler:lr(step) return self:at(step or self.position, self.base) end

--- One optimizer step is over.
function Scheduler:step() return self:seek(self.position + 1) end

--- Sets the position: the number of optimizer steps that are over.
function Scheduler:seek(position)
  self.position = position
  apply(self)
  return self
end

-- Functions cannot be stored: an option that is one is left out, and comes from the recipe on resume.
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

--- Everything that the rates to come depend on, as a table of plain values; nested schedulers included.
function Scheduler:state()
  return { type = self.name, position = self.position, base = self.base, options = stored(self.opt),
           after = self.after and self.after:state() or nil }
end

-- Stored options with the functions that now stand where none could be stored.
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

-- Checks all of a state before any of it is used -> the options it stands for.
local function checked(self, state)
  if type(state) ~= "table" or state.type ~= self.name then
    error(("%s: the state is of %s"):format(self.name, tostring(type(state) == "table" and state.type or state)), 0)
  end
  for _, field in ipairs { "position", "base" } do
    if type(state[field]) ~= "number" then error(("%s: the state lacks '%s'"):format(self.name, field), 0) end
  end
  return options.check(self.name, self.options, with_functions(state.options or {}, self.opt), 0)
end

--- Takes a state up: options, base rate, position, and those of nested schedulers. All of it is checked
-- first; a state of another type is an error and changes nothing.
function Scheduler:load_state(state)
  local opt = checked(self, state)
  local after = self.after and checked(self.after, state.after)
  self.opt, self.base = opt, state.base
  self:build(opt)
  if after then self.after.opt, self.after.base = after, state.after.base end
  return self:seek(state.position)
end

function Scheduler.build(_) end

-- class({ options }, optimizer, { total_steps =, steps_per_epoch = }): the last table, from the trainer,
-- fills in what the options leave out.
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
  apply(self)
  return self
end)

local base = { Scheduler = Scheduler }

--- A new class of schedulers, registered under its name in registry.lr_schedulers.
-- options: its table of options; parent: the class to inherit from.
function base.class(name, class_options, parent)
  parent = parent or Scheduler
  local class = setmetatable({ name = name, options = class_options }, { __index = parent, __call = construct })
  class.__index = class
  class.__tostring = function(self) return self.name .. options.show(self.options, self.opt) end
  registry.lr_schedulers:register(name, class)
  return class
end

--- Entries that many classes share.
base.total_steps = { type = "integer", min = 1, doc = "optimizer steps of the whole run; the trainer fills it in" }
base.eta_min = { type = "number", min = 0, default = 0, doc = "the smallest learning rate" }
base.warmup_steps = { type = "integer", min = 0, default = 0, doc = "steps of linear warm-up" }
base.warmup_epochs = { type = "number", min = 0, optional = true, doc = "warm-up in epochs, in place of warmup_steps" }

signature.export("scheduler", Scheduler, ":", { "build", "momentum_at" })
return signature.export("lr_scheduler", base)
