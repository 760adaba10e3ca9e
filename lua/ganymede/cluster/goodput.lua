--- How fast a job learns with so many replicas: throughput times statistical efficiency.
--
-- Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning" (OSDI 2021), section 3.
-- Seconds of one gradient with b samples a replica are compute(b) = ac + bc b. Replicas on one node then sum in
-- network = ar + br (replicas - 2) seconds, those on several nodes in an + bn (replicas - 2). A step with s gradients
-- more than one takes s compute + (compute^g + network^g)^(1/g), where g from 1 to 10 says how much of both overlaps.
-- A batch that is `scale` times the first one learns (var + sqr) / (var / scale + sqr) times as much a step, where
-- sqr and var are the squared norm and the variance of the gradient at the first batch (McCandlish et al. 2018).
-- @module ganymede.cluster.goodput
local fit = require "ganymede.cluster.fit"

local goodput = {}
goodput.__index = goodput

local TRIED = 50 -- batches between the least and the largest, in geometric steps

--- What a batch of so many times the first one learns in a step, as a multiple of what the first one does.
function goodput.gain(sqr, var, scale)
  local rest = var / scale + sqr
  return rest > 0 and (var + sqr) / rest or 1
end

--- What is known of a job: limits = { first_batch, max_batch, min_local, max_local }, in samples; fixed: samples beyond
-- max_batch, where replicas do not divide it, are worth nothing.
function goodput.new(limits)
  return setmetatable({ limits = limits, seen = {}, list = {}, most = 0, best_of = {} }, goodput)
end

--- Notes what a job has measured: nodes, replicas, samples a replica and gradient; seconds of a step with one gradient,
-- of which `sync` for the sum over replicas; the norm and the variance of its gradient.
function goodput:observe(nodes, replicas, b, step, sync, sqr, var)
  if sqr ~= self.sqr or var ~= self.var then self.sqr, self.var, self.best_of = sqr, var, {} end
  local key = (nodes * 1024 + replicas) * 65536 + b
  if self.seen[key] then return end
  self.seen[key] = true
  self.list[#self.list + 1] = { nodes = nodes, replicas = replicas, b = b, compute = step - sync, step = step }
  self.most = math.max(self.most, replicas)
  self.model, self.best_of = nil, {}
end

--- The most replicas that may be tried: so many times those measured, as many as the largest batch has work for, and
-- `total` at most.
function goodput:most_replicas(growth, total)
  local l = self.limits
  return math.min(math.max(growth * self.most, 1), total, math.floor(l.max_batch / l.min_local))
end

--- Whether anything was measured.
function goodput:is_known() return #self.list > 0 end

function goodput:parameters()
  if not self.model then
    self.model = fit.model(self.list, self.last)
    self.last = self.model
  end
  return self.model
end

--- Samples a second by the model.
function goodput:throughput(nodes, replicas, b, more)
  local m = self:parameters()
  local compute = m.ac + m.bc * b
  local network = fit.network(m, nodes, replicas)
  return replicas * b * (more + 1) / (more * compute + (compute ^ m.g + network ^ m.g) ^ (1 / m.g))
end

--- How a batch is cut: samples a replica and gradient, and gradients beside the first one. A single replica needs two
-- gradients for an estimate of their variance once its batch exceeds the first one, unless the limits say one_gradient.
function goodput.cut(limits, batch, replicas)
  local own = batch / replicas
  local more = math.ceil(own / limits.max_local - 1e-8) - 1
  if replicas == 1 and not limits.one_gradient and batch > limits.first_batch + 1e-8 then more = math.max(more, 1) end
  return math.ceil(own / (more + 1) - 1e-8), more
end

--- The goodput of a batch, 0 where it cannot be cut so; and how it is cut.
function goodput:of_batch(nodes, replicas, batch)
  local l = self.limits
  local b, more = goodput.cut(l, batch, replicas)
  if b < l.min_local or b > l.max_local then return 0, b, more end
  local scale = replicas * b * (more + 1) / l.first_batch
  local worth = l.fixed and math.min(scale, l.max_batch / l.first_batch) or scale
  return self:throughput(nodes, replicas, b, more) * goodput.gain(self.sqr, self.var, worth) / scale, b, more
end

local function search(self, nodes, replicas)
  local l = self.limits
  local least = math.max(l.first_batch, l.min_local * replicas)
  local best, best_b, best_more = 0, l.min_local, 0
  for i = 0, TRIED - 1 do
    local value, b, more = self:of_batch(nodes, replicas, least * (l.max_batch / least) ^ (i / (TRIED - 1)))
    if value > best then best, best_b, best_more = value, b, more end
  end
  return { best, best_b, best_more }
end

--- The largest goodput with so many replicas on so many nodes, in samples of the first batch's worth a second; and the
-- samples a replica and gradient, and the gradients beside the first one, that reach it.
function goodput:best(nodes, replicas)
  local key = nodes * 1024 + replicas
  local found = self.best_of[key]
  if not found then
    found = search(self, nodes, replicas)
    self.best_of[key] = found
  end
  return found[1], found[2], found[3]
end

return goodput
