--- Small tables for specs: each function gives a new one and leaves what it was given.
local tables = {}

--- base with the keys of more (or nil), which win.
function tables.with(base, more)
  local out = {}
  for key, value in pairs(base) do out[key] = value end
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

--- All but one key.
function tables.without(base, key)
  local out = tables.with(base)
  out[key] = nil
  return out
end

--- Lists one after the other; the last may be nil.
function tables.joined(...)
  local out = {}
  for _, list in ipairs { ... } do
    for _, value in ipairs(list) do out[#out + 1] = value end
  end
  return out
end

return tables
