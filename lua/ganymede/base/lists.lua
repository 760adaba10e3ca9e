--- Parts of lists. LuaJIT's unpack takes less than 8,000 entries; lists of tokens and prompts may have more.
-- @module ganymede.base.lists
local lists = {}

--- The part of a list from an entry on, as a list of its own.
function lists.part(list, first)
  local out = {}
  for i = first, #list do out[i - first + 1] = list[i] end
  return out
end

--- The entries of several lists, one list after the other, as a list of its own.
function lists.joined(...)
  local out = {}
  for _, list in ipairs { ... } do
    for _, entry in ipairs(list) do out[#out + 1] = entry end
  end
  return out
end

return lists
