--- The roles of ranks on a mesh: what one rank of each stands for.
--
--     local list = representatives.list(mesh)                          -- first, between or last along each axis
--     local list = representatives.list(mesh, { pipeline = true })     -- every coordinate of this axis
--     local list = representatives.list(mesh, { data = "first" })      -- the first coordinate stands for all;
--                                                                          "second": for all but the first
--     local role = representatives.of(mesh, whole)                     -- rank + 1 -> place in that list
--
-- mesh: a list of { name, size }, slowest first. The trap: that ranks between the first and the last along an axis do
-- the same is an assumption about recipes; axes along which ranks differ are to be named in `whole`.
-- @module ganymede.plan.representatives
local representatives = {}

-- How many coordinates, from the first on, of which the last stands for the rest; nil: otherwise.
local few = { first = 1, second = 2 }
local function few_of(axis, whole)
  local n = few[(whole or {})[axis.name]]
  return n and math.min(n, axis.size)
end

local function is_whole(axis, whole)
  return not few_of(axis, whole) and (axis.size <= 3 or (whole or {})[axis.name]) or false
end

-- Returns the coordinates along an axis that represent all: { { at, "first" }, ... }.
local function places(axis, whole)
  local list = { { 0, "first" } }
  if few_of(axis, whole) then
    if few_of(axis, whole) == 2 then list[2] = { 1, "other" } end
    return list
  end
  local step = is_whole(axis, whole) and 1 or math.max(1, axis.size - 2)
  for at = 1, axis.size - 2, step do
    list[#list + 1] = step == 1 and { at, axis.size == 3 and "between" or ("at %d"):format(at) }
      or { math.floor(axis.size / 2), "between" }
  end
  if axis.size > 1 then list[#list + 1] = { axis.size - 1, "last" } end
  return list
end

--- Returns the list of { rank, role = { axis = "first", "between", "last" or "at N" }, text }.
function representatives.list(mesh, whole)
  local out = { { rank = 0, role = {}, text = "" } }
  for _, axis in ipairs(mesh) do
    local more = {}
    for _, r in ipairs(out) do
      for _, place in ipairs(places(axis, whole)) do
        local role = { [axis.name] = place[2] }
        for name, is in pairs(r.role) do role[name] = is end
        more[#more + 1] = { rank = r.rank * axis.size + place[1], role = role,
          text = ("%s%s%s %s"):format(r.text, r.text == "" and "" or ", ", axis.name, place[2]) }
      end
    end
    out = more
  end
  return out
end

-- Returns how many places of an axis are in the list, and which of them (from 0) stands for a coordinate.
local function place_of(axis, whole, at)
  local n = few_of(axis, whole)
  if n then return n, math.min(at, n - 1) end
  if is_whole(axis, whole) then return axis.size, at end
  return 3, at == 0 and 0 or at == axis.size - 1 and 2 or 1
end

--- Returns, for each rank of the mesh (at rank + 1), the place of its role in representatives.list(mesh, whole).
function representatives.of(mesh, whole)
  local world, out = 1, {}
  for _, axis in ipairs(mesh) do world = world * axis.size end
  for rank = 0, world - 1 do
    local role, unit, rest = 0, 1, rank
    for i = #mesh, 1, -1 do
      local count, place = place_of(mesh[i], whole, rest % mesh[i].size)
      role, unit, rest = role + place * unit, unit * count, math.floor(rest / mesh[i].size)
    end
    out[rank + 1] = role + 1
  end
  return out
end

--- Returns the names of the axes along which one rank stands for several, in order.
function representatives.folded(mesh, whole)
  local out = {}
  for _, axis in ipairs(mesh) do
    if axis.size > 1 and not is_whole(axis, whole) then out[#out + 1] = axis.name end
  end
  return out
end

return representatives
