--- Registries: names in configs stand for classes. Open to users:
--
--     gm.registry.hooks:register("MyHook", MyHook)      -- then { type = "MyHook", ... } in a recipe
--
-- A class is anything that can be called as class(options, ...), and returns an object. A duplicate name is an error,
-- since one of the two would silently win. Ganymede's own classes are loaded when a registry is first asked for a name.
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local other_types = require "ganymede.base.other_types"
local signature = require "ganymede.base.signature"

local Registry = {}
Registry.__index = Registry

local function callable(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(value) == "function" or (meta and meta.__call ~= nil)
end

local function not_callable(value)
  return not callable(value) and ("must be a class or a function; got a " .. type(value)) or nil
end

-- problem(value) -> nil, or what is wrong with what shall be registered; order: names in order of registration;
-- holders: modules that register Ganymede's own.
local function new(kind, problem, holders)
  return setmetatable({ kind = kind, classes = {}, order = {}, unfit = problem or not_callable, holders = holders },
    Registry)
end

--- The table of classes by name, Ganymede's own among them.
function Registry:known()
  local holders = self.holders or {}
  self.holders = nil -- they may ask, too
  for _, name in ipairs(holders) do
    if package.loaded[name] == nil then require(name) end
  end
  return self.classes
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

--- The same in Colossal-AI's words: the class has its name in a field `name`, or is given it here.
function Registry:register_module(class, name)
  name = name or type(class) == "table" and rawget(class, "name")
  if not name then
    error(("registry %s: register_module needs a class with a field `name`, or the name as second argument: "
      .. "register_module(fn, \"MyName\")"):format(self.kind), 2)
  end
  if self.classes[name] == class then return class end -- nn.class has registered it
  return self:register(name, class)
end

-- The class of this name, of this registry or of the one whose classes serve here, too.
local function find(self, name) return self:known()[name] or self.beside and self.beside:known()[name] end

function Registry:has(name) return find(self, name) ~= nil end

--- Names in alphabetical order.
function Registry:names() return options.sorted_keys(self:known()) end

--- nil, or the reason why no class has this name, with the nearest names.
function Registry:problem(name)
  if type(name) ~= "string" then
    return ("%s: type must be a string; got %s"):format(self.kind, options.literal(name))
  end
  if find(self, name) then return nil end
  local instead = other_types.of(self.kind, name)
  if instead then return ("%s: no type '%s': %s"):format(self.kind, name, instead) end
  local names = self:names()
  local hint = options.hint(name, names)
  if hint == "" and self.beside then hint = options.hint(name, self.beside:names()) end
  if hint == "" then hint = #names > 0 and "; there are " .. table.concat(names, ", ") or "; none is registered" end
  return ("%s: no type '%s'%s"):format(self.kind, name, hint)
end

--- The class of this name, or an error with the nearest names. Colossal-AI calls it get_module.
function Registry:get(name, level)
  local why = self:problem(name)
  if why then error(why, (level or 1) + 1) end
  return find(self, name)
end

Registry.get_module = Registry.get

-- What a plain table needs to be an object itself, in the registries whose objects may be such tables.
local objects = {
  datasets = function(v) return v.get ~= nil and v.length ~= nil end,
  samplers = function(v) return type(v.order) == "function" end,
  gradient_handlers = function(v) return type(v.handle_gradient) == "function" end,
  schedules = function(v) return type(v.forward_backward_step) == "function" end,
  hooks = function(v)
    for key in pairs(v) do
      if type(key) == "string" and (key:match "^before_" or key:match "^after_") then return true end
    end
    return false
  end,
}

--- Is this plain table no { type = ... }, but an object: a dataset { length =, get = }, a hook of functions, ...?
function Registry:is_object(value)
  local is = objects[self.kind]
  return is ~= nil and type(value) == "table" and getmetatable(value) == nil and value.type == nil and is(value)
end

-- A class stands as __index of its instances, an instance never does.
local function is_class(value) return rawget(value, "__index") ~= nil or rawget(value, "is_class") == true end

-- What every object of these registries has, and what to give in place of what is none.
local usable = {
  models = { has = "materialize", what = "a module, such as gm.nn.Sequential { ... }" },
  optimizers = { has = "bytes", what = "an optimizer, such as gm.optim.SGD({ lr = 0.1 }, model)" },
  lr_schedulers = { has = "step", what = "a schedule, such as gm.lr_scheduler.StepLR({ step_size = 10 }, optimizer); a "
    .. "rate for each step is { type = \"LambdaLR\", lr_lambda = function(step) ... end }" },
  datasets = { has = "length", what = "a dataset, a table with length and get, or { type = NAME, ... } in place of the "
    .. "function" },
}

-- Returns the object that a recipe or a program has made itself, if it can be used; how: where it comes from.
local function usable_one(self, value, how)
  local wanted = usable[self.kind]
  if not wanted then return value end
  local is_table = type(value) == "table"
  if is_table and not is_class(value) and value[wanted.has] ~= nil then return value end
  local name = is_table and getmetatable(value) and value.name
  local found = value == nil and "nothing" or name and (is_class(value) and "the class " or "the object ") .. name
    or options.brief(value)
  error(("%s: %s %s; it must be %s"):format(self.kind:gsub("s$", ""), how, found, wanted.what), 0)
end

--- An object from { type = name, ... } (called as class(options, ...)), from a name, from a function or a
-- class (called with the same further arguments), or the object itself when it is built already.
function Registry:build(cfg, ...)
  if type(cfg) == "string" then return self:get(cfg, 2)({}, ...) end
  if type(cfg) == "function" then return usable_one(self, cfg(...), "the function returned") end
  if type(cfg) ~= "table" then
    error(("%s: expected { type = ... }; got %s"):format(self.kind, tostring(cfg)), 2)
  end
  if getmetatable(cfg) then
    if is_class(cfg) and callable(cfg) then return cfg({}, ...) end
    if rawget(cfg, "type") == nil then return usable_one(self, cfg, "got") end
  end
  if self:is_object(cfg) then return cfg end
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
local nn, data = { "ganymede.nn" }, { "ganymede.data" }
for kind, holders in pairs {
  layers = nn, models = { "ganymede.nn", "ganymede.models", "ganymede.hub.pretrained" }, losses = nn, routers = nn,
  optimizers = { "ganymede.optim" }, lr_schedulers = { "ganymede.lr_scheduler" }, datasets = data, transforms = data,
  samplers = data, gradient_handlers = { "ganymede.train.gradient_handlers" }, schedules = { "ganymede.schedules" },
  hooks = { "ganymede.hooks" }, metrics = { "ganymede.metrics" }, group_initializers = {},
} do
  registry[kind] = new(kind, nil, holders)
end
registry.models.beside = registry.layers -- every module can be a model: nn.class "MyNet", then type = "MyNet"

--- Ways to share the work of layers between ranks; see ganymede.job.tensor_modes.
registry.tensor_modes = new("tensor_modes", function(mode)
  if type(mode) ~= "table" or type(mode.axes) ~= "function" then
    return "must be a table with a function `axes`; see ganymede.job.tensor_modes"
  end
end)

--- Orders of the passes of a step in a pipeline; see ganymede.schedules.pipeline.
registry.pipeline_schedules = new("pipeline_schedules", function(schedule)
  if type(schedule) ~= "table" or type(schedule.order) ~= "function" then
    return "must be a table with a function `order`; see ganymede.schedules.pipeline"
  end
end, { "ganymede.schedules.pipeline" })

--- Is this plain table an object of any kind?
function registry.is_object(value)
  for kind in pairs(objects) do
    if registry[kind]:is_object(value) then return true end
  end
  return false
end

--- A registry of the user's own.
registry.new = new

-- A registry as Colossal-AI's users write it: LAYERS.register_module(MyLayer), with a dot; a colon works, too.
local function by_dot(own)
  local face = {}
  return setmetatable(face, { __index = function(_, name)
    local value = own[name]
    if type(value) ~= "function" then return value end
    return function(first, ...)
      if first == face then return value(own, ...) end
      return value(own, first, ...)
    end
  end })
end

--- Colossal-AI's names of the registries.
for name, kind in pairs {
  LAYERS = "layers", MODELS = "models", LOSSES = "losses", OPTIMIZERS = "optimizers", DATASETS = "datasets",
  LR_SCHEDULERS = "lr_schedulers", TRANSFORMS = "transforms", SAMPLERS = "samplers", DATA_SAMPLERS = "samplers",
  GRADIENT_HANDLER = "gradient_handlers", SCHEDULE = "schedules", HOOKS = "hooks",
  DIST_GROUP_INITIALIZER = "group_initializers",
} do
  registry[name] = by_dot(registry[kind])
end

return missing.guard("registry", signature.export("registry", registry))
