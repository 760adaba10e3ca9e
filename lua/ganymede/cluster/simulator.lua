--- Replays jobs on a cluster under a policy, in simulated seconds.
--
--     simulator.run { jobs = workload, profiles = by_application, policy = policies.new("tiresias"), nodes = { 4, 4 } }
--
-- A job that a policy sees has: name, index (order of submission), submitted, application (a profile, or what answers
-- as one), wanted (replicas) and batch, as its user asked; epoch (ended ones), progress and total (steps of the first
-- batch), attained (GPU-seconds), restarts (-1 before it first ran), counts (replicas on each node, nil while it
-- waits), used (those above zero), known (ganymede.cluster.goodput, of what it has measured itself).
--
-- Every `interval` seconds the policy is asked who gets which places. A job whose places change stands still for
-- `restart` seconds. Progress is goodput (ganymede.cluster.goodput) with the measured seconds of a step and the
-- measured noise of the gradient. A job ends when its epochs are done. This is the simulator of Pollux (OSDI 2021,
-- 5.3), whose published averages spec/bench/scheduler.lua compares with.
-- @module ganymede.cluster.simulator
local goodput = require "ganymede.cluster.goodput"
local nodes = require "ganymede.cluster.nodes"

local simulator = {}

local function new_job(row, index, profiles, policy)
  local app = profiles[row.application]
  if not app then error(("job %s: there is no profile of '%s'"):format(row.name, row.application), 0) end
  local batch = row.batch_size
  if policy.adapts_batch then batch = app.batch end
  return { index = index, name = row.name, application = app, submitted = row.time, wanted = row.num_replicas,
    batch = batch, epoch = 0, progress = 0, total = app:progress(app.epochs), attained = 0, stands = 0, restarts = -1,
    known = goodput.new(app.limits) }
end

-- Samples a replica and gradient, and gradients more than one, for the places that a job has.
local function set_batch(job)
  local app, replicas = job.application, nodes.total(job.used)
  local l, batch = app.limits, job.batch or job.chosen
  if not batch and not job.known:is_known() then batch = math.max(l.first_batch, l.min_local * replicas) end
  if batch then
    job.b, job.more = goodput.cut(l, batch, replicas)
  else
    local _
    _, job.b, job.more = job.known:best(#job.used, replicas)
  end
  job.b = math.min(job.b, math.floor(l.max_batch / (replicas * (job.more + 1))))
end

-- Progress a second of a job that runs, in steps of the first batch.
local function speed(job)
  local app, replicas = job.application, nodes.total(job.used)
  local batch = replicas * job.b * (job.more + 1)
  local step, sync = app:step(job.used, job.b)
  local sqr, var = app:gradient(batch, job.epoch + 1)
  job.known:observe(#job.used, replicas, job.b, step, sync, sqr, var)
  return goodput.gain(sqr, var, batch / app.limits.first_batch) / (step + (step - sync) * job.more)
end

local function advance(job, now, seconds)
  if not job.used then return end
  local replicas = nodes.total(job.used)
  local still = math.min(job.stands, seconds)
  job.stands, job.attained, seconds, now = job.stands - still, job.attained + still * replicas, seconds - still,
    now + still
  while seconds > 0 and not job.ended do
    local rate, next_epoch = speed(job), job.application:progress(job.epoch + 1)
    local need = (next_epoch - job.progress) / rate
    if need > seconds then
      job.progress = job.progress + rate * seconds
      job.attained = job.attained + seconds * replicas
      seconds = 0
    else
      job.epoch, job.progress = job.epoch + 1, next_epoch
      job.attained, now, seconds = job.attained + need * replicas, now + need, seconds - need
      if job.epoch == job.application.epochs then job.ended = now end
    end
    set_batch(job)
  end
end

-- chosen: samples of the job's batch, where the policy chooses it. A batch alone changes without a stop.
local function give(job, counts, restart, chosen)
  local another = chosen ~= job.chosen
  job.chosen = chosen
  if nodes.same(job.counts, counts) then
    if another and job.used then set_batch(job) end
    return
  end
  job.counts = counts and nodes.total(counts) > 0 and counts or nil
  job.used = job.counts and nodes.used(job.counts)
  if not job.used then return end
  set_batch(job)
  job.stands = restart
  job.restarts = job.restarts + 1
end

--- Raises an error if a policy gave a node more replicas than it has places, or anything to a job that is not there.
-- waiting: the jobs that wait or run.
function simulator.check(policy, capacity, waiting, allocations)
  local names = {}
  for _, job in ipairs(waiting) do names[job.name] = true end
  for name, counts in pairs(allocations) do
    if not names[name] then error(("policy %s gave places to %s, which is not there"):format(policy.name, name), 0) end
    if #counts ~= #capacity then
      error(("policy %s named %d nodes of %d"):format(policy.name, #counts, #capacity), 0)
    end
  end
  for i, free in ipairs(nodes.free(capacity, allocations)) do
    if free < 0 then
      error(("policy %s gave away %d places more than node %d has"):format(policy.name, -free, i), 0)
    end
  end
end

local function percentile(sorted, part) return sorted[math.max(1, math.ceil(part * #sorted))] end

local function results(jobs, now, used, capacity)
  local seconds, restarts = {}, 0
  for i, job in ipairs(jobs) do
    seconds[i] = job.ended - job.submitted
    restarts = restarts + math.max(job.restarts, 0)
  end
  table.sort(seconds)
  local sum = 0
  for _, s in ipairs(seconds) do sum = sum + s end
  return { mean = sum / #jobs, median = percentile(seconds, 0.5), p99 = percentile(seconds, 0.99), makespan = now,
    restarts = restarts / #jobs, used = used / (now * nodes.total(capacity)), jobs = jobs }
end

--- options: { jobs: rows { name, time, application, num_replicas, batch_size } in order of time; profiles:
-- [application] = profile; policy; nodes: GPUs of each node; interval = 60 and restart = 30, seconds; watch: called
-- with the time and the jobs that wait or run after each decision, or nil }
-- -> { mean, median, p99: seconds from submission to end; makespan: seconds; restarts: a job's mean; used: the part of
-- all GPUs' time that had a job on it; jobs }
function simulator.run(options)
  local policy, capacity, interval = options.policy, options.nodes, options.interval or 60
  local jobs, now, used = {}, 0, 0
  for i, row in ipairs(options.jobs) do jobs[i] = new_job(row, i, options.profiles, policy) end
  local left = #jobs
  while left > 0 do
    local waiting = {}
    for _, job in ipairs(jobs) do
      if not job.ended then
        advance(job, now, interval)
        if job.ended then
          left, job.counts, job.used = left - 1, nil, nil
        elseif job.submitted <= now + interval then
          waiting[#waiting + 1] = job
        end
      end
    end
    now = now + interval
    if #waiting > 0 then
      local allocations, batches = policy:allocate(waiting, capacity, now)
      simulator.check(policy, capacity, waiting, allocations)
      for _, job in ipairs(waiting) do
        give(job, allocations[job.name], options.restart or 30, batches and batches[job.name])
        used = used + (job.counts and nodes.total(job.counts) or 0) * interval
      end
      if options.watch then options.watch(now, waiting) end
    end
  end
  return results(jobs, now, used, capacity)
end

return simulator
