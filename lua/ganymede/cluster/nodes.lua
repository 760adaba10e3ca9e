--- Counts of replicas on the nodes of a cluster: an allocation is a list with one count for each node.
-- @module ganymede.cluster.nodes
local nodes = {}

--- Free places of each node. capacity: GPUs of each node; allocations: [job] = counts.
function nodes.free(capacity, allocations)
  local free = {}
  for i, n in ipairs(capacity) do free[i] = n end
  for _, counts in pairs(allocations) do
    for i, n in ipairs(counts) do free[i] = free[i] - n end
  end
  return free
end

function nodes.total(counts)
  local sum = 0
  for _, n in ipairs(counts) do sum = sum + n end
  return sum
end

--- The counts above zero, in the order of nodes: what the time of a step depends on.
function nodes.used(counts)
  local list = {}
  for _, n in ipairs(counts) do
    if n > 0 then list[#list + 1] = n end
  end
  return list
end

--- Are two allocations the same? nil is one without replicas.
function nodes.same(a, b)
  for i = 1, math.max(a and #a or 0, b and #b or 0) do
    if (a and a[i] or 0) ~= (b and b[i] or 0) then return false end
  end
  return true
end

--- Takes `replicas` places out of `free`, from the node with most places left on -> counts
function nodes.take(free, replicas)
  local counts = {}
  for i = 1, #free do counts[i] = 0 end
  while replicas > 0 do
    local best = 1
    for i, n in ipairs(free) do
      if n > free[best] then best = i end
    end
    assert(free[best] > 0, "more replicas than free places")
    local n = math.min(free[best], replicas)
    counts[best], free[best], replicas = counts[best] + n, free[best] - n, replicas - n
  end
  return counts
end

--- Gives places to those of a list of { name, replicas } that have none in `allocations`, in order -> allocations
function nodes.place(capacity, allocations, list)
  local free = nodes.free(capacity, allocations)
  for _, entry in ipairs(list) do
    local name, replicas = unpack(entry)
    if not allocations[name] then allocations[name] = nodes.take(free, replicas) end
  end
  return allocations
end

--- The fullest way to lay out replicas on empty nodes with so many places each.
function nodes.packed(replicas, places)
  local counts = {}
  while replicas > 0 do
    counts[#counts + 1] = math.min(replicas, places)
    replicas = replicas - counts[#counts]
  end
  return counts
end

return nodes
