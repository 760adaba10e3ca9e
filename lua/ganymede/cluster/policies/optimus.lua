--- Places by marginal gain: Peng et al., "Optimus" (EuroSys 2018), with an oracle in place of its fits, as Pollux's
-- comparison has it.
--
-- Each job begins with one replica. Place after place then goes to the job whose time to its end becomes shorter by
-- most, as its measured steps say. A job keeps its places if their number stays.
-- @module ganymede.cluster.policies.optimus
local forecast = require "ganymede.cluster.forecast"
local nodes = require "ganymede.cluster.nodes"

local optimus = { name = "optimus", adapts_batch = false }
optimus.__index = optimus

function optimus.new() return setmetatable({}, optimus) end

local function gain_of(job, replicas, places, left)
  local most = job.application.max_replicas or math.floor(job.batch / job.application.limits.min_local)
  if replicas + 1 > most or left < 1 then return 0 end
  return (forecast.step(job, replicas, places) - forecast.step(job, replicas + 1, places)) * forecast.steps(job)
end

-- How many replicas each job gets.
local function numbers(jobs, total, places)
  local count, gain, left = {}, {}, total
  for i, job in ipairs(jobs) do
    count[i], gain[i] = 0, 0
    if left >= 1 then
      left = left - 1
      count[i], gain[i] = 1, gain_of(job, 1, places, left)
    end
  end
  while left > 0 do
    local best = 1
    for i, g in ipairs(gain) do
      if g > gain[best] then best = i end
    end
    if gain[best] <= 0 then break end
    count[best] = count[best] + 1
    gain[best] = gain_of(jobs[best], count[best], places, left)
    left = left - 1
  end
  return count
end

function optimus:allocate(jobs, capacity)
  local count, allocations, order = numbers(jobs, nodes.total(capacity), capacity[1]), {}, {}
  for i, job in ipairs(jobs) do
    if job.counts and nodes.total(job.counts) == count[i] then allocations[job.name] = job.counts end
    if count[i] > 0 then order[#order + 1] = { job.name, count[i], i } end
  end
  table.sort(order, function(a, b) return a[2] < b[2] or (a[2] == b[2] and a[3] < b[3]) end)
  return nodes.place(capacity, allocations, order)
end

return optimus
