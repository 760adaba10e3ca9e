--- The text about an option of a class, by a path as recipes and --set write it: optimizer.lr, hooks.1.interval,
-- data.train.root, AdamW.lr.
--
--     options_of("optimizer.lr", find, of_value)     the text; nil and why; nil alone: no path of this kind
--
-- A setting such as `optimizer` can name several classes. Classes whose options of this name say the same share a
-- paragraph, so that a reader sees where they differ.
-- @module ganymede.reference.options_of
local options = require "ganymede.base.options"
local plain = require "ganymede.reference.plain"
local registry = require "ganymede.base.registry"

-- "data.train" and "root" of "data.train.root"; positions in lists go.
local function parted(name)
  local path, key = name:gsub("%.%d+", ""):match "^(.+)[.:]([%w_]+)$"
  return path, key
end

-- What a path names in order of preference: a setting that names classes, one class.
local function holder_of(found)
  for _, entry in ipairs(found) do
    local declared = entry.declared
    if declared and (declared.registry or declared.list_of) then return entry, declared.registry or declared.list_of end
  end
  return found[1]
end

-- The entries of all classes that a setting can name, each once.
local function classes_of(kind, of_value)
  local list, seen = {}, {}
  for _, name in ipairs(registry[kind]:names()) do
    local entry = of_value(registry[kind]:get(name))
    if entry and not seen[entry] then list[#list + 1], seen[entry] = entry, true end
  end
  return list
end

local function option_of(entry, key)
  for _, option in ipairs(entry.options) do
    if option.name == key then return option end
  end
end

-- Options of this name -> list of { option, classes = names }, those of most classes first.
local function grouped(entries, key)
  local groups, by_text = {}, {}
  for _, entry in ipairs(entries) do
    local option = option_of(entry, key)
    if option then
      local same = table.concat({ option.allowed, option.default, option.text or "" }, "\0")
      local group = by_text[same] or { option = option, classes = {}, at = #groups + 1 }
      if not by_text[same] then by_text[same], groups[#groups + 1] = group, group end
      table.insert(group.classes, entry.short)
    end
  end
  table.sort(groups, function(a, b)
    if #a.classes ~= #b.classes then return #a.classes > #b.classes end
    return a.at < b.at
  end)
  return groups
end

local function all_names(entries)
  local names = {}
  for _, entry in ipairs(entries) do
    for _, option in ipairs(entry.options) do names[option.name] = true end
  end
  return options.sorted_keys(names)
end

return function(name, find, of_value)
  local path, key = parted(name)
  local holder, kind = holder_of(path and find(path) or {})
  if not holder then return nil end
  if kind and key == "type" then return plain.entry(holder) end -- it lists the names
  local entries = kind and classes_of(kind, of_value) or { holder }
  local groups = grouped(entries, key)
  if #groups > 0 then return plain.option(path .. "." .. key, kind, groups) end
  local names = all_names(entries)
  if #names == 0 then return nil end
  local who = kind and ("no type of `%s` has an"):format(path) or holder.name .. " has no"
  return nil, ("%s option '%s'%s"):format(who, key, options.hint(key, names))
end
