--- Checks the table of a recipe against the schema: aliases, --set, checks, defaults, and the origin of each value.
--
--     local resolved = config.resolve(recipe_table, { file = "recipes/x.lua", sets = { "optimizer.lr=0.1" } })
--     resolved.config   -- plain table, defaults in place
--     resolved:rows()   -- list of { path = "optimizer.lr", value = 0.1, origin = "--set" }
--
-- All problems of a recipe are reported together, as one failure of status 2 that names file and key path.
-- The trap: the table of the recipe is copied and never changed; objects in it (datasets, hooks of functions, ...) are
-- not copied.
local effects = require "ganymede.config.effects"
local failure = require "ganymede.base.failure"
local literal = require "ganymede.base.literal"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local recipe = require "ganymede.config.recipe"
local registry = require "ganymede.base.registry"
local schema = require "ganymede.config.schema"

local config = {}

local MAX_SHOWN = 12
local PLAN = "the plan" -- the origin of what parallel = "auto" has chosen

local function is_plain(v) return type(v) == "table" and getmetatable(v) == nil end

local function copy(v, path, open)
  if not is_plain(v) or registry.is_object(v) then return v end
  if open[v] or #path > 600 then failure(2, "%s: the table contains itself", path) end
  open[v] = true
  local out = {}
  for key, value in pairs(v) do out[key] = copy(value, path .. "." .. tostring(key), open) end
  open[v] = nil
  return out
end

local function joined(path, key) return path == "" and tostring(key) or path .. "." .. tostring(key) end

-- ---------------------------------------------------------------- --set

-- "a.1.b" -> { "a", 1, "b" }; nil if the text is not a key path.
local function split(path)
  local keys = {}
  for key in (path .. "."):gmatch "([^.]*)%." do
    if not key:match "^[%w_-]+$" then return nil end
    keys[#keys + 1] = key:match "^%d+$" and tonumber(key) or key -- no `nan`, no `0x1`
  end
  return #keys > 0 and keys or nil
end

local function entry_at(keys, depth)
  local fields = schema.fields
  local entry
  for i = 1, depth do
    entry = fields and fields[keys[i]]
    fields = entry and entry.fields
  end
  return entry
end

-- Returns the table at keys[1 .. #keys - 1], and makes tables that are missing.
local function container(root, keys, text)
  local at, path = root, ""
  for i = 1, #keys - 1 do
    path = joined(path, keys[i])
    local next_ = at[keys[i]]
    local above, entry = entry_at(keys, i - 1), entry_at(keys, i)
    if type(keys[i]) == "number" and next_ == nil and keys[i] ~= #at + 1 then
      failure(2, "--set %s: %s has %d entries", text, path:match "^(.*)%." or "the recipe", #at)
    end
    if next_ == nil then
      next_ = {}
    elseif type(next_) ~= "table" and entry and entry.short then
      next_ = { [entry.short] = next_ }
    elseif type(next_) == "string" and above and above.list_of then
      next_ = { type = next_ }
    end
    if not is_plain(next_) then
      failure(2, "--set %s: %s is %s in the recipe, which has no keys to set", text, path,
        type(next_) == "table" and "an object" or "a " .. type(next_))
    end
    at[keys[i]], at = next_, next_
  end
  return at
end

-- Keeps the reason why a value of --set that looks like a table or a quoted string is none, for messages.
local function remember_reason(state, path, text, why)
  if why and text:match "^%s*[{\"']" then state.reasons[path] = why end
end

-- A value under another name of a key, as the key's own.
local function alias_value(name, value)
  local own = (schema.alias_values[name] or {})[value]
  if own == nil then return value end
  return type(own) ~= "table" and own or nil
end

local function apply_set(state, text, origin)
  local own, path, value = text:match "^(%+?)([^=]*)=(.*)$"
  if not path then failure(2, "--set %s: expected key=value", text) end
  local first, rest = path:match "^([^.]*)(.*)$"
  path = (schema.aliases[first] or first) .. rest
  local keys = split(path)
    or failure(2, "--set %s: '%s' is no key path such as optimizer.lr or hooks.1.type", text, path)
  local ok, parsed, why = pcall(literal.parse, value)
  if not ok then failure(2, "--set %s: %s", path, parsed) end
  local target, last = container(state.raw, keys, text), keys[#keys]
  if type(last) == "number" and (last < 1 or last > #target + 1) then
    failure(2, "--set %s: %s has %d entries", text, path:match "^(.*)%." or "the recipe", #target)
  end
  target[last] = parsed
  if rest == "" then target[last] = alias_value(first, parsed) end
  remember_reason(state, path, value, why)
  state.set[path] = origin or "--set"
  if own == "+" then state.own[path] = true end
end

-- ---------------------------------------------------------------- checks

-- Returns the line of the recipe in which a key of this name stands, for messages; nil unless there is exactly one.
local function line_of(text, key)
  local found, line = nil, 0
  for content in (text .. "\n"):gmatch "(.-)\n" do
    line = line + 1
    local code = content:gsub("%-%-.*$", "")
    if code:match("%f[%w_]" .. tostring(key):gsub("%W", "%%%0") .. "%s*=[^=]") then
      if found then return nil end
      found = line
    end
  end
  return found
end

-- Whether this path, or one of which it is a part, was given by --set.
local function set_origin(state, path)
  while path do
    if state.set[path] then return state.set[path] end
    path = path:match "^(.*)%.[^.]*$"
  end
end

local function place(state, path)
  local origin = set_origin(state, path)
  if origin then return origin == PLAN and PLAN or "--set" end
  for set in pairs(state.set) do
    if set:sub(1, #path + 1) == path .. "." then return "--set" end
  end
  local line = state.text and line_of(state.text, path:match "[^.]*$")
  return line and state.file .. ":" .. line or state.file
end

local function report(state, path, why)
  local reason = state.reasons[path] or state.reasons[path:match "^(.*)%.type$"]
  if reason then why = why .. " (no literal: " .. reason .. ")" end
  local message = ("%s: %s %s"):format(place(state, path), path, why)
  for _, other in ipairs(state.problems) do
    if other == message then return end
  end
  state.problems[#state.problems + 1] = message
end

local check_list -- forward

-- Checks the options of a class that are lists of { type = ... } themselves, as the metrics of MetricsHook are.
local function check_lists_of(state, spec, value, path)
  for _, key in ipairs(options.sorted_keys(spec)) do
    local entry, list = spec[key], value[key]
    if entry.list_of and not options.problem(entry, list) then check_list(state, entry, list, joined(path, key)) end
  end
end

local function check_type(state, entry, value, path)
  local registered = registry[entry.registry or entry.list_of]
  if registered:is_object(value) or value.type == nil and state.in_code then return end
  if value.type == nil then
    local names = table.concat(registered:names(), ", ")
    return report(state, path, "has no 'type'; there are " .. (names == "" and "none" or names))
  end
  if type(value.type) == "function" or (type(value.type) == "table" and getmetatable(value.type)) then return end
  local why = registered:problem(value.type)
  local hint = why and entry.hint and entry.hint(value.type)
  if why then return report(state, path .. ".type", "is wrong: " .. why .. (hint and "; " .. hint or "")) end
  local class = registered:get(value.type)
  local spec = type(class) == "table" and class.options
  if not spec then return end
  local _, problems = options.inspect(spec, registered.without_type(value), class.aliases)
  for _, problem in ipairs(problems) do
    local later = problem.missing and entry.given_later and entry.given_later[problem.key]
    if not later then report(state, joined(path, problem.key), problem.why .. " [" .. value.type .. "]") end
  end
  check_lists_of(state, spec, value, path)
end

function check_list(state, entry, value, path)
  local count = 0
  for key in pairs(value) do
    count = count + 1
    if type(key) ~= "number" then
      return report(state, joined(path, key), "is not a position: " .. path .. " is a list of { type = ... }")
    end
  end
  if count ~= #value then return report(state, path, "is a list with holes") end
  for i, item in ipairs(value) do
    if type(item) == "string" then item = { type = item } end
    value[i] = item
    if is_plain(item) then
      check_type(state, entry, item, joined(path, i))
    elseif type(item) ~= "table" and type(item) ~= "function" then
      report(state, joined(path, i), options.problem({ type = { "table", "function" } }, item))
    end
  end
end

local check_fields -- forward

local function check_value(state, entry, value, path)
  local why = options.problem(entry, value)
  if why then return report(state, path, why) end
  if not is_plain(value) then return end
  if entry.registry then return check_type(state, entry, value, path) end
  if entry.list_of then return check_list(state, entry, value, path) end
  if entry.fields then check_fields(state, entry.fields, value, path, entry.open) end
end

local function has_own(state, path)
  if state.own[path] then return true end
  for own in pairs(state.own) do
    if own:sub(1, #path + 1) == path .. "." then return true end
  end
  return false
end

local function unknown_key(state, fields, key, path)
  local names = options.sorted_keys(fields)
  if path == "" then
    for alias in pairs(schema.aliases) do names[#names + 1] = alias end
  end
  local hint = type(key) == "string" and options.hint_or_list(key, names, "; there are ") or ""
  if not hint:find("did you mean", 1, true) then
    hint = hint .. "; --set +" .. joined(path, key) .. "=... adds a key of your own"
  end
  report(state, joined(path, key), "is no key of " .. (path == "" and "a recipe" or path) .. hint)
end

-- Settings of a program may have keys of its own, but none that looks like a known key with a typing error.
local function refuse_near_miss(state, fields, key)
  local near = type(key) == "string" and options.nearest(key, options.sorted_keys(fields), #key > 5 and 2 or 1)
  if near then
    report(state, key, ("is too similar to a setting (did you mean '%s'?); give a key of your own another name")
      :format(near))
  end
end

-- Fills defaults, expands short forms, and checks one level of the schema.
function check_fields(state, fields, given, path, open)
  for _, key in ipairs(options.sorted_keys(given)) do
    local in_code = state.in_code and state.given[path == "" and key or path:match "^[^.]*"] ~= nil
    local known = fields[key] or open or in_code
    if in_code and not fields[key] and not open and path == "" then refuse_near_miss(state, fields, key) end
    if not known and not has_own(state, joined(path, key)) then
      unknown_key(state, fields, key, path)
    end
  end
  for _, key in ipairs(options.sorted_keys(fields)) do
    local entry, at = fields[key], joined(path, key)
    if given[key] == nil and entry.default ~= nil then
      given[key] = copy(entry.default, at, {})
      state.default[at] = true
    end
    if type(given[key]) == "string" and entry.registry then given[key] = { type = given[key] } end
    if given[key] ~= nil then
      check_value(state, entry, given[key], at)
    elseif not entry.optional and not state.in_code then
      report(state, at, "is missing: " .. entry.doc)
    end
  end
end

local function mentions(state, key)
  for _, message in ipairs(state.problems) do
    if message:find(": " .. key, 1, true) then return true end
  end
  return false
end

local function check_served(state)
  for _, key in ipairs(options.sorted_keys(schema.fields)) do
    local entry, value = schema.fields[key], state.raw[key]
    if entry.unserved and value ~= nil and not mentions(state, key) then
      local comparable = entry.short and type(value) ~= "table" and { [entry.short] = value } or value
      local why, path = entry.unserved(comparable, state.raw)
      if why then report(state, path or key, why) end
    end
  end
end

local function check_schedule(state)
  local schedule, orders = state.raw.schedule, registry.pipeline_schedules
  if not is_plain(schedule) then return end
  if schedule.num_microbatches ~= nil then
    report(state, "schedule.num_microbatches", ("is %s, and num_microbatches is %s; give one of them"):format(
      options.literal(schedule.num_microbatches), options.literal(state.raw.num_microbatches)))
  end
  if type(schedule.order) == "string" and not state.in_code and not orders:has(schedule.order) then
    report(state, "schedule.order", "is wrong: " .. orders:problem(schedule.order))
  end
end

-- Checks that a batch has at least num_microbatches samples, because no piece of it may be empty.
local function check_micro_batches(state)
  local pieces, data = state.raw.num_microbatches, state.raw.data
  if type(pieces) ~= "number" or not is_plain(data) then return end
  for _, key in ipairs { "batch_size", "test_batch_size" } do
    local samples = data[key]
    if type(samples) == "number" and samples < pieces then
      report(state, "num_microbatches", ("is %d, more pieces than a batch has samples: data.%s is %d"):format(pieces,
        key, samples))
    end
  end
end

local function check_name(state)
  local name = state.raw.name
  if name == nil then
    state.raw.name = state.file:match "([^/]+)$":gsub("%.lua$", ""):gsub("[^%w._-]", "-"):gsub("^%.+", "")
    state.default.name = true
  elseif type(name) == "string" and (not name:match "^[%w_][%w._-]*$" or #name > 100) then
    report(state, "name", "must name a folder: at most 100 letters, digits, '.', '_' and '-'; got "
      .. options.literal(name))
  end
end

-- ---------------------------------------------------------------- aliases

local function take_alias(state, key, target)
  local keys = split(target)
  local value = state.raw[key]
  if value == nil then return end
  state.raw[key] = nil
  value = alias_value(key, value)
  if value == nil then return end
  if #keys > 1 and type(state.raw[keys[1]]) ~= "table" then state.raw[keys[1]] = {} end
  local holder = container(state.raw, keys, key)
  if holder[keys[#keys]] ~= nil then return report(state, key, "is given twice, also as '" .. target .. "'") end
  holder[keys[#keys]] = value
end

-- ---------------------------------------------------------------- the result

local Resolved = {}
Resolved.__index = Resolved

-- Whether this path, or one of which it is a part, was filled in by the schema.
local function is_default(state, path)
  if set_origin(state, path) then return false end
  while path do
    if state.default[path] then return true end
    path = path:match "^(.*)%.[^.]*$"
  end
  return false
end

local function origin_of(self, path) return is_default(self.state, path) and "default" or place(self.state, path) end

local function add_class_defaults(rows, entry, value, path)
  local registered = registry[entry.registry or entry.list_of]
  local class = registered:has(value.type) and registered:get(value.type)
  if type(class) ~= "table" or not class.options then return end
  for _, key in ipairs(options.sorted_keys(class.options)) do
    local default, named = class.options[key].default, value[key] ~= nil
    for alias, name in pairs(class.aliases or {}) do named = named or (name == key and value[alias] ~= nil) end
    if default ~= nil and not named then
      rows[#rows + 1] = { path = joined(path, key), value = default, origin = "default of " .. value.type }
    end
  end
end

local function add_rows(self, rows, value, path, entry)
  if not is_plain(value) or next(value) == nil then
    rows[#rows + 1] = { path = path, value = value, origin = origin_of(self, path) }
    return
  end
  for _, key in ipairs(options.sorted_keys(value)) do
    local inner = entry and (entry.fields and entry.fields[key] or entry.list_of and { registry = entry.list_of })
    add_rows(self, rows, value[key], joined(path, key), inner or nil)
  end
  if entry and entry.registry and type(value.type) == "string" then add_class_defaults(rows, entry, value, path) end
end

--- Returns every setting with its origin ("default", "default of AdamW", the file, "--set"), by key path, including the
-- defaults of the classes in use.
function Resolved:rows()
  local rows = {}
  for _, key in ipairs(options.sorted_keys(self.config)) do
    add_rows(self, rows, self.config[key], key, schema.fields[key])
  end
  return rows
end

--- Returns the settings as Lua text, which is itself a recipe unless it has functions or objects.
function Resolved:text() return "return " .. literal.show(self.config) .. "\n" end

local function fail_with(problems)
  if #problems == 0 then return end
  local shown = {}
  for i = 1, math.min(#problems, MAX_SHOWN) do shown[i] = problems[i] end
  if #problems > MAX_SHOWN then shown[#shown + 1] = ("and %d more"):format(#problems - MAX_SHOWN) end
  failure(2, "%s", table.concat(shown, "\n"))
end

local is_resolved = setmetatable({}, { __mode = "k" }) -- configs that came out of resolve

--- Returns a copy of resolved settings with other values; false stands for a field that becomes nil.
function config.with(resolved, changes)
  local out = {}
  for key, value in pairs(resolved) do out[key] = value end
  for key, value in pairs(changes) do out[key] = value or nil end
  is_resolved[out] = is_resolved[resolved]
  return out
end

--- Returns the config of settings that may already be resolved, and the result of resolve, of which only text() may be
-- called. file: see resolve.
function config.resolved(given, file)
  local resolved = is_resolved[given] and setmetatable({ config = given }, Resolved)
    or config.resolve(given, { file = file })
  return resolved.config, resolved
end

--- Returns the settings of a run.
-- @param given the recipe's table
-- @param opt file: its name, for messages; text: its contents, for line numbers; sets: list of "a.b=value"; planned:
-- the
--   same, of a plan (ganymede.plan.auto), after the others;
--   flags: { key path = value } of other flags, named "--key"; in_code: a program's own settings (gm.launch):
--   nothing is required, and keys of its own are allowed
-- @return { config, file, rows(), text() }; raises a failure of status 2 with every problem
function config.resolve(given, opt)
  opt = opt or {}
  local file = opt.file or "the recipe"
  if type(given) ~= "table" then failure(2, "%s: a recipe is a table; got a %s", file, type(given)) end
  recipe.taken(given)
  local raw = {}
  for key, value in pairs(given) do raw[key] = copy(value, file .. ": " .. tostring(key), {}) end
  local state = { raw = raw, file = file, text = opt.text, set = {}, own = {}, default = {}, reasons = {},
    problems = {}, in_code = opt.in_code, given = given }
  for _, alias in ipairs(options.sorted_keys(schema.aliases)) do take_alias(state, alias, schema.aliases[alias]) end
  schema.reshape(state.raw)
  for _, text in ipairs(opt.sets or {}) do apply_set(state, text) end
  for _, text in ipairs(opt.planned or {}) do apply_set(state, text, PLAN) end
  for path, value in pairs(opt.flags or {}) do
    if state.set[path] then failure(2, "--%s and --set %s=... were given; leave one of them out", path, path) end
    state.raw[path], state.set[path] = value, "--" .. path
  end
  schema.reshape(state.raw)
  for _, left in ipairs(schema.refuse(state.raw)) do report(state, left.path, left.why) end
  check_name(state)
  check_fields(state, schema.fields, state.raw, "", false)
  check_served(state)
  check_schedule(state)
  check_micro_batches(state)
  for _, idle in ipairs(effects.problems(state.raw, opt.in_code)) do report(state, idle.path, idle.why) end
  if state.raw.epochs == nil and state.raw.steps == nil and not opt.in_code then
    state.raw.epochs, state.default.epochs = 1, true
  end
  fail_with(state.problems)
  is_resolved[state.raw] = true
  return setmetatable({ config = state.raw, file = file, state = state }, Resolved)
end

--- Returns the settings of a recipe that returned a table, as resolve does. source: the result of recipe.read; given:
-- the table; args: set (list of "key=value") and seed of the command line, planned.
function config.of_source(source, given, args)
  return config.resolve(given, { file = source.path, text = source.text, sets = args.set,
    planned = args.planned, flags = { seed = args.seed } })
end

return missing.guard("config", config)
