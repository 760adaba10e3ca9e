--- Settings of a recipe that would have no effect beside others: they are refused, with what would be right.
--
--     effects.problems(config)                       -- list of { path =, why = }
--     effects.needs_evaluation(config)               -- the hook, or its option, that --no-eval leaves without effect
--     effects.hook(config, "GradientNoise")          -- the first hook of this name, as an entry or as an object
--
-- What an option of a class does beside its other options, the class itself says. Defaults are filled in already, so a
-- value that equals its default counts as not given.
-- The trap: a hook that a recipe writes itself may evaluate on data of its own. Metrics then have an effect without
-- data.test.
-- @module ganymede.config.effects
local batch_setting = require "ganymede.config.batch_setting"

local effects = {}

-- The hooks of a config that may not have been checked.
local function hooks_of(config) return type(config.hooks) == "table" and config.hooks or {} end

--- Returns the first hook of a name among the hooks of a config; nil: there is none.
function effects.hook(config, name)
  for _, hook in ipairs(hooks_of(config)) do
    if type(hook) == "table" and (hook.type or hook.name) == name then return hook end
  end
end

-- Has the recipe a hook that no name of a class stands for?
local function has_own_hook(config)
  for _, hook in ipairs(hooks_of(config)) do
    if type(hook) ~= "table" or type(hook.type) ~= "string" then return true end
  end
  return false
end

-- Returns the hooks, and the options of hooks, that do their work at evaluations only: a list of names.
local function evaluating(config)
  local list, saving = {}, effects.hook(config, "CheckpointHook")
  if effects.hook(config, "EarlyStopHook") then list[#list + 1] = "EarlyStopHook" end
  if saving and saving.best then list[#list + 1] = "CheckpointHook.best" end
  if effects.hook(config, "SampleHook") then list[#list + 1] = "SampleHook" end
  return list
end

local no_test = "has no effect, because there is no data.test to evaluate on; give data.test, or leave it out"

local function add_evaluation(list, config)
  local data = config.data
  if type(data) ~= "table" or data.test ~= nil then return end
  local function add(path, value)
    if value ~= nil then list[#list + 1] = { path = path, why = no_test } end
  end
  add("test_interval", config.test_interval)
  add("data.test_batch_size", data.test_batch_size)
  add("data.test_transforms", data.test_transforms)
  if has_own_hook(config) then return end
  add("metrics", config.metrics)
  for _, name in ipairs(evaluating(config)) do add(name, true) end
end

local function add_order(list, config)
  local data = config.data
  if type(data) ~= "table" or data.sampler == nil or data.shuffle ~= false then return end
  list[#list + 1] = { path = "data.shuffle",
    why = "has no effect beside data.sampler, which says the order (SequentialSampler: as it is); give one of them" }
end

--- Returns the name of a hook of a config, or of its option, that needs evaluations, and whether the run trains and
-- saves the same without it; nil: there is none.
function effects.needs_evaluation(config)
  if effects.hook(config, "EvaluationHook") then return "EvaluationHook" end
  if has_own_hook(config) then return nil end -- which may evaluate
  local name = evaluating(config)[1]
  return name, name == "SampleHook"
end

local function add_hooks(list, config)
  if type(config.checkpoint) == "table" and effects.hook(config, "CheckpointHook") then
    list[#list + 1] = { path = "checkpoint",
      why = "has no effect beside a CheckpointHook, which has these options too; give one of them" }
  end
  local adaptive = config.adaptive_batch
  local every = type(adaptive) == "table" and adaptive.every
  if every and every ~= batch_setting.fields.every.default and effects.hook(config, "GradientNoise") then
    list[#list + 1] = { path = "adaptive_batch.every",
      why = "has no effect beside a hook GradientNoise; give that hook's option every" }
  end
end

--- Returns the settings of a config without effect. in_code: it is a program's, which has its data elsewhere.
function effects.problems(config, in_code)
  local list = {}
  if not in_code then add_evaluation(list, config) end
  add_order(list, config)
  add_hooks(list, config)
  return list
end

return effects
