--- The reference: an entry for everything that users write, found by name, printed by `help`, by `?` and by `docs`.
--
--     reference.all()               list of entries (ganymede.reference.entry), in the order of the pages
--     reference.find "sum"          list of those that the name may mean
--     reference.explain "sum"       the text of one, or the choice between several; nil and why
--
-- Entries are collected from declarations and comments when somebody first asks. The trap: a name of several entries
-- is answered by the one whose whole name it is, if there is one.
-- @module ganymede.reference
local options = require "ganymede.base.options"
local options_of = require "ganymede.reference.options_of"
local plain = require "ganymede.reference.plain"

local reference = {}

-- Who adds entries, by name: the last lies above this folder, as the command line lies above everything.
local collectors = { "ganymede.reference.tensors", "ganymede.reference.functions", "ganymede.reference.classes",
  "ganymede.reference.settings", "ganymede.cli.describe" }

--- What entries of a kind are called.
reference.kinds = {
  op = "an op", method = "a method of tensors", ["function"] = "a function", object = "a method", layer = "a layer",
  model = "a model", loss = "a loss", optimizer = "an optimizer", lr_scheduler = "a learning-rate schedule",
  hook = "a hook", metric = "a metric", dataset = "a dataset", sampler = "a sampler", transform = "a transform",
  router = "a router",
  schedule = "a schedule", order = "an order of a pipeline", gradient_handler = "a gradient handler",
  initializer = "an initializer", tensor_mode = "a mode of tensor parallelism", setting = "a setting of recipes",
  module = "a module", value = "a table",
  verb = "a verb of the command line", variable = "a variable of the environment",
}

local function collect()
  local list, known = {}, {}
  local function add(entry)
    if known[entry.name] then error("the reference has two entries called " .. entry.name, 0) end
    known[entry.name], list[#list + 1] = true, entry
    entry.what = entry.what or reference.kinds[entry.kind] or error("no such kind: " .. tostring(entry.kind))
  end
  for _, name in ipairs(collectors) do require(name)(add) end
  return list
end

local collected -- registered() when the list was made
local list, by_name, by_short, by_lower, by_value

local function put(index, name, entry)
  local entries = index[name] or {}
  for _, other in ipairs(entries) do
    if other == entry then return end
  end
  entries[#entries + 1], index[name] = entry, entries
end

-- How many classes are registered: users register theirs at any time.
local function registered()
  local n = 0
  for kind, shelf in pairs(require "ganymede.base.registry") do
    if type(shelf) == "table" and kind:find "^%l" then n = n + #shelf.order end
  end
  return n
end

local function load()
  if list and registered() == collected then return end
  list, by_name, by_short, by_lower, by_value = collect(), {}, {}, {}, {}
  for _, entry in ipairs(list) do
    for _, name in ipairs(entry.names) do put(by_name, name, entry) end
    if entry.value ~= nil then by_value[entry.value] = by_value[entry.value] or entry end
    put(by_short, entry.short, entry)
    put(by_lower, entry.short:lower(), entry)
  end
  collected = registered()
end

--- All entries.
function reference.all()
  load()
  return list
end

-- "gm.ops.sum()" and "x.sum" as entries write them.
local function cleaned(name) return (name:gsub("%(.*%)%s*$", ""):match "^%s*(.-)%s*$") end

--- The entries that a name may mean: those whose whole name it is, else those whose last part it is; {}: none.
function reference.find(name)
  load()
  name = cleaned(name)
  return by_name[name] or by_name["gm." .. name] or by_short[name] or by_lower[name:lower()] or {}
end

-- Up to five candidates within so many edits, best first; nil for any number: one that has the name in it.
local function within(name, candidates, edits)
  local out, left = {}, { unpack(candidates) }
  while #out < 5 do
    local near = options.nearest(name, left, edits and edits + 0.5)
    if not near then break end
    out[#out + 1] = near
    for i = #left, 1, -1 do
      if left[i] == near then table.remove(left, i) end
    end
  end
  return out
end

--- Names near one that is not there, best first, at most five: with as few edits as there are.
function reference.near(name)
  load()
  local candidates = {}
  for _, index in ipairs { by_name, by_short } do
    for key in pairs(index) do candidates[#candidates + 1] = key end
  end
  table.sort(candidates)
  for edits = 1, math.max(1, math.floor(#name / 3)) do
    local out = within(name, candidates, edits)
    if #out > 0 then return out end
  end
  return #name >= 5 and within(name, candidates) or {}
end

--- The entry of a function or class; nil: it has none.
function reference.of_value(value)
  load()
  return by_value[value]
end

-- What else the last part of the name means, below an entry.
local function others(entry)
  local names = {}
  for _, other in ipairs(by_short[entry.short] or {}) do
    if other ~= entry then names[#names + 1] = other.name end
  end
  return #names > 0 and "\nof the same name: " .. table.concat(names, ", ") or ""
end

--- The text about a name, or about an option of a class by a path (optimizer.lr); nil and a message: there is none.
function reference.explain(name)
  local found = reference.find(name)
  if #found == 1 then return plain.entry(found[1]) .. others(found[1]) end
  if #found > 1 then return plain.choices(name, found) end
  local said, why = options_of(cleaned(name), reference.find, reference.of_value)
  if said or why then return said, why end
  local near = reference.near(name)
  local hint = #near > 0 and (" (did you mean '%s'?)"):format(table.concat(near, "', '")) or ""
  return nil, ("there is no '%s'%s"):format(name, hint)
end

return reference
