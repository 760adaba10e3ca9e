--- Entries of what is registered by name: layers, models, losses, optimizers, hooks, datasets, ...
-- @module ganymede.reference.classes
local entry = require "ganymede.reference.entry"
local options = require "ganymede.base.options"
local public = require "ganymede.base.public"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local source = require "ganymede.reference.source"

-- In the order of the pages: registry, kind of entry, where gm has it, the key of a recipe that names it.
local shelves = {
  { "layers", "layer", "gm.nn." }, { "models", "model", "gm.models.", "model" }, { "losses", "loss", "gm.nn.", "loss" },
  { "initializers", "initializer", "gm.nn.init." },
  { "optimizers", "optimizer", "gm.optim.", "optimizer" },
  { "lr_schedulers", "lr_scheduler", "gm.lr_scheduler.", "lr_scheduler" }, { "hooks", "hook", "gm.hooks.", "hooks[1]" },
  { "metrics", "metric", "gm.metrics.", "metrics[1]" },
  { "datasets", "dataset", "gm.data.", "data.train" }, { "samplers", "sampler", "gm.data.", "data.sampler" },
  { "transforms", "transform", "gm.data.", "data.transforms[1]" }, { "routers", "router", "router:" },
  { "schedules", "schedule", "gm.schedules.", "schedule" }, { "pipeline_schedules", "order", "order:" },
  { "gradient_handlers", "gradient_handler", "gradient_handler:", "gradient_handler[1]" },
  { "tensor_modes", "tensor_mode", "tensor_mode:" },
}

-- "Linear { inputs = ..., outputs = ..., ... }": what must be given, and dots for the rest.
local function table_call(name, spec, more)
  local given, rest = { more }, false
  for _, key in ipairs(options.sorted_keys(spec)) do
    local o = spec[key]
    if o.default == nil and not o.optional then given[#given + 1] = key .. " = ..." else rest = true end
  end
  if rest then given[#given + 1] = "..." end
  return #given == 0 and name .. "()" or ("%s { %s }"):format(name, table.concat(given, ", "))
end

local function calls_of(class, name, shelf, spec)
  local calls = {}
  if not name:find ":" then calls[1] = table_call(name, spec) end
  local positional = type(class) == "table" and class.positional
  if positional then calls[2] = ("%s(%s)"):format(name, table.concat(positional, ", ")) end
  if shelf[4] then
    calls[#calls + 1] = table_call(shelf[4] .. " =", spec, ('type = "%s"'):format(entry.short(name)))
  end
  return calls
end

-- The class that a class of one tensor mode stands for: Linear of Linear2D. VocabParallel... too.
local function base_of(class) return class.tensor_mode and getmetatable(class).__index or nil end

local function add_other_names(made, class)
  local aliases = type(class) == "table" and rawget(class, "aliases")
  for _, alias in ipairs(options.sorted_keys(aliases or {})) do
    made.parts[#made.parts + 1] = { label = "other names", text = ("%s is %s"):format(alias, aliases[alias]) }
  end
end

-- What forward takes and gives, from the comment above it.
local function add_forward(made, class)
  local fn = type(class) == "table" and rawget(class, "forward")
  local comment = type(fn) == "function" and source.of_function(debug.getinfo(fn, "S"))
  if comment then
    table.insert(made.parts, 1, { label = "a call", text = (comment:gsub("\n%s*", " ")) })
  end
end

local function text_of(class, name, given)
  if type(class) == "table" and rawget(class, "doc") then
    return ("Orders the passes of a pipeline: %s."):format(class.doc)
  end
  local found = source.definition(name)
  if found then return found.text, source.place(found.path, found.line) end
  return given
end

-- "gm.nn.Linear2D": what Linear is on a mesh of mode 2d.
local function variant(made, class, list)
  local base = base_of(class)
  local root = list[base.name] or base_of(base) and list[base_of(base).name]
  made.summary = ("Is %s on a mesh of tensor mode %s, and an error on one of another mode."):format(base.name,
    class.tensor_mode)
  made.more = { { text = ("gm.nn.%s builds it there by itself; on one rank they are the same."):format(base.name) } }
  made.variant = root
  if not root then return made end
  made.example = {}
  for i, line in ipairs(root.example or {}) do
    made.example[i] = line:gsub("nn%." .. root.short .. "%f[%W]", "nn." .. made.short)
  end
  if #made.example == 0 then made.example = nil end
  made.see = { "nn." .. root.short }
  return made
end

-- The options of a class; of an initializer, which is a function, those that it checks.
local function options_of(class, name, kind)
  if type(class) == "table" then return class.options or {} end
  local sig = kind == "initializer" and signature.of(require("ganymede").nn.init[name])
  return sig and sig.inside or {}
end

-- "gm.nn.Linear"; what users have registered themselves is in no table of gm.
local function full_name(class, name, shelf)
  if not shelf[3]:match "^gm%." then return shelf[3] .. name end
  local holder = require "ganymede"
  for part in shelf[3]:sub(4):gmatch "[%w_]+" do holder = holder[part] end
  if rawget(holder, name) or type(class) == "function" then return shelf[3] .. name end
  return public.from[name] and "gm." .. name or name
end

local function make(class, name, shelf, list)
  local spec = options_of(class, name, shelf[2])
  local given, place = text_of(class, name)
  local full = full_name(class, name, shelf)
  local about = { kind = shelf[2], name = full, short = name, place = place, calls = calls_of(class, full, shelf, spec),
    names = { full:match "^gm%.(.*)$" or name, ("%s.%s"):format(shelf[1], name) } }
  local is_variant = type(class) == "table" and rawget(class, "tensor_mode") and base_of(class)
  local made = entry.new(about, not is_variant and given or nil)
  made.options, made.value = entry.options(spec), class
  add_other_names(made, class)
  if is_variant then return variant(made, class, list) end
  add_forward(made, class)
  return made
end

local function by_length(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

--- Calls add(entry) for each. What stands on two shelves has one entry.
return function(add)
  require "ganymede.nn"
  local seen = {}
  for _, shelf in ipairs(shelves) do
    local names, list, made = registry[shelf[1]]:names(), seen, {}
    table.sort(names, by_length) -- what variants stand for comes first
    for _, name in ipairs(names) do
      local class = registry[shelf[1]]:get(name)
      if not seen[class] then
        local one = make(class, name, shelf, list)
        seen[class], list[name] = one, one
        made[#made + 1] = one
      elseif seen[class].kind == shelf[2] then -- another name of it
        for _, other in ipairs { name, shelf[3] .. name } do table.insert(seen[class].names, other) end
      end
    end
    table.sort(made, function(a, b) return a.short < b.short end)
    for _, one in ipairs(made) do add(one) end
  end
end
