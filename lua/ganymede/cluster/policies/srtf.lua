--- Shortest remaining time first: jobs ask for a number of replicas. Those that would end soonest with them run, and
-- the others wait, or stop. Whoever does not fit is passed over.
-- @module ganymede.cluster.policies.srtf
local nodes = require "ganymede.cluster.nodes"
local forecast = require "ganymede.cluster.forecast"

local srtf = { name = "srtf", adapts_batch = false }
srtf.__index = srtf

function srtf.new() return setmetatable({}, srtf) end

function srtf:allocate(jobs, capacity)
  local order, allocations, left = {}, {}, nodes.total(capacity)
  for i, job in ipairs(jobs) do order[i] = { job = job, seconds = forecast.wanted(job, capacity[1]) } end
  table.sort(order, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds < b.seconds end
    return a.job.index < b.job.index
  end)
  local run = {}
  for _, entry in ipairs(order) do
    if entry.job.wanted <= left then
      left = left - entry.job.wanted
      run[#run + 1] = { entry.job.name, entry.job.wanted }
      allocations[entry.job.name] = entry.job.counts
    end
  end
  return nodes.place(capacity, allocations, run)
end

return srtf
