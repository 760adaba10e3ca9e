--- Lists of Lua patterns over names of parameters or paths of layers, as options take them.
-- @module ganymede.nn.patterns
local options = require "ganymede.base.options"

local patterns = {}

--- A pattern, a list of them or nil -> a list. what: the option, for messages.
function patterns.list(what, given)
  local list = type(given) == "string" and { given } or given or {}
  if type(list) ~= "table" then
    error(("%s is a Lua pattern or a list of them; got %s"):format(what, options.brief(given)), 0)
  end
  for i, pattern in ipairs(list) do
    if type(pattern) ~= "string" or not pcall(string.find, "", pattern) then
      error(("%s[%d] is no Lua pattern; got %s"):format(what, i, options.brief(pattern)), 0)
    end
  end
  return list
end

--- The place of the first pattern that finds something in the name, or nil.
function patterns.find(list, name)
  for i, pattern in ipairs(list) do
    if name:find(pattern) then return i end
  end
end

--- Refuses a pattern that finds none of the names.
function patterns.refuse_idle(what, list, names)
  for i, pattern in ipairs(list) do
    local used = false
    for _, name in ipairs(names) do used = used or name:find(pattern) ~= nil end
    if not used then
      error(("%s[%d] = %q matches nothing; there is %s%s"):format(what, i, pattern,
        table.concat(names, ", ", 1, math.min(#names, 8)), #names > 8 and ", ..." or ""), 0)
    end
  end
end

return patterns
