--- What a job that really runs has shown of itself, in the place of a profile (ganymede.cluster.profile).
--
--     local app = measured.new { name = "a", steps = 400, batch = 32, most = 4, guess = 1 }
--     app:observe(1, 2, 12.5, 50)         -- 50 steps took 12.5 s with 2 replicas on 1 node
--     app:observe(1, 2, 12.5, 40, 64)     -- the same with batches of 64 samples
--     app:known()                         -- ganymede.cluster.goodput, of all that was observed
--
-- The batch of a real job is that of its recipe, whatever places it has. So a step is worth the same with any number of
-- replicas. With `largest`, the batch may be chosen up to that (ganymede.train.adaptive_batch), and goodput weighs what
-- a step learns. It computes with the noise of the gradient that the run reports (ganymede.hooks.gradient_noise); until
-- it reports any, with a gradient without noise, with which no batch is better than the first. An epoch of this
-- "application" is one step of the first batch: policies and the simulator count in epochs. What the sum over replicas
-- takes is not known from outside; it counts as compute. Before anything was measured, a step takes `guess` seconds
-- with one replica, and its k-th part with k.
-- @module ganymede.cluster.measured
local goodput = require "ganymede.cluster.goodput"

local measured = {}
measured.__index = measured

local GROWTH = 2 -- batches are tried up to so many times the largest one that was measured
local GAIN = 1.05 -- another batch must be worth so much more than the present one

local function limits_of(first, largest)
  return { first_batch = first, max_batch = largest or first, min_local = 1, max_local = largest or first,
    one_gradient = true, fixed = not largest }
end

--- given: name, steps (of the whole run), batch (samples of a step, the first ones where they change), largest (nil:
-- the batch stays), most (replicas), guess (seconds). Its field `batch` is nil where the batch may change.
function measured.new(given)
  return setmetatable({ name = given.name, epochs = given.steps, first = given.batch, largest = given.largest,
    batch = not given.largest and given.batch or nil, max_replicas = given.most, guess = given.guess, seen = {},
    sqr = 1, var = 0, limits = limits_of(given.batch, given.largest) }, measured)
end

--- The same job, whose batch stays the first one.
function measured:with_first_batch()
  local fixed = measured.new { name = self.name, steps = self.epochs, batch = self.first, most = self.max_replicas,
    guess = self.guess }
  for _, cell in ipairs(self:cells()) do
    if cell.batch == self.first then fixed:observe(cell.nodes, cell.replicas, cell.seconds, cell.steps) end
  end
  fixed.sqr, fixed.var, fixed.has_noise = self.sqr, self.var, self.has_noise
  return fixed
end

local function key_of(nodes, replicas, batch) return ("%d %d %d"):format(nodes, replicas, batch) end

--- Notes that so many steps took so many seconds. batch: samples of each; nil: those of the first batch.
function measured:observe(nodes, replicas, seconds, steps, batch)
  batch = batch or self.first
  local key = key_of(nodes, replicas, batch)
  local cell = self.seen[key] or { nodes = nodes, replicas = replicas, batch = batch, seconds = 0, steps = 0 }
  cell.seconds, cell.steps = cell.seconds + seconds, cell.steps + steps
  self.seen[key], self.goodput = cell, nil
end

--- Mean seconds of a step with so many replicas; nil: it was not measured.
function measured:seconds(nodes, replicas, batch)
  local cell = self.seen[key_of(nodes, replicas, batch or self.first)]
  return cell and cell.seconds / cell.steps
end

--- Notes what a run says of its gradient: the squared norm of its mean, and the variance of that of one sample.
function measured:learn(square, variance)
  local sqr, var = math.max(square, 0), math.max(variance, 0) / self.first -- of the gradient of the first batch
  if sqr + var > 0 and (sqr ~= self.sqr or var ~= self.var) then
    self.sqr, self.var, self.has_noise, self.goodput = sqr, var, true, nil
  end
end

--- The noise scale in samples, and how many of its steps one with twice the batch would replace (1 to 2); nil: no run
-- has reported it. batch: that of its steps (default: the first one).
function measured:noise(batch)
  if not self.has_noise then return nil end
  local var = self.var * self.first / (batch or self.first)
  return self.sqr > 0 and self.var / self.sqr * self.first or math.huge, goodput.gain(self.sqr, var, 2)
end

--- What was observed: list of { nodes, replicas, batch, seconds, steps }, in order.
function measured:cells()
  local list = {}
  for _, cell in pairs(self.seen) do list[#list + 1] = cell end
  table.sort(list, function(a, b)
    for _, name in ipairs { "nodes", "replicas" } do
      if a[name] ~= b[name] then return a[name] < b[name] end
    end
    return a.batch < b.batch
  end)
  return list
end

--- What policies fit their model to.
function measured:known()
  if self.goodput then return self.goodput end
  local known = goodput.new(self.limits)
  for _, cell in ipairs(self:cells()) do
    known:observe(cell.nodes, cell.replicas, math.ceil(cell.batch / cell.replicas), cell.seconds / cell.steps, 0,
      self.sqr, self.var)
  end
  self.goodput = known
  return known
end

-- The largest batch of which steps were measured.
local function most_measured(self)
  local most = self.first
  for _, cell in pairs(self.seen) do most = math.max(most, cell.batch) end
  return most
end

--- The batch that a job should have with so many replicas, in samples of a step, a multiple of `unit`. present: the one
-- that it has; wanted: the one that a policy has chosen, or nil: the one with the best goodput. The batch stays where
-- another one is worth little more, and as long as no noise was measured.
function measured:batch_for(nodes, replicas, present, unit, wanted)
  local known = self:known()
  if not (self.largest and self.has_noise and known:is_known()) then return present end
  if not wanted then
    local _, b, more = known:best(nodes, replicas)
    wanted = b * (more + 1) * replicas
  end
  wanted = math.max(self.first, math.min(wanted, self.largest, GROWTH * most_measured(self)))
  wanted = math.floor(wanted / unit + 0.5) * unit
  wanted = math.max(self.first, math.min(wanted, self.largest))
  local worth, now = known:of_batch(nodes, replicas, wanted), known:of_batch(nodes, replicas, present)
  return worth > GAIN * now and wanted or present
end

--- Seconds of a gradient of b samples on each replica, 0 of them for the sum over replicas. counts: replicas on each
-- node.
function measured:step(counts, b)
  local replicas, own = 0, nil
  for _, n in ipairs(counts) do replicas = replicas + n end
  if math.abs(b - self.first / replicas) < 1 then own = self:seconds(#counts, replicas) end
  if own then return own, 0 end
  local known = self:known()
  if not known:is_known() then return self.guess * b / self.first, 0 end
  return replicas * b / known:throughput(#counts, replicas, b, 0), 0
end

-- Of a simulated run of a real job, whose batch stays: a step is worth a step.
function measured.gradient() return 1, 0 end
function measured.progress(_, epochs) return epochs end
function measured.steps(_, _, epochs) return epochs end

return measured
