--- First come, first served: jobs ask for a number of replicas, keep them to their end, and wait until the ones before
-- them have begun. Nobody is stopped.
-- @module ganymede.cluster.policies.fifo
local nodes = require "ganymede.cluster.nodes"

local fifo = { name = "fifo", adapts_batch = false }
fifo.__index = fifo

function fifo.new() return setmetatable({}, fifo) end

function fifo:allocate(jobs, capacity)
  local allocations, waiting = {}, {}
  for _, job in ipairs(jobs) do
    allocations[job.name] = job.counts
    if not job.counts then waiting[#waiting + 1] = job end
  end
  local free = nodes.free(capacity, allocations)
  for _, job in ipairs(waiting) do
    if nodes.total(free) < job.wanted then break end
    allocations[job.name] = nodes.take(free, job.wanted)
  end
  return allocations
end

return fifo
