--- Modules that are trained as a whole beside adapters, and stand in PEFT's files as they are: modules_to_save.
--
-- PEFT trains a full copy of a module that modules_to_save names, such as a classification head or a table of tokens,
-- and writes its arrays beside those of the adapters, under the names that the model has for them. A name means every
-- module whose path ends like it. What is one parameter here may be several modules there, and the other way round: so
-- a module is written with all its arrays, also with those that were not trained.
--
-- Where a model has one table for tokens and head, PEFT makes two of it once one of them is named. So both are written,
-- with the same numbers, and both must be read, with the same numbers.
-- @module ganymede.hub.whole_modules
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local twins = require "ganymede.hub.twins"

local M = {}

-- The entries of a model with the arrays of each: list of { parameter, pieces, shapes, twins = { [array] = its twin },
-- arrays = list of names, twins included }.
local function entries_of(family, opt)
  local tied, list = family.tied and family.tied(opt) or {}, {}
  for i, entry in ipairs(family.entries(opt)) do
    local own, seen = { parameter = entry.parameter, pieces = entry.pieces, shapes = entry.shapes, twins = {},
      arrays = {} }, {}
    for _, piece in ipairs(entry.pieces) do
      if not seen[piece.name] then own.arrays[#own.arrays + 1] = piece.name end
      seen[piece.name] = true
    end
    for _, name in ipairs(options.sorted_keys(seen)) do
      own.twins[name] = tied[name]
      own.arrays[#own.arrays + 1] = tied[name]
    end
    list[i] = own
  end
  return list
end

local function module_of(array) return array:match "^(.*)%.[^.]+$" end

local function is_within(path, module) return path == module or path:sub(1, #module + 1) == module .. "." end

-- The pieces under other names: root before each; or all of them those of the twin.
local function renamed(entry, root, twin)
  local pieces, shapes = {}, {}
  for i, piece in ipairs(entry.pieces) do
    pieces[i] = {}
    for k, v in pairs(piece) do pieces[i][k] = v end
    pieces[i].name = root .. (twin or piece.name)
  end
  for name, shape in pairs(entry.shapes or {}) do shapes[root .. (twin or name)] = shape end
  return { parameter = entry.parameter, pieces = pieces, shapes = shapes }
end

-- What is written or read of entries: one for each parameter, and one more for each twin.
local function with_twins(list, root)
  local out = {}
  for _, entry in ipairs(list) do
    out[#out + 1] = renamed(entry, root)
    for _, name in ipairs(options.sorted_keys(entry.twins)) do
      out[#out + 1] = renamed(entry, root, entry.twins[name])
      out[#out].twin_of = root .. name
    end
  end
  return out
end

-- ---------------------------------------------------------------- writing

-- Marks modules in which `marked` entries have arrays, and entries that have some in these modules, until all are.
local function close(list, marked, modules)
  local before
  repeat
    before = 0
    for _ in pairs(modules) do before = before + 1 end
    for i, entry in ipairs(list) do
      for _, array in ipairs(entry.arrays) do
        for module in pairs(modules) do marked[i] = marked[i] or is_within(array, module) end
      end
      for _, array in ipairs(marked[i] and entry.arrays or {}) do modules[module_of(array)] = true end
    end
    local now = 0
    for _ in pairs(modules) do now = now + 1 end
  until now == before
end

-- The outermost of a set of modules, sorted.
local function outermost(modules)
  local out = {}
  for _, module in ipairs(options.sorted_keys(modules)) do
    local inner = false
    for other in pairs(modules) do inner = inner or other ~= module and is_within(module, other) end
    if not inner then out[#out + 1] = module end
  end
  return out
end

--- What is trained whole in a model: a list of { parameter, pieces, shapes } to write, and the names of the modules.
-- adapted: the paths there of layers with adapters, as a list.
function M.of_model(model, family, root, adapted)
  local list, places, marked, modules = entries_of(family, model.opt), {}, {}, {}
  for i, entry in ipairs(list) do places[entry.parameter] = i end
  for _, p in ipairs(model:declared()) do
    if not (p.entry.frozen or p.tied or p.name:find "%.lora%.") then
      local place = places[p.name]
        or failure(2, "save_adapter: %s is trained too, and has no counterpart in the files of others", p.name)
      marked[place] = true
      for _, array in ipairs(list[place].arrays) do modules[module_of(array)] = true end
    end
  end
  close(list, marked, modules)
  local names, out = outermost(modules), {}
  for _, name in ipairs(names) do
    for _, layer in ipairs(adapted) do
      if is_within(layer, name) then
        failure(2, "save_adapter: %s has an adapter, and is trained as a whole, too (%s); PEFT has one or the other; "
          .. "merge the adapters and use gm.export_model, or keep a checkpoint", layer, name)
      end
    end
  end
  for i, entry in ipairs(list) do
    if marked[i] then out[#out + 1] = entry end
  end
  return with_twins(out, root), names
end

-- ---------------------------------------------------------------- reading

-- Does a module, or one that it is in, have a path that ends like one of the names?
local function is_named(array, names, root)
  local module = module_of(root .. array)
  while module do
    for _, name in ipairs(names) do
      if module:sub(-#name) == name then return true end
    end
    module = module_of(module)
  end
  return false
end

-- Refuses a parameter of which the names mean only some arrays.
local function check_whole(entry, named, refuse)
  local some, lacking
  for _, array in ipairs(entry.arrays) do
    if named[array] then some = array else lacking = array end
  end
  if some and lacking then
    refuse("modules_to_save names the module of %s but not that of %s, and both are the one parameter '%s' here; "
      .. "train both with PEFT", some, lacking, entry.parameter)
  end
  return some ~= nil
end

local function check_names(given, refuse)
  if type(given) ~= "table" then refuse("modules_to_save is %s; it must be a list of names", options.brief(given)) end
  for key, name in pairs(given) do
    if type(key) ~= "number" or type(name) ~= "string" or name == "" then
      refuse("modules_to_save must be a list of names; it has %s", options.brief(name))
    end
  end
  return given
end

--- What modules_to_save of a file's config means in a model: a list of { parameter, pieces, shapes, twin_of } to read.
-- twin_of: the array whose numbers it must repeat, which check_twins does. refuse: as of the config.
function M.of_file(config, refuse, model, family, root)
  local given = config.modules_to_save
  if not given or given == json.null then return {} end
  local names, out = check_names(given, refuse), {}
  for _, entry in ipairs(entries_of(family, model.opt)) do
    local named = {}
    for _, array in ipairs(entry.arrays) do named[array] = is_named(array, names, root) or nil end
    for array, twin in pairs(config.ensure_weight_tying == true and entry.twins or {}) do
      if named[array] or named[twin] then named[array], named[twin] = true, true end
    end
    if check_whole(entry, named, refuse) then out[#out + 1] = entry end
  end
  return with_twins(out, root)
end

--- Refuses a file in which a table that is one here has other numbers the second time. Collective.
function M.check_twins(file, entries)
  for _, entry in ipairs(entries) do
    local twin = entry.twin_of and entry.pieces[1].name
    local said = twin and ranks.from_first(function()
      return twins.differ(file, entry.twin_of, twin) and "differ" or "same"
    end)
    if said == "differ" then
      failure(2, "%s: %s and %s are one parameter here, '%s', and have different numbers there; train them as one "
        .. "(ensure_weight_tying), or untie the model", file.path, entry.twin_of, twin, entry.parameter)
    end
  end
end

return M
