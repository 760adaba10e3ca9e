--- The table `parallel` of a recipe on another number of ranks than it was written for: `run --min-ranks`, `resize`.
--
-- `parallel.shrink` says which sizes may become smaller, in this order; default { "data" }. The first one gives way as
-- far as it can before the next one does. With more ranks the first one grows, and nothing else. Batches, random
-- numbers and checkpoints do not depend on the mesh, so that the losses stay: each rank takes other rows of the same
-- batch.
local parallel = require "ganymede.job.parallel"

local fewer = {}

-- The size of a part as the recipe gives it; nil: it gives none.
local function given_size(given, name)
  local v = given[name]
  if type(v) == "table" then v = v.size end
  return type(v) == "number" and v or nil
end

-- Returns the sizes { name = size } of the parts in `order`, none larger than it was, whose product is `product`, where
-- the first part is as small as the others allow; nil: there are none. at: the first of `order` that is still to be
-- settled.
local function divided(order, sizes, product, at)
  local name = order[at]
  if at > #order then return product == 1 and {} or nil end
  for size = at == #order and product or 1, math.min(sizes[name], product) do
    local rest = product % size == 0 and divided(order, sizes, product / size, at + 1)
    if rest then
      rest[name] = size
      return rest
    end
  end
end

-- A copy of the table, in which sizes can be changed.
local function copied(given)
  local copy = {}
  for name, value in pairs(given) do
    copy[name] = value
    if type(value) == "table" then
      copy[name] = {}
      for key, entry in pairs(value) do copy[name][key] = entry end
    end
  end
  return copy
end

-- The sizes of the parts in `order` on so many ranks, of which those outside of it take `fixed`; nil: there are none.
local function sizes_on(world, order, sizes, fixed)
  if world % fixed ~= 0 then return nil end
  local product = world / fixed
  local least = 1
  for i = 2, #order do least = least * sizes[order[i]] end
  if product <= sizes[order[1]] * least then return divided(order, sizes, product, 1) end
  if product % least ~= 0 then return nil end
  local found = {}
  for _, name in ipairs(order) do found[name] = sizes[name] end
  found[order[1]] = product / least
  return found
end

-- The mesh of the recipe on so many ranks -> the list of "key=value" that makes it; nil and why there is none.
local function settings_for(given, plan, order, world)
  local sizes, fixed = {}, plan.world
  local whole = { data = plan.data, pipeline = plan.pipeline, sequence = plan.sequence.size, tensor = plan.tensor.size }
  for _, name in ipairs(order) do
    sizes[name] = whole[name]
    fixed = fixed / whole[name]
  end
  local found = sizes_on(world, order, sizes, fixed)
  if not found then return nil, ("%s of the mesh cannot give way to that"):format(table.concat(order, ", ")) end
  local sets, changed = {}, copied(given)
  for _, name in ipairs(order) do
    if given_size(given, name) and found[name] ~= whole[name] then
      sets[#sets + 1] = ("parallel.%s.size=%d"):format(name, found[name])
      if type(changed[name]) == "table" then changed[name].size = found[name] else changed[name] = found[name] end
    end
  end
  local fits, message = parallel.resolve(changed, world)
  if not fits then return nil, message end
  return sets
end

--- Returns the smaller worlds that fit: list of { ranks, sets }, the largest first, where sets is what --set must say;
-- and, if the list is empty, why the largest of them does not fit.
-- given: the table `parallel`, nil or "auto"; world: its ranks; least: the smallest number that is wanted.
function fewer.worlds(given, world, least)
  local list, first = {}, nil
  if given == "auto" then
    for ranks = world - 1, least, -1 do list[#list + 1] = { ranks = ranks, sets = {} } end
    return list
  end
  local plan = assert(parallel.resolve(given, world))
  for ranks = world - 1, least, -1 do
    local sets, why = settings_for(given or {}, plan, plan.shrink, ranks)
    if sets then list[#list + 1] = { ranks = ranks, sets = sets }
    else first = first or ("%d ranks: %s"):format(ranks, why) end
  end
  return list, first
end

--- Returns what --set must say so that the work of `world` ranks is shared by `ranks`; nil and why it cannot be.
-- given: the table `parallel`, nil or "auto".
function fewer.sets(given, world, ranks)
  if given == "auto" then return {} end
  local plan = assert(parallel.resolve(given, world))
  local sets, why = settings_for(given or {}, plan, plan.shrink, ranks)
  if not sets then return nil, ("%d ranks: %s"):format(ranks, why) end
  return sets
end

return fewer
