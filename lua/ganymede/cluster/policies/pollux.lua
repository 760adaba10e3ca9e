--- Places by goodput, found by a genetic search: Qiao et al., "Pollux" (OSDI 2021), section 4.2.
--
-- Jobs have no wishes: batches follow their places (ganymede.cluster.goodput). A state gives each job a count on each
-- node. Its fitness is the harmonic mean over jobs of speedup against a fair share; a job whose places would change
-- counts less, by what it has lost to restarts so far. The second aim is the use of GPUs. NSGA-II (Deb et al. 2002)
-- keeps the states that are best in both, and the fittest one is taken. The states of the last decision are where the
-- next one begins. At most one job that spans nodes may use a node, because it would share its network.
-- @module ganymede.cluster.policies.pollux
local nodes = require "ganymede.cluster.nodes"
local nsga2 = require "ganymede.cluster.nsga2"
local random = require "ganymede.cluster.random"

local pollux = { name = "pollux", adapts_batch = true }
pollux.__index = pollux

local RESTART = 30 -- seconds that a restart is taken to cost
local GROWTH = 2   -- times the replicas that a job was measured with

--- given: { seed, population, generations }
function pollux.new(given)
  return setmetatable({ random = random.new(given.seed), population = given.population,
    generations = given.generations, last = {} }, pollux)
end

-- ---------------------------------------------------------------- what a state is worth

-- The speedup of a job by nodes and replicas, against its fair share of the cluster.
local function speedups(job, share)
  local base, known = 1, {}
  if job.known:is_known() then base = job.known:best(1, share) end
  return function(used, replicas)
    local key = used * 1024 + replicas
    local value = known[key]
    if not value then
      value = job.known:is_known() and job.known:best(used, replicas) / base or replicas / share
      known[key] = value
    end
    return value
  end
end

local function problem_of(self, jobs, capacity, now)
  local total, p = nodes.total(capacity), { random = self.random, rows = #jobs, columns = #capacity,
    capacity = capacity, most = {}, speedup = {}, base = {}, factor = {}, scale = #capacity / nodes.total(capacity) }
  local share = math.ceil(total / #jobs)
  for j, job in ipairs(jobs) do
    local age, restarts = now - job.submitted, math.max(job.restarts, 0)
    p.most[j] = job.application.max_replicas or job.known:most_replicas(GROWTH, total)
    p.speedup[j] = speedups(job, share)
    p.factor[j] = math.max(age - restarts * RESTART, 0) / (age + RESTART)
    for n = 1, #capacity do p.base[(j - 1) * #capacity + n] = job.counts and job.counts[n] or 0 end
  end
  return p
end

-- Both aims, to be made large; and a number that equal states share.
local function evaluate(p, x)
  local sum, use, hash, active = 0, 0, 0, 0
  local columns, base = p.columns, p.base
  for j = 1, p.rows do
    local used, replicas, changed, at = 0, 0, false, (j - 1) * columns
    for n = 1, columns do
      local c = x[at + n]
      if c > 0 then
        used, replicas = used + 1, replicas + c
        hash = (hash * 31 + (at + n) * 8 + c) % 1099511627776
      end
      if c ~= base[at + n] then changed = true end
    end
    local speedup = replicas > 0 and p.speedup[j](used, replicas) or 0
    use = use + speedup
    sum = sum + 1 / (speedup * p.scale * (changed and p.factor[j] or 1) + 1e-3)
  end
  for n = 1, columns do
    for j = 1, p.rows do
      if x[(j - 1) * columns + n] > 0 then
        active = active + p.capacity[n]
        break
      end
    end
  end
  return p.rows / sum, active > 0 and use / active or 0, hash
end

-- ---------------------------------------------------------------- legal states

local function one_spanning_job_a_node(p, x)
  local taken = {}
  for j = 1, p.rows do
    local at, used = (j - 1) * p.columns, 0
    for n = 1, p.columns do
      if x[at + n] > 0 then used = used + 1 end
    end
    if used > 1 then
      for n = 1, p.columns do
        if x[at + n] > 0 then
          if taken[n] then x[at + n] = 0 end
          taken[n] = true
        end
      end
    end
  end
end

-- No more replicas than a job may have: nodes chosen at random lose theirs.
local function cap_jobs(p, x)
  for j = 1, p.rows do
    local at, replicas = (j - 1) * p.columns, 0
    for n = 1, p.columns do replicas = replicas + x[at + n] end
    while replicas > p.most[j] do
      local n = p.random(p.columns)
      local fewer = math.min(x[at + n], replicas - p.most[j])
      x[at + n], replicas = x[at + n] - fewer, replicas - fewer
    end
  end
end

-- No more replicas than a node has places; the jobs that come first keep theirs.
local function cap_nodes(p, x)
  for n = 1, p.columns do
    local left = p.capacity[n]
    for j = 1, p.rows do
      local i = (j - 1) * p.columns + n
      if x[i] > left then x[i] = left end
      left = left - x[i]
    end
  end
end

local function repair(p, x)
  one_spanning_job_a_node(p, x)
  cap_jobs(p, x)
  cap_nodes(p, x)
end

-- ---------------------------------------------------------------- new states

-- Jobs before a random one come from one parent, the others from the other.
local function cross(p, a, b, x, y)
  local point = p.random() < 0.9 and (p.random(p.rows) - 1) * p.columns or 0
  for i = 1, point do x[i], y[i] = b[i], a[i] end
  for i = point + 1, p.rows * p.columns do x[i], y[i] = a[i], b[i] end
end

local function reset_some(p, x)
  for j = 1, p.rows do
    local at = (j - 1) * p.columns
    if p.random() < 0.1 then
      for n = 1, p.columns do x[at + n] = p.base[at + n] end
    end
    if p.random() < 0.1 then
      for n = 1, p.columns do
        if p.random() < 0.1 then x[at + n] = 0 end
      end
    end
  end
end

local function grow(p, x, i, n) x[i] = x[i] + p.random(p.capacity[n] - x[i] + 1) - 1 end

-- Nodes with free places give more to one job of all, and to one of those that are there.
local function grow_some(p, x)
  for n = 1, p.columns do
    local here, used = {}, 0
    for j = 1, p.rows do
      local i = (j - 1) * p.columns + n
      used = used + x[i]
      if x[i] > 0 then here[#here + 1] = i end
    end
    if used < p.capacity[n] then
      grow(p, x, (p.random(p.rows) - 1) * p.columns + n, n)
      if here[1] then grow(p, x, here[p.random(#here)], n) end
    end
  end
end

local function mutate(p, x)
  reset_some(p, x)
  grow_some(p, x)
end

-- ---------------------------------------------------------------- the policy

-- The states of the last decision, with the rows of the jobs that are still there.
local function begin(self, p, jobs)
  local states = {}
  for s, old in ipairs(self.last) do
    local x = {}
    for j, job in ipairs(jobs) do
      for n = 1, p.columns do x[(j - 1) * p.columns + n] = old[job.name] and old[job.name][n] or 0 end
    end
    states[s] = x
  end
  if not states[1] then states[1] = p.base end
  return states
end

local function counts_of(p, x, j)
  local counts = {}
  for n = 1, p.columns do counts[n] = x[(j - 1) * p.columns + n] end
  return counts
end

function pollux:allocate(waiting, capacity, now)
  local jobs = { unpack(waiting) }
  table.sort(jobs, function(a, b)
    if a.attained ~= b.attained then return a.attained < b.attained end
    return a.index < b.index
  end)
  local p = problem_of(self, jobs, capacity, now)
  p.evaluate, p.cross, p.mutate, p.repair = evaluate, cross, mutate, repair
  local found = nsga2.search(p, begin(self, p, jobs), self.population, self.generations)
  self.last = {}
  for s, state in ipairs(found) do
    self.last[s] = {}
    for j, job in ipairs(jobs) do self.last[s][job.name] = counts_of(p, state.x, j) end
  end
  return self.last[1]
end

return pollux
