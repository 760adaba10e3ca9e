--- What a job that really runs has shown of itself, in the place of a profile (ganymede.cluster.profile).
--
--     local app = measured.new { name = "a", steps = 400, batch = 32, most = 4, guess = 1 }
--     app:observe(1, 2, 12.5, 50)     -- 50 steps took 12.5 s with 2 replicas on 1 node
--     app:known()                     -- ganymede.cluster.goodput, of all that was observed
--
-- The batch of a real job is that of its recipe, whatever places it has. So a step is worth the same with any number of
-- replicas. Goodput computes with the noise of the gradient that the run reports (ganymede.hooks.gradient_noise); until
-- it reports any, with a gradient without noise. An epoch of this "application" is one step: policies and the simulator
-- count in epochs. What the sum over replicas takes is not known from outside; it counts as compute. Before anything
-- was measured, a step takes `guess` seconds with one replica, and its k-th part with k.
-- @module ganymede.cluster.measured
local goodput = require "ganymede.cluster.goodput"

local measured = {}
measured.__index = measured

--- given: name, steps (of the whole run), batch (samples of a step), most (replicas), guess (seconds).
function measured.new(given)
  return setmetatable({ name = given.name, epochs = given.steps, batch = given.batch, max_replicas = given.most,
    guess = given.guess, seen = {}, sqr = 1, var = 0, limits = { first_batch = given.batch, max_batch = given.batch,
      min_local = 1, max_local = given.batch, one_gradient = true, fixed = true } }, measured)
end

--- Notes that so many steps took so many seconds.
function measured:observe(nodes, replicas, seconds, steps)
  local key = nodes * 1024 + replicas
  local cell = self.seen[key] or { nodes = nodes, replicas = replicas, seconds = 0, steps = 0 }
  cell.seconds, cell.steps = cell.seconds + seconds, cell.steps + steps
  self.seen[key], self.goodput = cell, nil
end

--- Mean seconds of a step with so many replicas; nil: it was not measured.
function measured:seconds(nodes, replicas)
  local cell = self.seen[nodes * 1024 + replicas]
  return cell and cell.seconds / cell.steps
end

--- Notes what a run says of its gradient: the squared norm of its mean, and the variance of that of one sample.
function measured:learn(square, variance)
  local sqr, var = math.max(square, 0), math.max(variance, 0) / self.batch -- of the gradient of a batch
  if sqr + var > 0 and (sqr ~= self.sqr or var ~= self.var) then
    self.sqr, self.var, self.has_noise, self.goodput = sqr, var, true, nil
  end
end

--- The noise scale in samples, and how many of its steps one with twice the batch would replace (1 to 2); nil: no run
-- has reported it.
function measured:noise()
  if not self.has_noise then return nil end
  return self.sqr > 0 and self.var / self.sqr * self.batch or math.huge, goodput.gain(self.sqr, self.var, 2)
end

--- What was observed: list of { nodes, replicas, seconds, steps }, in order.
function measured:cells()
  local list = {}
  for _, cell in pairs(self.seen) do list[#list + 1] = cell end
  table.sort(list, function(a, b)
    if a.nodes ~= b.nodes then return a.nodes < b.nodes end
    return a.replicas < b.replicas
  end)
  return list
end

--- What policies fit their model to.
function measured:known()
  if self.goodput then return self.goodput end
  local known = goodput.new(self.limits)
  for _, cell in ipairs(self:cells()) do
    known:observe(cell.nodes, cell.replicas, math.ceil(self.batch / cell.replicas), cell.seconds / cell.steps, 0,
      self.sqr, self.var)
  end
  self.goodput = known
  return known
end

--- Seconds of a gradient of b samples on each replica, 0 of them for the sum over replicas. counts: replicas on each
-- node.
function measured:step(counts, b)
  local replicas, own = 0, nil
  for _, n in ipairs(counts) do replicas = replicas + n end
  if math.abs(b - self.batch / replicas) < 1 then own = self:seconds(#counts, replicas) end
  if own then return own, 0 end
  local known = self:known()
  if not known:is_known() then return self.guess * b / self.batch, 0 end
  return replicas * b / known:throughput(#counts, replicas, b, 0), 0
end

-- Of a simulated run of a real job, whose batch stays: a step is worth a step.
function measured.gradient() return 1, 0 end
function measured.progress(_, epochs) return epochs end
function measured.steps(_, _, epochs) return epochs end

return measured
