--- Policies: who gets which places of a cluster.
--
--     local policy = policies.new("elastic", {})
--     policy:allocate(jobs, capacity, now)  -- -> [name of job] = counts of replicas on each node; and, of a policy
--                                           -- that chooses batches itself, [name of job] = samples of a batch
--
-- jobs: those that wait or run, in the order of submission, as ganymede.cluster.simulator describes them. capacity:
-- GPUs of each node. now: seconds. A policy decides from these alone and from what it has noted at earlier decisions.
-- It does not know whether the cluster is simulated. policy.adapts_batch: whether the batch follows the places;
-- otherwise jobs keep the batch that they asked for.
-- @module ganymede.cluster.policies
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

local policies = { names = { "fifo", "srtf", "tiresias", "optimus", "pollux", "elastic", "ones" } }

local settings = {
  tiresias = { threshold = { type = "number", above = 0, default = 16 * 3600,
    doc = "GPU-seconds that a job may have in the first queue" } },
  pollux = {
    seed = { type = "integer", min = 0, default = 1, doc = "the seed of the search" },
    population = { type = "integer", min = 2, default = 100, doc = "the number of states" },
    generations = { type = "integer", min = 1, default = 100, doc = "the number of generations of a decision" },
  },
  ones = {
    seed = { type = "integer", min = 0, default = 1, doc = "the seed of the search" },
    population = { type = "integer", min = 2, default = 32, doc = "the number of states that live on" },
    generations = { type = "integer", min = 1, default = 12, doc = "the number of generations of a decision" },
    restart = { type = "number", min = 0, default = 30, doc = "seconds that a change costs a job" },
  },
  elastic = { restart = { type = "number", min = 0, default = 30, doc = "seconds that a change costs a job" } },
}

--- A policy by its name; given: its own settings (threshold of tiresias; seed, population and generations of pollux and
-- ones; restart of elastic and ones).
function policies.new(name, given)
  for _, known in ipairs(policies.names) do
    if known == name then
      local opt = options.check("the policy " .. name, settings[name] or {}, given, 2)
      return require("ganymede.cluster.policies." .. name).new(opt)
    end
  end
  error(failure.new(2, ("there is no policy '%s'; there are %s"):format(name, table.concat(policies.names, ", "))))
end

return policies
