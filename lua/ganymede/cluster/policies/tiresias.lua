--- Least attained service in two queues: Gu et al., "Tiresias" (NSDI 2019), as Pollux's comparison has it.
--
-- Jobs ask for a number of replicas, and get that or nothing. A job is in the first queue until its replicas times its
-- seconds of running pass a threshold, and in the second one from then on. Queues are served in order, the first one
-- first; whoever does not fit is passed over, and stopped if it runs.
-- @module ganymede.cluster.policies.tiresias
local nodes = require "ganymede.cluster.nodes"

local tiresias = { name = "tiresias", adapts_batch = false }
tiresias.__index = tiresias

--- given: { threshold: GPU-seconds in the first queue }
function tiresias.new(given)
  return setmetatable({ threshold = given.threshold, first = {}, second = {}, ran = {}, running = {} },
    tiresias)
end

local function still_there(queue, by)
  local list = {}
  for _, name in ipairs(queue) do
    if by[name] then list[#list + 1] = name end
  end
  return list
end

local function demote(self, by, passed)
  local stay = {}
  for _, name in ipairs(self.first) do
    if self.running[name] then self.ran[name] = self.ran[name] + passed[name] end
    local queue = self.ran[name] * by[name].wanted >= self.threshold and self.second or stay
    queue[#queue + 1] = name
  end
  self.first = stay
end

function tiresias:allocate(jobs, capacity, now)
  local by, passed, allocations = {}, {}, {}
  for _, job in ipairs(jobs) do by[job.name] = job end
  self.first, self.second = still_there(self.first, by), still_there(self.second, by)
  for _, job in ipairs(jobs) do
    if not self.ran[job.name] then
      self.ran[job.name] = 0
      table.insert(self.first, job.name)
    end
    passed[job.name] = now - (self.last or now)
  end
  demote(self, by, passed)
  self.last = now
  local left, running = nodes.total(capacity), {}
  local order = {}
  for _, queue in ipairs { self.first, self.second } do
    for _, name in ipairs(queue) do
      if by[name].wanted <= left then
        left = left - by[name].wanted
        running[name] = true
        order[#order + 1] = { name, by[name].wanted }
        allocations[name] = by[name].counts
      end
    end
  end
  self.running = running
  return nodes.place(capacity, allocations, order)
end

return tiresias
