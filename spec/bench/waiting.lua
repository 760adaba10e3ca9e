--- For benches and specs: pipelines whose parts wait instead of computing, so that times can be told on a machine
-- with fewer cores than ranks.
--
--     local pipeline = waiting.pipeline("zb-h1", { micro_batches = 8, times = { 0.01, 0.01, 0.01 } })
--     local events, peak = pipeline:step()        -- COLLECTIVE over the axis `pipeline` of the mesh that is set
--
-- times: seconds of forward, of the gradient of the input and of the gradient of the weights, of a stage: each of its
-- chunks takes its share. What crosses borders is a row of numbers. The parts are differentiable: a custom function
-- that splits, and a parameter.
local gm = require "ganymede"
local core = require "ganymede.core"
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

local Pipeline = {}
Pipeline.__index = Pipeline

local function parameter() return gm.zeros { 4 }:requires_grad(true):keep() end

--- order: a registered name; opt: micro_batches, times, chunks (default: the order's), step.
function waiting.pipeline(order, opt)
  local stages, rank = core.world(), core.rank()
  local schedule = schedules.build(order, { stages = stages, micro_batches = opt.micro_batches, chunks = opt.chunks })
  local share, weights = {}, {}
  for k, seconds in ipairs(opt.times) do share[k] = seconds / schedule.chunks end
  for chunk = 1, schedule.chunks do weights[chunk] = parameter() end
  return setmetatable({
    schedule = schedule, rank = rank, n_parts = stages * schedule.chunks, weights = weights, add = adder(share),
    -- The first part's input has no gradient. One parameter in front of it, whose gradient costs nothing, makes its
    -- backward pass as long as the others'.
    entry = parameter(), enter = adder { 0, 0, 0 }, executor = core.executor_new {},
  }, Pipeline)
end

local function part(self, micro_batch, chunk, received)
  local index = self.schedule.parts[self.rank + 1][chunk]
  local x = received[1] or self.enter(gm.full({ 4 }, micro_batch), self.entry)
  local y = self.add(x, self.weights[chunk])
  if index < self.n_parts then return { y }, "" end
  return {}, "", y:sum()
end

--- One step -> this rank's events, and how many (micro-batch, chunk) pairs it held at most.
function Pipeline:step()
  local schedule, signatures = self.schedule, {}
  for m = 1, schedule.micro_batches do signatures[m] = "one row" end
  core.zero_grad(self.weights)
  core.zero_grad { self.entry }
  core.comm_barrier(core.comm_group "pipeline")
  gm.scope(core.executor_run, self.executor, {
    actions = schedule.actions[self.rank + 1], parts = schedule.parts[self.rank + 1], n_parts = self.n_parts,
    micro_batches = schedule.micro_batches, chunks = schedule.chunks, signatures = signatures, final = true,
    forward = function(...) return part(self, ...) end,
  })
  return core.executor_events(self.executor), core.executor_peak(self.executor)
end

--- The events of all stages and their peaks, on every rank. COLLECTIVE.
function waiting.gather(events, peak)
  local json, all, peaks = require "ganymede.json", {}, {}
  local said = json.encode { events = json.array(events), peak = peak }
  for i, text in ipairs(core.comm_exchange(core.comm_group(), said)) do
    local one = json.decode(text, "the events of a rank")
    all[i], peaks[i] = one.events, one.peak
  end
  return all, peaks
end

function Pipeline:free() core.executor_free(self.executor) end

return waiting
