--- Options declared once: checks, defaults, "did you mean", help and printing come from one table.
--
--     Linear.options = {
--       inputs = { type = "integer", min = 1, doc = "the width of x" },
--       bias   = { type = "boolean", default = true, doc = "whether the bias b is added" },
--     }
--     local opt = options.check("Linear", Linear.options, given, 3)
--
-- An entry: type (a name or a list of names: integer number boolean string table list function module tensor object
-- cdata any; list: a table without named fields and holes), default, optional = true, min, max, above (exclusive min),
-- below (exclusive max), one_of = { ... }, doc, hidden = true (not shown by options.show), initial
-- (the default in words, for help).
-- Numbers must be finite unless the entry says infinite = true; NaN is never accepted.
-- The trap: defaults that are tables are shared, so nobody may write into them.
local options = {}

local function is_module(value)
  if type(value) ~= "table" or not getmetatable(value) then return false end
  local ok, forward = pcall(function() return value.forward end)
  return ok and type(forward) == "function"
end

local function is_integer(value)
  return type(value) == "number" and value == math.floor(value) and math.abs(value) <= 2 ^ 53
end

-- A key that a list has not, or a position that it lacks; nil: the table is a list.
local function beside_list(value)
  local count, length = 0, #value
  for key in pairs(value) do
    if type(key) ~= "number" or key < 1 or key > length or key % 1 ~= 0 then return key end
    count = count + 1
  end
  return count < length and length or nil
end

local holds = {
  any = function() return true end,
  integer = is_integer,
  list = function(value) return type(value) == "table" and beside_list(value) == nil end,
  module = is_module,
  number = function(value, entry)
    return type(value) == "number" and value == value and (entry.infinite or math.abs(value) < math.huge)
  end,
  ["function"] = function(value)
    local meta = type(value) == "table" and getmetatable(value)
    return type(value) == "function" or (meta and meta.__call ~= nil)
  end,
}
for _, name in ipairs { "boolean", "string", "table", "cdata" } do
  holds[name] = function(value) return type(value) == name end
end
function holds.tensor(value) return type(value) == "userdata" end
function holds.object(value)
  return type(value) == "userdata" or type(value) == "table" and getmetatable(value) ~= nil
end

--- Has the value this type? Of numbers whether they are finite is not asked.
function options.is_of_type(name, value)
  if name == "number" then return type(value) == "number" end
  return holds[name](value, {})
end

local function types_of(entry) return type(entry.type) == "table" and entry.type or { entry.type or "any" } end

--- A value as it would be written in Lua, short enough for one line of a message.
function options.literal(value)
  if type(value) == "string" then return ("%q"):format(value):gsub("\\\n", "\\n") .. "" end
  if type(value) == "number" then
    if value ~= value or math.abs(value) == math.huge then return tostring(value) end
    return (value == math.floor(value) and math.abs(value) <= 2 ^ 53 and "%d" or "%.14g"):format(value)
  end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts, length = {}, #value
  for i = 1, length do parts[i] = options.literal(value[i]) end
  local names = {}
  for key in pairs(value) do
    if not (type(key) == "number" and key >= 1 and key <= length) then names[#names + 1] = key end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, key in ipairs(names) do parts[#parts + 1] = tostring(key) .. " = " .. options.literal(value[key]) end
  return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
end

local function article(names)
  local said = {}
  for i, name in ipairs(names) do
    said[i] = name == "any" and "any value" or (name:match "^[aeiou]" and "an " or "a ") .. name
  end
  return table.concat(said, " or ")
end

local bounds = {
  { "min", "at least", function(v, b) return v >= b end }, { "max", "at most", function(v, b) return v <= b end },
  { "above", "above", function(v, b) return v > b end }, { "below", "below", function(v, b) return v < b end },
}

--- What the entry allows, in words: "an integer, at least 1".
function options.allowed(entry)
  local said = { article(types_of(entry)) }
  for _, bound in ipairs(bounds) do
    if entry[bound[1]] then said[#said + 1] = bound[2] .. " " .. options.literal(entry[bound[1]]) end
  end
  if not entry.one_of then return table.concat(said, ", ") end
  local choices = {}
  for i, choice in ipairs(entry.one_of) do choices[i] = options.literal(choice) end
  return "one of " .. table.concat(choices, ", ")
end

local function is_of(name, entry, value)
  local test = holds[name] or error("options: an entry has the unknown type '" .. tostring(name) .. "'", 0)
  return test(value, entry)
end

local function has_type(entry, value)
  if type(entry) ~= "table" then
    error("options: an entry is a table, such as { type = \"integer\", default = 1 }; got "
      .. options.literal(entry), 0)
  end
  local names = entry.type or "any"
  if type(names) ~= "table" then return is_of(names, entry, value) end
  for i = 1, #names do
    if is_of(names[i], entry, value) then return true end
  end
  return false
end

local function is_in_bounds(entry, value)
  for i = 1, #bounds do
    local bound = bounds[i]
    local limit = entry[bound[1]]
    if limit and not bound[3](value, limit) then return false end
  end
  return true
end

-- Called for every option of every call: makes no tables.
local function is_allowed(entry, value)
  if not has_type(entry, value) then return false end
  if type(value) == "number" and not is_in_bounds(entry, value) then return false end
  local choices = entry.one_of
  if not choices then return true end
  for i = 1, #choices do
    if choices[i] == value then return true end
  end
  return false
end

--- Does the entry allow the value? As a function of the value, for entries that are asked again and again.
function options.tester(entry)
  local choices, test = {}, holds[entry.type]
  if not entry.one_of then
    for _, bound in ipairs(bounds) do
      if entry[bound[1]] then test = nil end
    end
    if not test then return function(value) return is_allowed(entry, value) end end
    return function(value) return test(value, entry) end
  end
  for _, choice in ipairs(entry.one_of) do choices[choice] = is_allowed(entry, choice) end
  return function(value) return choices[value] == true end
end

-- A value in a few words.
local function brief(value)
  if type(value) == "userdata" then -- whose elements may be on other ranks
    return getmetatable(value) == "gm.tensor" and "a tensor" or "an object"
  end
  local meta = type(value) == "table" and getmetatable(value)
  if type(meta) == "table" and type(rawget(meta, "__name")) == "string" then return meta.__name end
  local text = type(value) == "string" and options.literal(value) or type(value) ~= "table" and tostring(value)
    or getmetatable(value) and "an object" or options.literal(value)
  return #text > 60 and text:sub(1, 57) .. "..." or text
end

options.brief = brief

-- Why a table is no list, in words.
local function not_a_list(value)
  local key = beside_list(value)
  if type(key) == "number" then return "; a list has no holes" end
  return key ~= nil and ("; a list has no field '%s'"):format(tostring(key)) or ""
end

--- nil when the entry allows the value, else the reason: "must be an integer, at least 1; got 0".
function options.problem(entry, value)
  if is_allowed(entry, value) then return nil end
  local hint = ""
  if entry.one_of and type(value) == "string" then
    hint = options.hint(value, entry.one_of)
  elseif type(value) == "table" and table.concat(types_of(entry), " "):find "list" then
    hint = not_a_list(value)
  end
  return ("must be %s; got %s%s"):format(options.allowed(entry), brief(value), hint)
end

-- Damerau-Levenshtein (optimal string alignment): one swap of neighbours counts as one edit.
local function distance(a, b)
  local before, last, this = {}, {}, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    this[0] = i
    for j = 1, #b do
      local change = a:byte(i) == b:byte(j) and 0 or 1
      this[j] = math.min(last[j] + 1, this[j - 1] + 1, last[j - 1] + change)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        this[j] = math.min(this[j], before[j - 2] + 1)
      end
    end
    before, last, this = last, this, before
  end
  return last[#b]
end

-- The shortest candidate that has the whole of a name of some length in it: smoothing for label_smoothing.
local function containing(name, candidates)
  local best
  for _, candidate in ipairs(candidates) do
    local within = type(candidate) == "string" and #name >= 5 and candidate:lower():find(name:lower(), 1, true)
    if within and (not best or #candidate < #best) then best = candidate end
  end
  return best
end

--- The candidate (a list of strings) nearest to name within so many edits (default max(2, #name / 3)), else one
-- that contains it, or nil. Case does not count; a candidate of which no letter would remain is none.
function options.nearest(name, candidates, most)
  name = tostring(name)
  if #name > 64 then return nil end
  local best, fewest = nil, most or math.max(2, #name / 3)
  for _, candidate in ipairs(candidates) do
    if type(candidate) == "string" and #candidate <= 64 then
      local edits = distance(name:lower(), candidate:lower())
      local better = edits < fewest or edits == fewest and (not best or candidate < best)
      if better and edits < math.max(#candidate, #name) then best, fewest = candidate, edits end
    end
  end
  return best or not most and containing(name, candidates) or nil
end

--- " (did you mean 'sum'?)"; "" where no candidate is near.
function options.hint(name, candidates)
  local near = options.nearest(name, candidates)
  return near and (" (did you mean '%s'?)"):format(near) or ""
end

local FEW = 12 -- names that are listed where none is near

--- The same; where no name is near, all of them if they are few, behind `said` ("; there are ").
function options.hint_or_list(name, candidates, said)
  local near = options.hint(name, candidates)
  if near ~= "" or #candidates == 0 or #candidates > FEW then return near end
  return said .. table.concat(candidates, ", ")
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    local of_a, of_b = type(a), type(b)
    if of_a ~= of_b then return of_a < of_b end
    if of_a == "number" or of_a == "string" then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end
options.sorted_keys = sorted_keys

local function unknown(spec, key, aliases)
  local names = sorted_keys(spec)
  for _, alias in ipairs(sorted_keys(aliases or {})) do names[#names + 1] = alias end
  return type(key) == "string" and options.hint_or_list(key, names, "; there are ") or ""
end

local function shown_key(key) return type(key) == "string" and "'" .. key .. "'" or "[" .. tostring(key) .. "]" end

-- given with aliases replaced by the names they stand for
local function renamed(given, aliases, add)
  local named = {}
  for _, key in ipairs(sorted_keys(given)) do
    local name = aliases and aliases[key] or key
    if named[name] ~= nil then add(name, ("is given twice, also as %s"):format(shown_key(key)), {}) end
    named[name] = given[key]
  end
  return named
end

--- Every problem of `given` at once -> filled (defaults in place), list of { key, why, message }.
-- why reads after the key ("must be an integer; got 0.5"), message stands alone.
function options.inspect(spec, given, aliases)
  local filled, problems = {}, {}
  local function add(key, why, more)
    more.key, more.why = key, why
    more.message = more.message or ("option %s %s"):format(shown_key(key), why)
    problems[#problems + 1] = more
  end
  local named = renamed(given, aliases, add)
  for _, key in ipairs(sorted_keys(named)) do
    local entry = spec[key]
    if not entry then
      local hint = unknown(spec, key, aliases)
      add(key, "is no option" .. hint, { unknown = true, message = ("no option %s%s"):format(shown_key(key), hint) })
    else
      local why = options.problem(entry, named[key])
      if why then add(key, why, {}) end
      filled[key] = named[key]
    end
  end
  for _, key in ipairs(sorted_keys(spec)) do
    local entry = spec[key]
    if filled[key] == nil then filled[key] = entry.default end
    if filled[key] == nil and not entry.optional then
      add(key, "is missing: " .. (entry.doc or options.allowed(entry)), { missing = true })
    end
  end
  return filled, problems
end

-- What an entry may say. Those of the second line are for settings of recipes (ganymede.config.schema).
local says = {}
for name in ([[type default optional min max above below one_of doc hidden initial infinite
  fields registry list_of short hint unserved given_later open]]):gmatch "%S+" do
  says[name] = true
end

local declared = setmetatable({}, { __mode = "k" }) -- the tables of options that were found right

local function refuse_entry(where, entry, level)
  if type(entry) ~= "table" then
    error(('%s is declared as %s; write a table such as { type = "integer", default = 1, doc = "what it is" }'):format(
      where, brief(entry)), level + 1)
  end
  for _, field in ipairs(sorted_keys(entry)) do
    if not says[field] then
      error(("%s is declared with '%s', which means nothing%s"):format(where, tostring(field),
        options.hint(field, sorted_keys(says))), level + 1)
    end
  end
  for _, name in ipairs(types_of(entry)) do
    if not holds[name] then
      error(("%s is declared with the type %s; there are %s"):format(where, brief(name),
        table.concat(sorted_keys(holds), ", ")), level + 1)
    end
  end
end

--- Refuses a table of options in which an entry is none, or says what nobody reads: it would be ignored. level: as of
-- check.
function options.refuse_declaration(owner, spec, level)
  if declared[spec] then return end
  for _, key in ipairs(sorted_keys(spec)) do
    refuse_entry(("%s: the option %s"):format(owner, shown_key(key)), spec[key], level + 1)
  end
  declared[spec] = true
end

--- For functions that make a class ("optim.class Mine"): refuses a parent that is not of the kind ("optimizers") whose
-- first class is root, and a declaration of options (nil: none) as above. The message names the caller of the caller.
function options.refuse_class(owner, kind, parent, root, spec)
  local class = parent
  while type(class) == "table" and class ~= root do
    local meta = getmetatable(class)
    class = meta and meta.__index
  end
  if class ~= root then
    error(("%s: its parent must be a class of %s; got %s"):format(owner, kind, brief(parent)), 3)
  end
  if spec then options.refuse_declaration(owner, spec, 3) end
end

--- A new table: `given` checked against `spec`, defaults filled in. Raises the first problem.
-- @param owner whom the message names: "Linear"
-- @param level whose line the message names, as error() counts it where check is called (default 2, the
--   caller of the function that calls check)
function options.check(owner, spec, given, level, aliases)
  level = level or 2
  if level > 0 then level = level + 1 end -- 0: no place, as for error()
  options.refuse_declaration(owner, spec, level)
  if given == nil then given = {} end
  if type(given) ~= "table" then
    error(("%s takes a table of options; got %s"):format(owner, brief(given)), level)
  end
  local filled, problems = options.inspect(spec, given, aliases)
  local first = problems[1]
  if first then
    local verb = first.unknown and " has " or ": "
    error(owner .. verb .. first.message, level)
  end
  return filled
end

--- " { inputs = 3, outputs = 4 }": sorted, defaults left out; "" when nothing is left.
function options.show(spec, opt)
  local said = {}
  for _, key in ipairs(sorted_keys(opt)) do
    local entry = spec[key]
    if entry and not entry.hidden and opt[key] ~= entry.default then
      said[#said + 1] = ("%s = %s"):format(key, brief(opt[key]))
    end
  end
  return #said == 0 and "" or " { " .. table.concat(said, ", ") .. " }"
end

--- One or two lines an option: name, what is allowed, default, sentence.
function options.help(spec)
  local lines = {}
  for _, key in ipairs(sorted_keys(spec)) do
    local entry = spec[key]
    local default = entry.default ~= nil and ("default " .. brief(entry.default))
      or entry.initial and "default " .. entry.initial or entry.optional and "optional" or "required"
    lines[#lines + 1] = ("  %-20s %s (%s)"):format(key, options.allowed(entry), default)
    if entry.doc then lines[#lines + 1] = (" "):rep(23) .. entry.doc end
  end
  return table.concat(lines, "\n")
end

return options
