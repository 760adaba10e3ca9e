--- A policy whose answers are what real jobs can have: a least number of replicas, and only numbers that their mesh
-- allows.
--
--     bounded.new(policies.new "elastic", { a = { least = 2, legal = { [2] = true, [4] = true } } })
--
-- Policies know no least number. What they give a job is rounded down to a legal one. A job for which too little is
-- left gets its least, in the order of submission, from the places that are free after that, or nothing. Batches that a
-- policy chooses stay as they are.
-- @module ganymede.cluster.bounded
local nodes = require "ganymede.cluster.nodes"

local bounded = {}
bounded.__index = bounded

--- limits: [name of job] = { least, legal = { [replicas] = true } }
function bounded.new(policy, limits)
  return setmetatable({ name = policy.name, adapts_batch = policy.adapts_batch, policy = policy, limits = limits },
    bounded)
end

-- The largest legal number up to k; 0: there is none.
local function legal_part(limit, k)
  for n = k, limit.least, -1 do
    if limit.legal[n] then return n end
  end
  return 0
end

-- counts without the places beyond so many, taken from the last nodes.
local function reduced(counts, replicas)
  local out, left = {}, replicas
  for i, n in ipairs(counts) do
    out[i] = math.min(n, left)
    left = left - out[i]
  end
  return out
end

function bounded:allocate(jobs, capacity, now)
  local given, batches = self.policy:allocate(jobs, capacity, now)
  local out, short = {}, {}
  for _, job in ipairs(jobs) do
    local counts, limit = given[job.name], self.limits[job.name]
    local k = counts and nodes.total(counts) or 0
    local n = legal_part(limit, k)
    if n > 0 then
      out[job.name] = n == k and counts or reduced(counts, n)
    elseif k > 0 then
      short[#short + 1] = job.name
    end
  end
  local free = nodes.free(capacity, out)
  for _, name in ipairs(short) do
    local least = self.limits[name].least
    if nodes.total(free) >= least then out[name] = nodes.take(free, least) end
  end
  return out, batches
end

return bounded
