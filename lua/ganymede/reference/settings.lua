--- Entries of the settings of recipes, by their paths (ganymede.config.schema), and of variables of the environment.
-- @module ganymede.reference.settings
local entry = require "ganymede.reference.entry"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"

-- A value for --set that the declaration allows, to show how it is written.
local function sample(o)
  if o.default ~= nil and type(o.default) ~= "table" then return tostring(o.default) end
  if o.one_of then return tostring(o.one_of[1]) end
  local kind = type(o.type) == "table" and o.type[1] or o.type
  if kind == "integer" then return ("%d"):format(math.max(o.min or 1, 1)) end
  if kind == "number" then return tostring(o.min or 1) end
  if kind == "string" then return "mine" end
  return kind == "boolean" and "true" or nil
end

-- The first class that needs no option, else the first.
local function plainest(shelf)
  for _, name in ipairs(shelf:names()) do
    local class, needs = shelf:get(name), false
    for _, o in pairs(type(class) == "table" and class.options or {}) do
      needs = needs or not (o.optional or o.default ~= nil)
    end
    if not needs then return name end
  end
  return shelf:names()[1]
end

-- Path and value of --set for a setting; tables are set by their `type`, or not as a whole.
local function assignment(path, o)
  if o.registry then return path .. ".type", plainest(registry[o.registry]) end
  if o.list_of then return path .. ".1.type", plainest(registry[o.list_of]) end
  return path, o.sample or sample(o)
end

local function example(path, o)
  local at, value = assignment(path, o)
  return value and { ("ganymede run first.lua --set %s=%s"):format(at, value) } or nil
end

local function choices(o)
  local shelf = o.registry or o.list_of
  return shelf and table.concat(registry[shelf]:names(), ", ") or nil
end

local function add_parts(made, o, key)
  local list = made.parts
  list[#list + 1] = { label = "allowed", text = options.allowed(o) }
  if o.fields and next(o.fields) then
    list[#list + 1] = { label = "keys", text = table.concat(options.sorted_keys(o.fields), ", ") }
  end
  if o.short and o.short ~= "type" then
    list[#list + 1] = { label = "in short", text = ("a value that is no table is its `%s`"):format(o.short) }
  end
  if choices(o) then list[#list + 1] = { label = "types", text = choices(o) } end
  for _, alias in ipairs(options.sorted_keys(require("ganymede.config.schema").aliases)) do
    if require("ganymede.config.schema").aliases[alias] == key then
      list[#list + 1] = { label = "other name", text = alias }
    end
  end
end

local function defaults(o)
  if o.default ~= nil then return "default " .. options.literal(o.default) end
  return o.optional and "may be left out" or "must be given"
end

-- "the seed of initial weights" as a sentence about the setting.
local function sentence(path, doc)
  if not doc then return nil end
  return ("%s: %s."):format(path, (doc:gsub("%.$", "")))
end

local function walk(fields, prefix, add)
  for _, key in ipairs(options.sorted_keys(fields)) do
    local o, path = fields[key], prefix .. key
    local made = entry.new({ kind = "setting", name = path, names = { "recipe." .. path } }, sentence(path, o.doc))
    made.calls[1] = ("%s = ...  (%s)"):format(path, defaults(o))
    made.example = made.example or example(path, o)
    made.declared = o
    add_parts(made, o, path)
    add(made)
    if o.fields then walk(o.fields, path .. ".", add) end
  end
end

--- Calls add(entry) for each.
return function(add)
  walk(require("ganymede.config.schema").fields, "", add)
  local variables = require("ganymede.base.environment").variables
  for _, name in ipairs(options.sorted_keys(variables)) do
    local variable = variables[name]
    if variable.whose == "user" then
      local made = entry.new({ kind = "variable", name = name }, sentence(name, variable.doc))
      made.calls[1] = name .. "=... ganymede VERB"
      if variable.allowed then made.parts[1] = { label = "allowed", text = variable.allowed } end
      add(made)
    end
  end
end
