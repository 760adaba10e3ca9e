--- Registries: names in configs stand for classes. Open to users:
--
--     gm.registry.hooks:register("MyHook", MyHook)      -- then { type = "MyHook", ... } in a recipe
--
-- A class is anything that can be called as class(options, ...). A duplicate name is an error, since one of
-- the two would silently win.
local options = require "ganymede.options"
local signature = require "ganymede.signature"

local Registry = {}
Registry.__index = Registry

local function callable(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(value) == "function" or (meta and meta.__call ~= nil)
end

local function not_callable(value)
  return not callable(value) and ("must be a class or a function; got a " .. type(value)) or nil
end

-- problem(value) -> nil, or what is wrong with what shall be registered; order: names in order of registration.
local function new(kind, problem)
  return setmetatable({ kind = kind, classes = {}, order = {}, unfit = problem or not_callable }, Registry)
end

--- Registers a class (or a function) under a name; returns the class.
function Registry:register(name, class)
  if type(name) ~= "string" or name == "" then
    error(("registry %s: a name must be a string; got %s"):format(self.kind, tostring(name)), 2)
  end
  local why = self.unfit(class)
  if why then error(("registry %s: '%s' %s"):format(self.kind, name, why), 2) end
  if self.classes[name] then
    error(("registry %s: '%s' is registered already"):format(self.kind, name), 2)
  end
  self.classes[name] = class
  self.order[#self.order + 1] = name
  return class
end

function Registry:has(name) return self.classes[name] ~= nil end

--- Names in alphabetical order.
function Registry:names() return options.sorted_keys(self.classes) end

--- nil, or the reason why no class has this name, with the nearest names.
function Registry:problem(name)
  if type(name) ~= "string" then
    return ("%s: type must be a string; got %s"):format(self.kind, options.literal(name))
  end
  if self.classes[name] then return nil end
  local names = self:names()
  local near = options.nearest(name, names)
  local hint = near and (" (did you mean '%s'?)"):format(near)
    or #names > 0 and "; there are " .. table.concat(names, ", ") or "; none is registered"
  return ("%s: no type '%s'%s"):format(self.kind, name, hint)
end

--- The class of this name, or an error with the nearest names.
function Registry:get(name, level)
  local why = self:problem(name)
  if why then error(why, (level or 1) + 1) end
  return self.classes[name]
end

-- A class stands as __index of its instances, an instance never does.
local function is_class(value) return rawget(value, "__index") ~= nil or rawget(value, "is_class") == true end

--- An object from { type = name, ... } (called as class(options, ...)), from a name, from a function or a
-- class (called with the same further arguments), or the object itself when it is built already.
function Registry:build(cfg, ...)
  if type(cfg) == "string" then return self:get(cfg, 2)({}, ...) end
  if type(cfg) == "function" then return cfg(...) end
  if type(cfg) ~= "table" then
    error(("%s: expected { type = ... }; got %s"):format(self.kind, tostring(cfg)), 2)
  end
  if getmetatable(cfg) then
    if is_class(cfg) and callable(cfg) then return cfg({}, ...) end
    if rawget(cfg, "type") == nil then return cfg end
  end
  if cfg.type == nil then
    error(("%s: the table has no 'type'; there are %s"):format(self.kind, table.concat(self:names(), ", ")), 2)
  end
  if type(cfg.type) ~= "string" and callable(cfg.type) then
    return cfg.type(self.without_type(cfg), ...)
  end
  return self:get(cfg.type, 2)(self.without_type(cfg), ...)
end

--- A copy without `type`: the options of the class.
function Registry.without_type(cfg)
  local opt = {}
  for key, value in pairs(cfg) do
    if key ~= "type" then opt[key] = value end
  end
  return opt
end

signature.export("registry", Registry, ":")

local registry = {}
for _, kind in ipairs {
  "layers", "models", "losses", "optimizers", "lr_schedulers", "datasets", "transforms", "samplers",
  "group_initializers", "gradient_handlers", "schedules", "hooks", "routers",
} do
  registry[kind] = new(kind)
end

--- Ways to share the work of layers between ranks; see ganymede.tensor_modes.
registry.tensor_modes = new("tensor_modes", function(mode)
  if type(mode) ~= "table" or type(mode.axes) ~= "function" then
    return "must be a table with a function `axes`; see ganymede.tensor_modes"
  end
end)

--- Orders of the passes of a step in a pipeline; see ganymede.schedules.pipeline.
registry.pipeline_schedules = new("pipeline_schedules", function(schedule)
  if type(schedule) ~= "table" or type(schedule.order) ~= "function" then
    return "must be a table with a function `order`; see ganymede.schedules.pipeline"
  end
end)

--- A registry of the user's own.
registry.new = new

return signature.export("registry", registry)
