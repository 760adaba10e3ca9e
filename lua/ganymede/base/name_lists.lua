--- How lists of names of others are written: { [name] = what to write for it } (other_names, other_types).
-- @module ganymede.base.name_lists
local name_lists = {}

--- Returns a list in which each of the names, a text with blanks between them, has this text.
function name_lists.all(text, names)
  local out = {}
  for name in names:gmatch "%S+" do out[name] = text end
  return out
end

--- Returns one list with the names of all of these; a later one counts where two have the same name.
function name_lists.merged(lists)
  local out = {}
  for _, list in ipairs(lists) do
    for name, text in pairs(list) do out[name] = text end
  end
  return out
end

return name_lists
