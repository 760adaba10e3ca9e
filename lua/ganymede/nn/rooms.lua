--- Room for the keys and values of a layer, which doubles when it is full.
--
--     local entry = rooms.entry(cache, layer, { k = k, v = v }, needed, kept, like)    -- { room, k, v }
--
-- cache: { entries = by layer, room = of a first entry }; needed: positions that must fit; kept: those that an entry
-- has, which move to a larger one; like(x, size): kept tensors with the shape of x (b, s, heads, d), and `size`
-- positions.
-- @module ganymede.nn.rooms
local ops = require "ganymede.tensor.ops"

local rooms = {}

function rooms.entry(cache, layer, given, needed, kept, like)
  local entry = cache.entries[layer]
  if entry and entry.room >= needed then return entry end
  local size = math.max(needed, entry and 2 * entry.room or cache.room)
  local new = { room = size, k = like(given.k, size), v = like(given.v, size) }
  for _, name in ipairs(entry and { "k", "v" } or {}) do
    if kept > 0 then ops.narrow(new[name], 2, 1, kept):copy_(ops.narrow(entry[name], 2, 1, kept)) end
    entry[name]:release()
  end
  cache.entries[layer] = new
  return new
end

return rooms
