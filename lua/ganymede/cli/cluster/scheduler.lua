--- Runs jobs under a policy: who gets which places, as `ganymede.cluster.policies` decides, from what the jobs report.
--
--     local jobs = scheduler.run(plan, driver, record)
--     scheduler.predict(plan, jobs, pause)          -- what the simulator says of the same jobs
--
-- A job is coming (before its time), waits, runs, and is done or failed at its end. The policy is asked when a job
-- arrives or ends, and every `interval` seconds. It sees what the simulator shows it (ganymede.cluster.simulator),
-- with measured seconds of a step (ganymede.cluster.measured). Then, at any time: a job that must give places away does
-- so at once, by a change while it runs, or by a checkpoint and its end; a job that gets places waits until they are
-- free. A driver (ganymede.cli.cluster.here, slurm) does what is decided. Seconds of a step are those between two looks
-- at metrics.jsonl, WINDOW seconds apart or more, in which nothing changed.
-- The trap: places of a job that changes count as the larger of both numbers, until it has said that it is done.
-- @module ganymede.cli.cluster.scheduler
local bounded = require "ganymede.cluster.bounded"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local measured = require "ganymede.cluster.measured"
local nodes = require "ganymede.cluster.nodes"
local policies = require "ganymede.cluster.policies"
local simulator = require "ganymede.cluster.simulator"

local Scheduler = {}
Scheduler.__index = Scheduler

local NAP = 0.05    -- seconds between two looks at processes
local SELDOM = 0.25 -- seconds between two looks at what jobs report
local WINDOW = 1    -- seconds that a measurement lasts at least
local REFUSALS = 2  -- changes refused in a row, after which a job is stopped and started instead
local IDLE = 3      -- stops by others in a row without a step, after which a job has failed
local TAIL = 65536  -- bytes at the end of metrics.jsonl, which hold some hundred lines

local stopped = { [75] = true, [143] = true }

-- ---------------------------------------------------------------- jobs

local of_spec = { "name", "recipe", "set", "seed", "steps", "total", "batch", "largest", "accumulation", "least",
  "legal", "sets_of" }

-- spec: of ganymede.cli.cluster.file. The job's `ranks` are those that it has: nil while it has none. `batch` is its
-- first batch, `has_batch` the present one. `epoch` counts steps, and `progress` what they were worth in steps of the
-- first batch: its samples, since the run ends after so many of them.
local function new_job(spec, index)
  local app = measured.new { name = spec.name, steps = spec.total, batch = spec.batch, largest = spec.largest,
    most = spec.most, guess = spec.guess }
  local job = { index = index, submitted = spec.arrive, application = app, wanted = spec.ranks, epoch = 0, progress = 0,
    attained = 0, restarts = -1, state = "coming", starts = 0, changes = 0, refusals = 0, has_batch = spec.batch,
    rebatched = 0 }
  for _, key in ipairs(of_spec) do job[key] = spec[key] end
  return job
end

-- The last step in a run's metrics.jsonl, and what is said of it: noise, the last { square, variance } of its gradient;
-- batch, the samples of a step where they may change; samples, of all steps. nil: none yet.
local function last_step(folder)
  local file = io.open(folder .. "/metrics.jsonl", "rb")
  if not file then return nil end
  local size = file:seek "end"
  file:seek("set", math.max(0, size - TAIL))
  local text = file:read "*a" or ""
  file:close()
  local last, about = nil, {}
  for line in text:gmatch "([^\n]*)\n" do
    last = tonumber(line:match '"step":(%d+)') or last
    for _, key in ipairs { "batch", "samples" } do
      about[key] = tonumber(line:match('"' .. key .. '":(%d+)')) or about[key]
    end
    local square, variance = line:match '"gradient_square":([^,}]+)', line:match '"gradient_variance":([^,}]+)'
    if tonumber(square) and tonumber(variance) then about.noise = { tonumber(square), tonumber(variance) } end
  end
  return last, about
end

-- Takes in what a run says of itself besides its seconds.
local function take_in(job, step, about)
  if about.noise then job.application:learn(unpack(about.noise)) end
  job.epoch, job.progress = step, step
  if job.largest then
    job.has_batch = about.batch or job.has_batch
    job.progress = math.min(job.total, (about.samples or 0) / job.batch)
  end
end

local function note_ranks(job)
  job.least_had = math.min(job.least_had or job.ranks, job.ranks)
  job.most_had = math.max(job.most_had or job.ranks, job.ranks)
end

-- The job has these places from now on; nil: none. It lies on as few nodes as it can, whatever the policy said.
local function give(self, job, counts)
  job.counts = counts
  job.used = counts and nodes.packed(nodes.total(counts), self.plan.nodes[1])
end

-- What the policies know as restarts: all starts and changes but the first one.
local function count_restarts(job) job.restarts = job.starts + job.changes - 1 end

-- ---------------------------------------------------------------- what happened before this process

local replay = {}
function replay.start(job, event)
  job.starts, job.began, job.was, job.ranks = job.starts + 1, job.began or event.t, event, event.ranks
  note_ranks(job)
end
function replay.resized(job, event)
  job.ranks, job.changes = event.ranks, job.changes + 1
  note_ranks(job)
end
function replay.arrived(job) job.state = "waits" end
function replay.stopped(job) job.was = nil end
function replay.measured(job, event)
  job.application:observe(event.nodes, event.ranks, event.seconds, event.steps, event.batch)
end
function replay.batch(job) job.rebatched = job.rebatched + 1 end
function replay.done(job, event) job.state, job.ended, job.was = "done", event.t, nil end
function replay.failed(job, event) job.state, job.ended, job.why, job.was = "failed", event.t, event.why, nil end

-- A job that lives on without a scheduler is taken up, where there is one.
local function adopt(self, job)
  local found = self.driver.adopt and self.driver:adopt(job, job.was)
  if not found then return end
  if not job.was or job.was.id ~= found.id then
    job.starts = job.starts + 1
    self.record:write("start", job.name, { ranks = found.ranks, step = job.epoch, id = found.id })
  end
  local taken = {}
  for _, other in ipairs(self.jobs) do taken[other.name] = other.counts end
  local free = nodes.free(self.plan.nodes, taken)
  job.state, job.ranks, job.since, job.began = "runs", found.ranks, self.record:now(), job.began or self.record:now()
  note_ranks(job)
  if nodes.total(free) >= found.ranks then return give(self, job, nodes.take(free, found.ranks)) end
  self.driver:stop(job)
  job.asked = "stop"
end

local function take_up(self)
  local by = {}
  for _, job in ipairs(self.jobs) do by[job.name] = job end
  for _, event in ipairs(self.record.events) do
    local job = by[event.job or ""]
    if job then
      job.attained = event.attained or job.attained
      if replay[event.event] then replay[event.event](job, event) end
    end
  end
  for _, job in ipairs(self.jobs) do
    job.ranks = nil
    count_restarts(job)
    local step, about = last_step(self.record:of(job.name))
    take_in(job, step or 0, about or {})
    if self.record.continues and job.state == "waits" then adopt(self, job) end
  end
end

-- ---------------------------------------------------------------- what jobs report

-- Writes down what was measured since the last time, and what the job has had.
local function flush(self, job)
  local m = job.measuring
  if m and m.steps > 0 then
    self.record:write("measured", job.name, { nodes = m.nodes, ranks = m.ranks, batch = job.largest and m.batch,
      seconds = m.seconds, steps = m.steps, attained = job.attained })
  end
  job.measuring, job.mark = nil, nil
end

local function measure(self, job, now)
  local step, about = last_step(self.record:of(job.name))
  if not step then return end
  local grew = step - job.epoch
  if about.batch and about.batch ~= job.has_batch then flush(self, job) end
  if grew > 0 and not job.trains then
    job.trains = true
    self.record:write("trains", job.name, { step = step })
  end
  take_in(job, step, about)
  if job.asked or not job.trains or grew < 0 then -- less than 0: it began again at an older checkpoint
    job.mark = nil
    return
  end
  if not job.mark then
    if grew > 0 then job.mark = { at = now, step = step } end
    return
  end
  local seconds, steps = now - job.mark.at, step - job.mark.step
  if grew <= 0 or seconds < WINDOW then return end
  job.mark = { at = now, step = step }
  local m = job.measuring or { nodes = #job.used, ranks = job.ranks, batch = job.has_batch, seconds = 0, steps = 0 }
  m.seconds, m.steps, job.measuring = m.seconds + seconds, m.steps + steps, m
  job.application:observe(m.nodes, m.ranks, seconds, steps, m.batch)
end

-- ---------------------------------------------------------------- what became of what was asked

-- Whether a job has just been stopped, and may go on: by this scheduler, by a signal, or by Slurm. One that is stopped
-- by others again and again before it has made a step has failed.
local function was_stopped(job, status)
  if job.asked == "stop" then return stopped[status] or status > 128 end
  if not stopped[status] then return false end
  job.idle = job.epoch > (job.start_step or 0) and 0 or (job.idle or 0) + 1
  return job.idle < IDLE
end

local function has_ended(self, job, status, why)
  local now = self.record:now()
  flush(self, job)
  local step, said = last_step(self.record:of(job.name))
  take_in(job, step or job.epoch, said or {})
  local goes_on = status ~= 0 and was_stopped(job, status)
  job.asked, job.ranks, job.handle, job.trains = nil, nil, nil, nil
  give(self, job, nil)
  local about = { status = status, step = job.epoch, attained = job.attained }
  if status == 0 then
    job.state, job.ended = "done", now
    self.record:write("done", job.name, about)
    log.info("%s: done after %d steps, %.1f s after it came", job.name, job.epoch, now - job.submitted)
  elseif goes_on then
    job.state = "waits"
    self.record:write("stopped", job.name, about)
    log.info("%s: stopped after step %d", job.name, job.epoch)
  else
    job.state, job.ended, job.why, about.why = "failed", now, why, why
    self.record:write("failed", job.name, about)
    log.warn("%s: failed with status %d: %s", job.name, status, why or "")
  end
  self.due = true
end

-- The batch of a job has changed to what was asked for.
local function has_rebatched(self, job)
  local batch = job.asked.batch
  if not batch then return end
  flush(self, job)
  self.record:write("batch", job.name, { before = job.asked.had, batch = batch, ranks = job.asked.ranks,
    step = job.epoch })
  log.info("%s: batch %d, before it %d", job.name, batch, job.asked.had)
  job.has_batch, job.rebatched = batch, job.rebatched + 1
end

local function has_resized(self, job, event)
  flush(self, job)
  self.record:write("resized", job.name, { before = job.ranks, ranks = job.asked.ranks, paused = event.paused,
    built = event.built, step = job.epoch })
  log.info("%s: %d ranks, before it %d; paused for %.2f s", job.name, job.asked.ranks, job.ranks, event.paused)
  has_rebatched(self, job)
  give(self, job, job.asked.counts)
  job.ranks, job.changes, job.refusals, job.asked = job.asked.ranks, job.changes + 1, 0, nil
  count_restarts(job)
  note_ranks(job)
end

-- The job goes on as it was: the next decision sees that.
local function was_refused(self, job, why)
  local asked = type(job.asked) == "table" and job.asked or {}
  self.record:write("refused", job.name, { ranks = asked.ranks, batch = asked.batch, why = why })
  log.info("%s: goes on with %d ranks: %s", job.name, job.ranks, why)
  if asked.ranks ~= job.ranks then job.refusals = job.refusals + 1 end
  job.asked, job.shall_batch = nil, nil
  job.not_before = self.record:now() + WINDOW
end

local function look(self, now)
  local report = now >= (self.reported or 0) + SELDOM
  if report then self.reported = now end
  for _, job in ipairs(self.jobs) do
    if job.state == "coming" and job.submitted <= now then
      job.state, self.due = "waits", true
      self.record:write("arrived", job.name, {})
    end
    if job.ranks then
      job.attained = job.attained + (now - job.since) * job.ranks
      job.since = now
      if report then measure(self, job, now) end
      local event = self.driver:look(job)
      if event and event.kind == "ended" then has_ended(self, job, event.status, event.why)
      elseif event and event.kind == "resized" then has_resized(self, job, event)
      elseif event and event.kind == "rebatched" then
        has_rebatched(self, job)
        job.asked = nil
      elseif event then was_refused(self, job, event.why) end
    end
  end
end

-- ---------------------------------------------------------------- decisions

-- The batch that a job shall have with so many ranks, in samples of a step; nil: it stays.
local function batch_for(self, job, ranks, chosen)
  if not (job.largest and job.trains and self.policy.adapts_batch and self.driver.moves) or ranks == 0 then return end
  local used = nodes.packed(ranks, self.plan.nodes[1])
  local batch = job.application:batch_for(#used, ranks, job.has_batch, job.accumulation, chosen)
  return batch ~= job.has_batch and batch or nil
end

local function decide(self, now)
  local waiting, said = {}, {}
  for _, job in ipairs(self.jobs) do
    if job.state == "waits" or job.ranks then
      job.known = job.application:known()
      waiting[#waiting + 1] = job
    end
  end
  self.due, self.decided = false, now
  if #waiting == 0 then return end
  local allocations, batches = self.policy:allocate(waiting, self.plan.nodes, now)
  simulator.check(self.policy, self.plan.nodes, waiting, allocations)
  for _, job in ipairs(waiting) do
    job.target = allocations[job.name]
    said[job.name] = job.target and nodes.total(job.target) or 0
    job.shall_batch = batch_for(self, job, said[job.name], batches and batches[job.name])
  end
  local text = json.encode(said)
  if text ~= self.said then self.record:write("decided", nil, { ranks = said }) end
  self.said = text
end

-- Places that jobs have, or may still have.
local function held(self)
  local sum = 0
  for _, job in ipairs(self.jobs) do
    if job.ranks then sum = sum + math.max(job.ranks, type(job.asked) == "table" and job.asked.ranks or 0) end
  end
  return sum
end

local function stop(self, job)
  flush(self, job)
  self.driver:stop(job)
  job.asked = "stop"
  self.record:write("stop", job.name, { step = job.epoch })
end

-- Has the ranks of a running job change to the number that it shall have.
local function change(self, job, ranks)
  if not self.driver.moves or job.refusals >= REFUSALS then
    job.refusals = 0
    return stop(self, job)
  end
  local batch = job.shall_batch
  local ok, why = self.driver:resize(job, ranks, batch and batch / job.accumulation)
  job.asked = { ranks = ranks, counts = job.target, batch = batch, had = job.has_batch }
  if not ok then return was_refused(self, job, why) end
  flush(self, job)
  self.record:write("resize", job.name, { before = job.ranks, ranks = ranks, batch = batch, step = job.epoch })
end

-- Has the batch alone of a running job change.
local function rebatch(self, job)
  local batch = job.shall_batch
  local ok, why = self.driver:rebatch(job, batch / job.accumulation)
  job.asked, job.shall_batch = { ranks = job.ranks, batch = batch, had = job.has_batch }, nil
  if not ok then was_refused(self, job, why) end
end

local function start(self, job, ranks)
  local ok, began = failure.try(self.driver.start, self.driver, job, ranks)
  if ok and not began then return end
  local now = self.record:now()
  job.ranks, job.since, job.began, job.start_step = ranks, now, job.began or now, job.epoch
  if not ok then return has_ended(self, job, failure.code(began), failure.text(began)) end
  job.state, job.starts, job.refusals, job.not_before = "runs", job.starts + 1, 0, nil
  count_restarts(job)
  give(self, job, job.target)
  note_ranks(job)
  self.record:write("start", job.name, { ranks = ranks, step = job.epoch, id = job.handle.id })
  log.info("%s: begins %swith %d rank%s", job.name, job.epoch > 0 and ("after step %d "):format(job.epoch) or "", ranks,
    ranks == 1 and "" or "s")
end

-- Does what was decided, as far as places are free.
local function act(self, now)
  local total = nodes.total(self.plan.nodes)
  for _, job in ipairs(self.jobs) do -- those that give places away
    local ranks = job.target and nodes.total(job.target) or 0
    if job.ranks and not job.asked and ranks < job.ranks then
      if ranks == 0 then stop(self, job)
      elseif job.trains and now >= (job.not_before or 0) then change(self, job, ranks) end
    end
  end
  for _, job in ipairs(self.jobs) do
    local ranks = job.target and nodes.total(job.target) or 0
    local free = total - held(self)
    if job.state == "waits" and ranks > 0 and ranks <= free then
      start(self, job, ranks)
    elseif job.ranks and not job.asked and ranks > job.ranks and ranks - job.ranks <= free and job.trains
      and now >= (job.not_before or 0) then
      change(self, job, ranks)
    elseif job.ranks == ranks and not job.asked and job.shall_batch and job.trains then
      rebatch(self, job)
    end
  end
end

-- ---------------------------------------------------------------- the loop

local function is_over(self)
  for _, job in ipairs(self.jobs) do
    if job.state ~= "done" and job.state ~= "failed" then return false end
  end
  return true
end

local function loop(self)
  while not is_over(self) do
    local now = self.record:now()
    look(self, now)
    if self.due or now >= self.decided + self.plan.interval then decide(self, now) end
    act(self, now)
    core.sleep(NAP)
  end
end

-- Ends what runs, with its checkpoint.
local function close(self)
  local running = {}
  for _, job in ipairs(self.jobs) do
    if job.handle then
      job.asked = "stop"
      running[#running + 1] = job
    end
  end
  if #running == 0 then return end
  self.driver:close(running, function(job, status, why) has_ended(self, job, status, why) end)
end

--- What the simulator predicts for the same jobs: policy, places and interval, with the seconds of steps that were
-- measured -> { [name] = seconds from arrival to end }. pause: seconds that a start or a change takes. Jobs of which
-- nothing was measured, and those that failed, are left out. Nothing is predicted where a batch has changed: in a
-- simulation it would at other times, which decide about the rest.
function Scheduler.predict(plan, jobs, pause)
  local rows, profiles, limits = {}, {}, {}
  for _, job in ipairs(jobs) do
    if job.rebatched > 0 then return {} end
    if job.state == "done" and #job.application:cells() > 0 then
      rows[#rows + 1] = { name = job.name, time = job.submitted, application = job.name, num_replicas = job.wanted,
        batch_size = job.batch }
      profiles[job.name] = job.largest and job.application:with_first_batch() or job.application
      limits[job.name] = { least = job.least, legal = job.legal }
    end
  end
  table.sort(rows, function(a, b) return a.time < b.time end)
  if #rows == 0 then return {} end
  local r = simulator.run { jobs = rows, profiles = profiles, nodes = plan.nodes, interval = plan.interval,
    restart = pause, policy = bounded.new(policies.new(plan.policy, plan.given), limits) }
  local out = {}
  for _, job in ipairs(r.jobs) do out[job.name] = job.ended - job.submitted end
  return out
end

--- Runs the jobs to their ends -> the jobs, each with state, began, ended, epoch (steps), starts, changes, least_had
-- and most_had (ranks). A stop ends all that runs, with its checkpoint, and is raised again.
function Scheduler.run(plan, driver, record)
  local self = setmetatable({ plan = plan, driver = driver, record = record, jobs = {}, due = true, decided = 0 },
    Scheduler)
  local limits = {}
  for i, spec in ipairs(plan.jobs) do -- in the order in which they arrive
    self.jobs[i] = new_job(spec, i)
    limits[spec.name] = { least = spec.least, legal = spec.legal }
  end
  self.policy = bounded.new(policies.new(plan.policy, plan.given), limits)
  take_up(self)
  failure.protect(function() close(self) end, loop, self)
  return self.jobs
end

return Scheduler
