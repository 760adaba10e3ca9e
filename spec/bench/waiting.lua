--- For benches and specs: pipelines whose parts wait instead of computing, so that times can be told on a machine
-- with fewer cores than ranks.
--
--     local pipeline = waiting.pipeline("zb-h1", { micro_batches = 8, times = { 0.01, 0.01, 0.01 } })
--     local events, peak = pipeline:step()        -- COLLECTIVE over the axis `pipeline` of the mesh that is set
--
-- times: seconds of forward, of the gradient of the input and of the gradient of the weights, of a stage: each of its
-- chunks takes its share. What crosses borders is a row of numbers. The parts are differentiable: a custom function
-- that splits, and a parameter.
-- opt.virtual: nobody waits. Each rank has a clock that a pass moves on by its time, from when what it reads was made:
-- that moment is the number that crosses borders. Events then are of these clocks, the same on any machine: who ran
-- before whom is what happened, how long it took is what was said.
local gm = require "ganymede"
local core = require "ganymede.core"
local geometry = require "ganymede.job.geometry"
local schedules = require "ganymede.schedules.pipeline"

local waiting = {}

-- x + w, which takes these times.
local function adder(times)
  return gm.custom {
    splits = true,
    forward = function(x, w)
      core.sleep(times[1])
      return x + w
    end,
    backward = function(gradient, wanted)
      if wanted[1] then core.sleep(times[2]) end
      if wanted[2] then core.sleep(times[3]) end
      return wanted[1] and gradient or nil, wanted[2] and gradient:clone() or nil
    end,
  }
end

-- The same on the clock of a pipeline: values and gradients are the moments at which they were made. times nil: the
-- entry, which takes no time.
local function ticker(self, times)
  local function spend(ready, seconds)
    if not times then return ready end
    local begin = math.max(self.clock, ready)
    self.clock = begin + seconds
    self.log[#self.log + 1] = { begin, self.clock }
    return self.clock
  end
  return gm.custom {
    splits = true,
    forward = function(x) return gm.full({ 4 }, spend(x:totable()[1], times and times[1])) end,
    backward = function(gradient, wanted)
      local seconds = times and (wanted[1] and times[2] or 0) + (wanted[2] and times[3] or 0)
      local made = spend(wanted[1] and gradient:totable()[1] or 0, seconds) -- a late half waits for nothing
      return wanted[1] and gm.full({ 4 }, made) or nil, wanted[2] and gradient:clone() or nil
    end,
  }
end

local Pipeline = {}
Pipeline.__index = Pipeline

local function parameter() return gm.zeros { 4 }:requires_grad(true):keep() end

--- order: a registered name; opt: micro_batches, times, virtual, chunks (default: the order's).
function waiting.pipeline(order, opt)
  local stages, rank = core.world(), core.rank()
  local schedule = schedules.build(order, { stages = stages, micro_batches = opt.micro_batches, chunks = opt.chunks })
  local share, weights = {}, {}
  for k, seconds in ipairs(opt.times) do share[k] = seconds / schedule.chunks end
  for chunk = 1, schedule.chunks do weights[chunk] = parameter() end
  local self = setmetatable({
    schedule = schedule, rank = rank, n_parts = stages * schedule.chunks, weights = weights, virtual = opt.virtual,
    entry = parameter(), executor = core.executor_new {},
  }, Pipeline)
  -- The first part's input has no gradient. One parameter in front of it, whose gradient costs nothing, makes its
  -- backward pass as long as the others'.
  self.enter = self.virtual and ticker(self) or adder { 0, 0, 0 }
  self.add = self.virtual and ticker(self, share) or adder(share)
  return self
end

local function part(self, micro_batch, chunk, received)
  local index = self.schedule.parts[self.rank + 1][chunk]
  local x = received[1] or self.enter(gm.full({ 4 }, self.virtual and 0 or micro_batch), self.entry)
  local y = self.add(x, self.weights[chunk])
  if index < self.n_parts then return { y }, "" end
  return {}, "", y:sum()
end

-- The computing of a step as the pipeline's clock has it.
local function by_clock(self, events)
  local at = 0
  for _, event in ipairs(events) do
    if geometry.is_computing { event.action } then
      at = at + 1
      event.begin, event.finish = self.log[at][1], self.log[at][2]
    end
  end
  assert(at == #self.log, "not each computing action moved the clock once")
  return events
end

--- One step -> this rank's events, and how many (micro-batch, chunk) pairs it held at most.
function Pipeline:step()
  local schedule, signatures = self.schedule, {}
  self.clock, self.log = 0, {}
  for m = 1, schedule.micro_batches do signatures[m] = "one row" end
  core.zero_grad(self.weights)
  core.zero_grad { self.entry }
  core.comm_barrier(core.comm_group "pipeline")
  gm.scope(core.executor_run, self.executor, {
    actions = schedule.actions[self.rank + 1], parts = schedule.parts[self.rank + 1], n_parts = self.n_parts,
    micro_batches = schedule.micro_batches, chunks = schedule.chunks, signatures = signatures, final = true,
    forward = function(...) return part(self, ...) end,
  })
  local events = core.executor_events(self.executor)
  return self.virtual and by_clock(self, events) or events, core.executor_peak(self.executor)
end

--- The events of all stages and their peaks, on every rank. COLLECTIVE.
function waiting.gather(events, peak)
  local json, all, peaks = require "ganymede.base.json", {}, {}
  local said = json.encode { events = json.array(events), peak = peak }
  for i, text in ipairs(core.comm_exchange(core.comm_group(), said)) do
    local one = json.decode(text, "the events of a rank")
    all[i], peaks[i] = one.events, one.peak
  end
  return all, peaks
end

function Pipeline:free() core.executor_free(self.executor) end

return waiting
