--- Hooks are functions that a training run calls at certain points: to measure, print, save, or stop.
--
-- A hook is a table of functions, named after the points at which they are called: hook.point(hook, trainer, ...).
-- Hooks of lower `priority` come first, hooks of equal priority in the order in which they were given:
--
--     after_hook_is_attached
--     before_train, before_train_epoch, before_train_iter, after_train_iter (output, label, loss),
--     after_train_loss (step), after_train_epoch, after_train
--     before_test, before_test_epoch, before_test_iter, after_test_iter (output, label, loss),
--     after_test_epoch, after_test
--     after_failure, in place of after_train where training ends with an error
--
-- An iteration of training is one optimizer step. An iteration of a test is a batch, or a micro-batch under a pipeline
-- schedule. loss is a number. In a pipeline only the stage that holds the last part of the model has the output; on
-- other ranks it is nil. label and loss are on all ranks. Each call runs in a scope of its own, without recording
-- gradients. state() and load_state(t) make a hook a part of checkpoints, which find it by its name (title()). A hook
-- that says saves = true writes files, and never runs in a rehearsal. A run that a signal stops within an
-- epoch has not ended it: after_train_epoch comes when it has gone on. A run that ends within one (--steps, max_steps,
-- trainer:stop) ends its last epoch there: after_train_epoch is called, so that what hooks do then is done for it. With
-- more steps it goes on in that epoch, and after_train_epoch comes again at its end. The trap: with
-- gradient_accumulation, output and label join all batches of the step, which costs their memory. A hook that does not
-- use them sets needs_output = false.
--
-- On a GPU the host queues steps ahead of the device. The loss that after_train_iter receives would make it wait in
-- every step. A hook that does not need the loss there sets needs_loss = false; loss is then nil on a GPU. It receives
-- the numbers in after_train_loss, which is called when they are known, in the order of steps: at the latest when the
-- next step has been queued, and before evaluation, checkpoints and the end of an epoch; on the CPU right after the
-- hook's own after_train_iter. Its argument step = { step, epoch, loss, gradient_norm, lr, samples, tokens, targets,
-- total_samples, not_finite } describes that step, while trainer.step may be one further. What must happen at its step
-- (a scheduler, a checkpoint) stays in after_train_iter, and calls trainer:settle() before it reads anything that
-- depends on late numbers.
--
-- after_failure is for what a hook has opened. Each rank calls it for itself, and others may be gone: it sends nothing.
-- Ranks that leave a run which goes on in others do not call it.
-- @module ganymede.hooks.base
local core = require "ganymede.core"
local effects = require "ganymede.config.effects"
local options = require "ganymede.base.options"
local places = require "ganymede.base.places"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local base = {}

base.points = {
  "after_hook_is_attached", "before_train", "after_train", "before_train_epoch", "after_train_epoch",
  "before_train_iter", "after_train_iter", "after_train_loss", "before_test", "after_test", "before_test_epoch",
  "after_test_epoch", "before_test_iter", "after_test_iter", "after_failure",
}

local Hook = { priority = 10, needs_output = true, needs_loss = true }
Hook.__index = Hook
base.Hook = Hook

function Hook.build(_) end

--- Returns the text by which a checkpoint knows the hook's state (ganymede.hooks.states). A hook whose options say what
-- it measures has them in it.
function Hook:title() return self.name end

local test_points = { "before_test", "before_test_epoch", "before_test_iter", "after_test_iter", "after_test_epoch",
  "after_test" }

--- Returns the names under which it puts what it measures into trainer.metrics.test; nil: they are not known. Those of
-- a hook of your own with a point of evaluations are not, unless its class has a function measures or says
-- adds_metrics = false.
function Hook:measures(_)
  for _, point in ipairs(test_points) do
    if self[point] and self.adds_metrics ~= false then return nil end
  end
  return {}
end

--- Returns plain values for the checkpoint; nil: there is nothing to keep.
function Hook.state(_) return nil end

--- Restores what state() returned.
function Hook.load_state(_) end

local construct = signature.constructor("options table?", function(class, given)
  local self = setmetatable({}, class)
  self.opt = options.check(class.name, class.options, given, 2)
  self:build(self.opt)
  return self
end)

local flags = { "adds_metrics", "needs_loss", "needs_output", "priority", "saves" }

-- Refuses a field that looks like one of these and is none: it would be ignored.
local function refuse_misspelt(name, fields)
  for key, value in pairs(fields) do
    local hint = type(value) ~= "function" and Hook[key] == nil and options.hint(key, flags) or ""
    if hint ~= "" and not hint:find("'" .. tostring(key) .. "'", 1, true) then
      error(("hooks.class %s: there is no field '%s'%s"):format(tostring(name), tostring(key), hint), 3)
    end
  end
end

--- Makes a new class of hooks and registers it under its name in registry.hooks.
function base.class(name, class_options, fields)
  options.refuse_declaration("hooks.class " .. tostring(name), class_options or {}, 2)
  refuse_misspelt(name, fields or {})
  local class = setmetatable({ name = name, options = class_options or {} }, { __index = Hook, __call = construct })
  for key, value in pairs(fields or {}) do class[key] = value end
  class.__index = class
  class.__tostring = function(self) return self.name .. options.show(self.options, self.opt) end
  registry.hooks:register(name, class)
  return class
end

local is_point = {}
for _, point in ipairs(base.points) do is_point[point] = true end

local function name_of(hook) return hook.name or "without a name" end

--- Raises an error if a function of a hook has the name of no point but looks like one, such as after_train_step, or
-- if a point has something else than a function.
function base.check(hook)
  if type(hook) ~= "table" then error(("a hook must be a table of functions; got %s"):format(tostring(hook)), 0) end
  for _, t in ipairs { hook, getmetatable(hook) or {} } do
    for key, value in pairs(t) do
      if is_point[key] and type(value) ~= "function" then
        error(("hook %s: %s must be a function(self, trainer); got %s"):format(name_of(hook), key,
          options.brief(value)), 0)
      end
      if type(key) == "string" and (key:match "^before_" or key:match "^after_") and not is_point[key] then
        error(("hook %s: there is no point '%s'%s"):format(name_of(hook), key, options.hint(key, base.points)), 0)
      end
    end
  end
  return hook
end

--- The numbers that a step may leave in metrics.jsonl, beside its place (ganymede.train.fit writes them).
base.step_names = { "loss", "lr", "accuracy", "batch", "gradient_norm", "gradient_noise", "gradient_square",
  "gradient_variance" }

--- Returns the sorted names in trainer.metrics.test, by what the hooks say, and whether there may be others.
function base.measured_names(trainer)
  local names, others = { loss = true }, false
  for _, hook in ipairs(trainer.hooks) do
    local own = (hook.measures or Hook.measures)(hook, trainer)
    others = others or not own
    for _, name in ipairs(own or {}) do names[name] = true end
  end
  return options.sorted_keys(names), others
end

--- Raises an error if no evaluation can have this metric. Where a hook does not say what it measures, nobody knows.
function base.refuse_unmeasured(hook, trainer, metric)
  local names, others = base.measured_names(trainer)
  if others then return end
  for _, name in ipairs(names) do
    if name == metric then return end
  end
  error(("%s: evaluation has no metric '%s'; there are %s%s"):format(hook.name, metric, table.concat(names, ", "),
    options.hint(metric, names)), 0)
end

-- Where a hook writes, as text; nil: nowhere, or only it knows.
local function place_of(hook)
  local opt, known = hook.opt, hook.options
  if not (hook.saves and opt and known and (known.directory or known.file)) then return nil end
  if opt.port and not opt.file then return nil end -- PrometheusHook then has no file
  return hook.name .. " " .. (opt.file or opt.directory or ""):gsub("/+$", "")
end

--- Raises an error if two hooks of a class write to the same place: the one would undo what the other has written.
function base.refuse_shared(hooks)
  local seen = {}
  for _, hook in ipairs(hooks) do
    local place = place_of(hook)
    if place and seen[place] then
      error(("hooks: two %s write to one place, and the one would undo what the other writes; give one of them another "
        .. "%s, or leave it out"):format(hook.name, hook.options.directory and "directory" or "file"), 0)
    end
    if place then seen[place] = true end
  end
end

--- Raises a failure of status 2 if a hook cannot write where it was told to, or if two hooks of a class write to the
-- same place. Rank 0 makes the folders that hooks were given, because it writes.
function base.refuse_places(hooks)
  base.refuse_shared(hooks)
  if core.rank() > 0 then return end
  for _, hook in ipairs(hooks) do
    local folder = hook.saves and hook.opt and hook.options and hook.options.directory and hook.opt.directory
    if folder then places.make(folder, hook.name .. ": directory") end
  end
end

--- Returns the list of the hooks without those of a name, and the list of those. Raises an error if there is none.
function base.without(hooks, name)
  local list, named, names = {}, {}, {}
  for _, hook in ipairs(hooks) do
    local to = hook.name == name and named or list
    to[#to + 1] = hook
    if hook.name then names[hook.name] = true end
  end
  if #named > 0 then return list, named end
  local known = options.sorted_keys(names)
  error(("remove_hook: there is no hook '%s'%s; those that have names are: %s"):format(tostring(name),
    options.hint(name, known), #known > 0 and table.concat(known, ", ") or "none"), 0)
end

--- Returns the folder into which a hook writes: opt.directory, or that of the run. named: the option that can name
-- another place (default: directory). Collective.
function base.folder(hook, trainer, named)
  local folder = hook.opt.directory or trainer.run_directory and trainer.run_directory()
  if folder then return folder end
  error(("%s: there is no folder for its files; give %s, or a folder for the run (--out)"):format(hook.name,
    named or "directory"), 0)
end

--- Does one of the hooks of a config save checkpoints? Its `checkpoint = { ... }` apart.
function base.saves(config) return effects.hook(config, "CheckpointHook") ~= nil end

--- Returns the folder that a config names for its checkpoints; nil: that of the run.
function base.checkpoint_directory(config)
  local hook = effects.hook(config, "CheckpointHook")
  if hook then return hook.directory or hook.opt and hook.opt.directory end
  return config.checkpoint and config.checkpoint.directory
end

--- Returns the hooks of a config. Its `metrics = { ... }` become a MetricsHook, its `checkpoint = { ... }` becomes a
-- CheckpointHook, and its `adaptive_batch = { ... }` a GradientNoise that measures where it can.
function base.of_config(config)
  local out = { unpack(config.hooks or {}) }
  if config.adaptive_batch and not effects.hook(config, "GradientNoise") then
    out[#out + 1] = { type = "GradientNoise", every = config.adaptive_batch.every, needed = false }
  end
  if config.metrics then out[#out + 1] = { type = "MetricsHook", metrics = config.metrics } end
  if config.checkpoint and not base.saves(config) then
    local c = config.checkpoint
    out[#out + 1] = { type = "CheckpointHook", interval = c.interval, keep_last = c.keep_last, directory = c.directory }
  end
  return out
end

return signature.export("hooks", base)
