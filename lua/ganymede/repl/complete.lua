--- Completion of names: globals, fields, tensor methods, parameters and parts of modules.
--
--     complete "gm.ops.soft"   --> "max(", nil      (what to type for the user, what to list)
-- To look up a field may run the __index of an object. Completion never calls a function of the user.
local core = require "ganymede.core"
local public = require "ganymede.base.public"

local complete = {}

local function get(object, key)
  local ok, value = pcall(function() return object[key] end)
  if ok then return value end
end

local function add(found, key)
  if type(key) == "string" and key:match "^[%a_][%w_]*$" and key:sub(1, 2) ~= "__" then found[key] = true end
end

local function add_keys(found, t, depth)
  if type(t) ~= "table" or depth > 8 then return end
  for key in next, t do add(found, key) end
  local meta = debug.getmetatable(t)
  local index = type(meta) == "table" and rawget(meta, "__index")
  if type(index) == "table" and index ~= t then
    add_keys(found, index, depth + 1)
  elseif type(index) == "function" and type(meta) == "table" then
    add_keys(found, meta, depth + 1) -- a class that looks up in itself
  end
end

local function add_module(found, m)
  local own = rawget(m, "_module")
  if type(own) ~= "table" then return end
  for _, list in ipairs { "parameters", "buffers", "children" } do
    for key in pairs(own[list] or {}) do add(found, key) end
  end
end

-- gm loads a part when it is first used, so a part that is not loaded is not a key yet.
local function add_parts(found)
  for _, list in ipairs { public.from, public.modules } do
    for name in pairs(list) do found[name] = true end
  end
end

--- Returns the set of names that can follow an object.
function complete.names(object)
  local found = {}
  if core.is_tensor(object) then
    add_keys(found, require("ganymede.tensor").methods, 0)
  elseif type(object) == "string" then
    add_keys(found, string, 0)
  elseif type(object) == "table" then
    add_keys(found, object, 0)
    add_module(found, object)
    if object == package.loaded.ganymede then add_parts(found) end
  end
  return found
end

-- Splits "a.b:c" -> the object a.b, "c".
local function resolve(word, globals)
  local object, rest = globals, word
  while true do
    local name, after = rest:match "^([%w_]+)[.:](.*)$"
    if not name then return object, rest end
    object = get(object, tonumber(name) or name)
    if object == nil then return nil end
    rest = after
  end
end

local function common(names)
  local prefix = names[1]
  for _, name in ipairs(names) do
    while name:sub(1, #prefix) ~= prefix do prefix = prefix:sub(1, -2) end
  end
  return prefix
end

local function is_function(v)
  if type(v) == "function" then return true end
  local meta = type(v) == "table" and debug.getmetatable(v)
  return type(meta) == "table" and rawget(meta, "__call") ~= nil and rawget(v, "__index") ~= nil
end

local function listed(names)
  local width, lines, line = 0, {}, ""
  for _, name in ipairs(names) do width = math.max(width, #name + 2) end
  for _, name in ipairs(names) do
    if #line + width > 100 then lines[#lines + 1], line = line, "" end
    line = line .. name .. (" "):rep(width - #name)
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

--- Says what Tab does after this text -> the text to insert or nil, the lines to show or nil.
function complete.line(before, globals)
  local word = before:match "[%a_][%w_.:]*$"
  if not word then return nil end
  local object, part = resolve(word, globals or _G)
  if object == nil then return nil end
  local names = {}
  for name in pairs(complete.names(object)) do
    if name:sub(1, #part) == part then names[#names + 1] = name end
  end
  table.sort(names)
  if #names == 0 then return nil end
  local typed = common(names):sub(#part + 1)
  if #names == 1 then return typed .. (is_function(get(object, names[1])) and "(" or "") end
  if typed ~= "" then return typed end
  return nil, listed(names)
end

return complete
