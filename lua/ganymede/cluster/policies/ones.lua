--- Evolution of batch sizes: Bian et al., "Online evolutionary batch size orchestration for scheduling deep learning
-- workloads in GPU clusters" (ONES, SC 2021).
--
-- A state gives each GPU a job, and each job a batch. Its score is the GPU time that the jobs on the cluster still
-- need, of which the least is best (smallest remaining utilization first): the sum over jobs of GPUs x what remains /
-- throughput. What remains is not known. The part of a job that is done is drawn from a Beta distribution, of the
-- epochs that it has made and of those that jobs of its application still had at that point. A batch has a limit. It
-- begins at the job's first batch and doubles with each epoch that the job ends, or is halved, for those that had more
-- than the mean so far, while others wait; so no job takes the cluster at once. At each decision the states of the last
-- one are refreshed (ended jobs leave, new ones come in, free GPUs are filled), crossed GPU by GPU, mutated (jobs lose
-- their GPUs, batches change), and reordered, so that the GPUs of a job lie together. The best ones live on.
--
-- Only the paper's abstract was at hand; the rest is from notes about it. Ours are: when limits move, how Beta's second
-- number is found, the sizes of population and mutation, and a price for a change.
-- @module ganymede.cluster.policies.ones
local goodput = require "ganymede.cluster.goodput"
local nodes = require "ganymede.cluster.nodes"
local random = require "ganymede.cluster.random"

local ones = { name = "ones", adapts_batch = true }
ones.__index = ones

local UNKNOWN = 300  -- seconds of one GPU that a job is taken to need before anything of it was measured
local MUTATED = 0.1  -- of the jobs of a child

--- given: { seed, population, generations, restart: seconds that a change costs a job }
function ones.new(given)
  return setmetatable({ random = random.new(given.seed), population = given.population,
    generations = given.generations, restart = given.restart, last = {}, seen = {}, limit = {}, ended = {},
    drawn = {} }, ones)
end

-- ---------------------------------------------------------------- what remains

-- Notes the epochs that jobs had which are not there any more.
local function note_ended(self, by)
  for name, job in pairs(self.seen) do
    if not by[name] then
      local app = job.application.name
      local e = self.ended[app] or { jobs = 0, epochs = 0 }
      e.jobs, e.epochs = e.jobs + 1, e.epochs + job.epoch
      self.ended[app], self.seen[name], self.limit[name], self.drawn[name] = e, nil, nil, nil
    end
  end
end

-- A draw from the gamma distribution of a whole number: the sum of so many exponential ones.
local function gamma(draw, k)
  local sum = 0
  for _ = 1, k do sum = sum - math.log(draw()) end
  return sum
end

local MOST_DRAWS = 200 -- beyond, the mean is as good

-- Epochs that a job still needs, drawn.
local function draw(self, job, e)
  local alpha = 1 + job.epoch
  local beta = alpha
  if e then beta = math.max(1, math.floor(1 + e.epochs / e.jobs - job.epoch + 0.5)) end
  if alpha + beta > MOST_DRAWS then return beta end
  local a, b = gamma(self.random, alpha), gamma(self.random, beta)
  return alpha * b / a -- alpha (1 / part done - 1)
end

-- The same number as long as nothing new is known of the job: another one each time would move jobs for nothing.
local function remaining(self, job)
  local e, known = self.ended[job.application.name], self.drawn[job.name]
  local ended = e and e.jobs or 0
  if not known or known.epoch ~= job.epoch or known.ended ~= ended then
    known = { epoch = job.epoch, ended = ended, value = draw(self, job, e) }
    self.drawn[job.name] = known
  end
  return known.value
end

-- ---------------------------------------------------------------- batches

-- Moves the limits of batches: up with each epoch, down for those that had much while others wait.
local function move_limits(self, jobs)
  local sum, waits = 0, false
  for _, job in ipairs(jobs) do
    sum = sum + job.attained
    waits = waits or not job.counts
  end
  for _, job in ipairs(jobs) do
    local l, limits = self.limit[job.name], job.application.limits
    if not l then
      l = { batch = limits.first_batch, epoch = job.epoch }
      self.limit[job.name] = l
    end
    if job.epoch > l.epoch then
      local by = waits and job.attained > sum / #jobs and 0.5 or 2 ^ math.min(job.epoch - l.epoch, 20)
      l.batch = math.min(math.max(l.batch * by, limits.first_batch), limits.max_batch)
      l.epoch = job.epoch
    end
  end
end

local function most_of(self, job, total)
  local limits = job.application.limits
  local most = job.application.max_replicas or math.floor(self.limit[job.name].batch / limits.min_local)
  return math.max(1, math.min(most, total))
end

-- The batch of a job with so many replicas, as near as can be to what a state wants of it.
local function batch_of(p, j, replicas, wanted)
  local app = p.jobs[j].application
  if app.batch then return app.batch end
  local l = app.limits
  return math.max(math.min(wanted, p.limit[j], l.max_batch), replicas * l.min_local)
end

-- ---------------------------------------------------------------- states: { x = [GPU] = job or 0, batch = [job] }

local function counts_of(p, state)
  local count = {}
  for j = 1, #p.jobs do count[j] = 0 end
  for g = 1, p.total do
    local j = state.x[g]
    if j > 0 then count[j] = count[j] + 1 end
  end
  return count
end

-- Takes from jobs what is more than they may have, and gives free GPUs away: to jobs that have none first.
local function fill(p, state)
  local x, count = state.x, counts_of(p, state)
  for g = p.total, 1, -1 do
    local j = x[g]
    if j > 0 and count[j] > p.most[j] then x[g], count[j] = 0, count[j] - 1 end
  end
  local none = {}
  for j = 1, #p.jobs do
    if count[j] == 0 then none[#none + 1] = j end
  end
  for g = 1, p.total do
    if x[g] == 0 then
      if #none > 0 then
        local j = table.remove(none, p.random(#none))
        x[g], count[j] = j, 1
      else
        local more = {}
        for j = 1, #p.jobs do
          if count[j] < p.most[j] then more[#more + 1] = j end
        end
        if #more == 0 then return end
        local j = more[p.random(#more)]
        x[g], count[j] = j, count[j] + 1
      end
    end
  end
end

-- Jobs keep the nodes on which they are now if their number of GPUs stays; the others lie together, the widest first.
local function reorder(p, state)
  local count, x, order = counts_of(p, state), {}, {}
  local free = { unpack(p.capacity) }
  local placed = {}
  for j, job in ipairs(p.jobs) do
    if count[j] > 0 and job.counts and nodes.total(job.counts) == count[j] then
      placed[j] = job.counts
      for n, k in ipairs(job.counts) do free[n] = free[n] - k end
    elseif count[j] > 0 then
      order[#order + 1] = j
    end
  end
  table.sort(order, function(a, b) return count[a] > count[b] or (count[a] == count[b] and a < b) end)
  for _, j in ipairs(order) do placed[j] = nodes.take(free, count[j]) end
  local at = {}
  for n = 1, #p.capacity do at[n] = p.first[n] end
  for j = 1, #p.jobs do
    for n, k in ipairs(placed[j] or {}) do
      for _ = 1, k do x[at[n]], at[n] = j, at[n] + 1 end
    end
  end
  for g = 1, p.total do x[g] = x[g] or 0 end
  state.x, state.placed, state.count = x, placed, count
end

-- GPU seconds that a job still needs with so many replicas on so many nodes at a batch.
local function seconds(p, j, used, replicas, batch)
  local key = ((j * 1024 + used) * 1024 + replicas) * 2 ^ 20 + batch
  local value = p.known[key]
  if value then return value end
  local job = p.jobs[j]
  value = UNKNOWN
  if job.known:is_known() then
    local b, more = goodput.cut(job.application.limits, batch, replicas)
    value = p.samples[j] / job.known:throughput(used, replicas, b, more) * replicas
  end
  p.known[key] = value
  return value
end

local function score(p, state)
  local sum = 0
  for j, placed in pairs(state.placed) do
    local job, replicas = p.jobs[j], state.count[j]
    sum = sum + seconds(p, j, #nodes.used(placed), replicas, batch_of(p, j, replicas, state.batch[j]))
    if not nodes.same(job.counts, placed) then sum = sum + p.restart * replicas end
  end
  state.score = sum
end

local function settle(p, state)
  fill(p, state)
  reorder(p, state)
  score(p, state)
  return state
end

-- ---------------------------------------------------------------- evolution

local function crossed(p, a, b)
  local child = { x = {}, batch = {} }
  for g = 1, p.total do child.x[g] = p.random() < 0.5 and a.x[g] or b.x[g] end
  for j = 1, #p.jobs do child.batch[j] = p.random() < 0.5 and a.batch[j] or b.batch[j] end
  return child
end

local function mutate(p, state)
  for j = 1, #p.jobs do
    if p.random() < MUTATED then
      for g = 1, p.total do
        if state.x[g] == j then state.x[g] = 0 end
      end
    end
    if p.random() < MUTATED then
      local l = p.jobs[j].application.limits
      local batch = state.batch[j] * (p.random() < 0.5 and 2 or 0.5)
      state.batch[j] = math.floor(math.max(l.first_batch, math.min(batch, p.limit[j])))
    end
  end
  return state
end

-- A state of the last decision, with the numbers of the jobs as they are now.
local function refreshed(p, old)
  local state = { x = {}, batch = {} }
  for g = 1, p.total do state.x[g] = p.number[old.x[g] or ""] or 0 end
  for j, job in ipairs(p.jobs) do state.batch[j] = old.batch[job.name] or p.limit[j] end
  return state
end

-- What the jobs have now.
local function present(p)
  local state, at = { x = {}, batch = {} }, {}
  for n = 1, #p.capacity do at[n] = p.first[n] end
  for j, job in ipairs(p.jobs) do
    state.batch[j] = p.limit[j]
    for n, k in ipairs(job.counts or {}) do
      for _ = 1, k do state.x[at[n]], at[n] = j, at[n] + 1 end
    end
  end
  for g = 1, p.total do state.x[g] = state.x[g] or 0 end
  return state
end

local function problem_of(self, jobs, capacity)
  local p = { random = self.random, restart = self.restart, jobs = jobs, capacity = capacity, first = {}, number = {},
    total = nodes.total(capacity), most = {}, limit = {}, samples = {}, known = {} }
  local at = 1
  for n, k in ipairs(capacity) do p.first[n], at = at, at + k end
  for j, job in ipairs(jobs) do
    local app = job.application
    p.number[job.name], p.limit[j], p.most[j] = j, self.limit[job.name].batch, most_of(self, job, p.total)
    p.samples[j] = remaining(self, job) * app:steps(app.limits.first_batch, 1) * app.limits.first_batch
  end
  return p
end

local function better(a, b) return a.score < b.score end

-- The population after all generations, the best first.
local function evolve(self, p, states)
  for _ = 1, self.generations do
    local n = #states
    for _ = 1, self.population do
      states[#states + 1] = settle(p, mutate(p, crossed(p, states[p.random(n)], states[p.random(n)])))
    end
    table.sort(states, better)
    for i = #states, self.population + 1, -1 do states[i] = nil end
  end
  return states
end

--- jobs, capacity: those of ganymede.cluster.policies -> [name] = counts, and [name] = batch in samples
function ones:allocate(jobs, capacity)
  local by = {}
  for _, job in ipairs(jobs) do by[job.name] = job end
  note_ended(self, by)
  for name, job in pairs(by) do self.seen[name] = job end
  move_limits(self, jobs)
  local p = problem_of(self, jobs, capacity)
  local states = { settle(p, present(p)) }
  for _, old in ipairs(self.last) do states[#states + 1] = settle(p, refreshed(p, old)) end
  states = evolve(self, p, states)
  self.last = {}
  for i, state in ipairs(states) do
    local kept = { x = {}, batch = {} }
    for g = 1, p.total do kept.x[g] = state.x[g] > 0 and jobs[state.x[g]].name or "" end
    for j, job in ipairs(jobs) do kept.batch[job.name] = state.batch[j] end
    self.last[i] = kept
  end
  local allocations, batches = {}, {}
  for j, job in ipairs(jobs) do
    local placed = states[1].placed[j]
    allocations[job.name] = placed
    if placed then batches[job.name] = batch_of(p, j, states[1].count[j], states[1].batch[j]) end
  end
  return allocations, batches
end

return ones
