--- Policies: who gets which places of a cluster.
--
--     local policy = policies.new("elastic", {})
--     policy:allocate(jobs, capacity, now)  -- -> [name of job] = counts of replicas on each node
--
-- jobs: those that wait or run, in the order of submission, as ganymede.cluster.simulator describes them. capacity:
-- GPUs of each node. now: seconds. A policy decides from these alone and from what it has noted at earlier decisions.
-- It does not know whether the cluster is simulated. policy.adapts_batch: whether the batch follows the places;
-- otherwise jobs keep the batch that they asked for.
-- @module ganymede.cluster.policies
local failure = require "ganymede.base.failure"

local policies = { names = { "fifo", "srtf", "tiresias", "optimus", "pollux", "elastic" } }

--- A policy by its name; given: its own settings, which its file explains.
function policies.new(name, given)
  for _, known in ipairs(policies.names) do
    if known == name then return require("ganymede.cluster.policies." .. name).new(given or {}) end
  end
  error(failure.new(2, ("there is no policy '%s'; there are %s"):format(name, table.concat(policies.names, ", "))))
end

return policies
