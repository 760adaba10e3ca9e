--- Ganymede's policy: places by goodput and by what remains, the best sharing of all that there are.
--
-- A job would end in R(k) = remaining work / goodput(k) seconds with k replicas: goodput as Pollux models it
-- (ganymede.cluster.goodput), the remaining work from the recipe's epochs. A job whose number of replicas changes pays
-- a restart, R(k) + 30. The policy makes the sum over jobs of R(k)^(-1/2) largest. The power 1 would minimise what the
-- next jobs to end still take, and long jobs would starve; towards 0 all jobs get equal shares. Berg et al., "heSRPT"
-- (SIGMETRICS 2020), show for speedups k^p that the best sharing lies between, with more for the short ones.
--
-- The sum is separable, so dynamic programming finds its maximum over all numbers of replicas exactly, in
-- jobs x GPUs x sizes operations. Up to a node any number is a size, beyond that whole nodes, so no two jobs that
-- span nodes share one. A job tries at most four times the replicas that it has been measured with.
-- @module ganymede.cluster.policies.elastic
local nodes = require "ganymede.cluster.nodes"

local elastic = { name = "elastic", adapts_batch = true }
elastic.__index = elastic

local POWER = 0.5
local GROWTH = 4
local UNKNOWN = 300 -- seconds that a job is taken to last before anything of it was measured

--- given: { restart: seconds that a change costs a job }
function elastic.new(given) return setmetatable({ restart = given.restart }, elastic) end

-- ---------------------------------------------------------------- how many replicas

-- Numbers of replicas that a job may have: any within a node, then whole nodes.
local function sizes_of(places, total)
  local list = {}
  for k = 1, places do list[k] = k end
  for k = 2 * places, total, places do list[#list + 1] = k end
  return list
end

-- What each size is worth for a job; nothing where it may not have so many.
local function worths(self, job, sizes, total, places)
  local list, most = {}, job.application.max_replicas or job.known:most_replicas(GROWTH, total)
  local left = (job.total - job.progress) * job.application.limits.first_batch -- samples of the first batch
  local now = job.counts and nodes.total(job.counts) or 0
  for i, k in ipairs(sizes) do
    if k <= most then
      local seconds = UNKNOWN / k
      if job.known:is_known() then seconds = left / job.known:best(math.ceil(k / places), k) end
      if k ~= now then seconds = seconds + self.restart end
      list[i] = seconds ^ -POWER
    end
  end
  return list
end

-- Adds a job to those that share 0 to `total` places: best[g] is what they are worth together with g places.
-- -> the new best; taken[g]: what this job takes of g.
local function add(best, total, sizes, worth)
  local new, taken = {}, {}
  for g = 0, total do
    new[g], taken[g] = best[g], 0
    for i, k in ipairs(sizes) do
      if k > g then break end
      local value = worth[i] and best[g - k] + worth[i]
      if value and value > new[g] then new[g], taken[g] = value, k end
    end
  end
  return new, taken
end

local function numbers(self, jobs, capacity)
  local total, places = nodes.total(capacity), capacity[1]
  local sizes, best, taken, count = sizes_of(places, total), {}, {}, {}
  for g = 0, total do best[g] = 0 end
  for j, job in ipairs(jobs) do
    best, taken[j] = add(best, total, sizes, worths(self, job, sizes, total, places))
  end
  local left = total
  for j = #jobs, 1, -1 do
    count[j] = taken[j][left]
    left = left - count[j]
  end
  return count
end

-- ---------------------------------------------------------------- on which nodes

-- Takes k places: whole nodes that are free, or a part of the node with the fewest places that are enough -> counts,
-- or nil: there are none.
local function take(free, capacity, k)
  local counts, best = {}, nil
  for i = 1, #free do
    counts[i] = 0
    if k < capacity[i] and free[i] >= k and (not best or free[i] < free[best]) then best = i end
  end
  if k < capacity[1] then
    if best then counts[best], k = k, 0 end
  else
    for i = 1, #free do
      if k > 0 and free[i] == capacity[i] then counts[i], k = free[i], k - free[i] end
    end
  end
  if k > 0 then return nil end
  for i, n in ipairs(counts) do free[i] = free[i] - n end
  return counts
end

-- Jobs that keep their places are those for which keeps(j) holds; the others follow, the widest first -> allocations,
-- and whether all found room.
local function lay_out(jobs, count, capacity, keeps)
  local allocations, todo, all = {}, {}, true
  for j, job in ipairs(jobs) do
    if count[j] > 0 then
      if keeps(j) then allocations[job.name] = job.counts else todo[#todo + 1] = j end
    end
  end
  local free = nodes.free(capacity, allocations)
  table.sort(todo, function(a, b) return count[a] > count[b] or (count[a] == count[b] and a < b) end)
  for _, j in ipairs(todo) do
    local counts = take(free, capacity, count[j])
    allocations[jobs[j].name] = counts
    all = all and counts ~= nil
  end
  return allocations, all
end

--- jobs: those of ganymede.cluster.simulator; capacity: GPUs of each node, all the same -> [name] = counts
function elastic:allocate(jobs, capacity)
  local count = numbers(self, jobs, capacity)
  local function stays(j) return jobs[j].counts and nodes.total(jobs[j].counts) == count[j] end
  local allocations, all = lay_out(jobs, count, capacity, stays)
  if all then return allocations end
  -- Free places lie apart: jobs within a node move together. Sizes fill nodes from the largest on, so all fit but for
  -- what is left of the last nodes.
  return (lay_out(jobs, count, capacity, function(j) return stays(j) and count[j] >= capacity[1] end))
end

return elastic
