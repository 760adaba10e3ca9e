--- Traces record what every rank does and when, as a file for chrome://tracing or Perfetto, or as a picture.
--
--     local recorder = trace.attach(engine, { steps = 20 })     -- records the next 20 updates
--     ... train ...
--     recorder:write "step.json"                                -- COLLECTIVE; "step.svg": one step as a picture
--
-- A trace has the phases of the loop (ranks.phase) and, if a pipeline schedule runs, every action of its executor. The
-- file has the array format of Chrome's trace events, with a process for each rank. Thread 0 is the computing of a
-- stage (arguments: micro_batch, chunk, and how long it waited before), thread 1 the phases. Thread 2 shows when the
-- rank did nothing but wait for its disk (offload). Asynchronous events are messages and transfers of the disk: a send
-- from its begin until it is done, a receive from the time when it was posted until it arrived, a read or a write
-- until the program noticed its end. The third step is there in full: ops, modules, operations between ranks, memory
-- (ganymede.observe.trace_detail). Times are in microseconds on the clock of rank 0. Clocks of other machines are
-- compared with it when the file is written (ganymede.observe.clocks); how far they were apart, and how wrong that can
-- be, is in the labels of the ranks.
-- @module ganymede.observe.trace
local account = require "ganymede.schedules.account"
local clocks = require "ganymede.observe.clocks"
local core = require "ganymede.core"
local detail = require "ganymede.observe.trace_detail"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local draw_svg = require "ganymede.schedules.draw_svg"
local geometry = require "ganymede.job.geometry"
local signature = require "ganymede.base.signature"

local trace = {}

-- ---------------------------------------------------------------- measured steps

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

--- Returns the measured times of one step of a schedule, in the form of ganymede.schedules.simulate: milliseconds from
-- the first computing of all ranks. events[rank + 1]: the result of core.executor_events on that stage.
function trace.measured(schedule, events)
  local begins, finishes, first, forwards = {}, {}, math.huge, {}
  for i, actions in ipairs(schedule.actions) do
    if #events[i] ~= #actions then
      error(("stage %d did %d actions, and the schedule has %d: not the events of %s"):format(i - 1, #events[i],
        #actions, geometry.title(schedule)), 2)
    end
    for _, event in ipairs(events[i]) do
      if geometry.is_computing { event.action } then first = math.min(first, event.begin) end
    end
  end
  for i, list in ipairs(events) do
    begins[i], finishes[i] = {}, {}
    for k, event in ipairs(list) do
      begins[i][k], finishes[i][k] = 1e3 * (event.begin - first), 1e3 * (event.finish - first)
      if event.action == "forward" then forwards[#forwards + 1] = finishes[i][k] - begins[i][k] end
    end
  end
  local measured = account(schedule, begins, finishes)
  measured.said, measured.time_unit, measured.unit = "measured", "ms", math.max(median(forwards), 1e-3)
  return measured
end

--- Returns the same as a picture: the text of an SVG file.
function trace.svg(schedule, events) return draw_svg(schedule, trace.measured(schedule, events)) end

-- ---------------------------------------------------------------- Chrome's events

local function microseconds(seconds) return ("%.1f"):format(1e6 * seconds) end

local function complete(rank, thread, name, begin, finish, arguments)
  return ('{"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s%s}'):format(name, rank, thread,
    microseconds(begin), microseconds(finish - begin), arguments and ',"args":{' .. arguments .. "}" or "")
end

local function named(rank, thread, what, name)
  return ('{"name":"%s","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}}'):format(what, rank, thread, name)
end

-- Adds a message: two events with an id of their own.
local function message(rank, id, event, first)
  local head = ('{"name":"%s %s","cat":"message","id":"%d.%d","pid":%d,"tid":0'):format(event.action, event.thing, rank,
    id, rank)
  return ('%s,"ph":"b","ts":%s,"args":{"micro_batch":%d,"chunk":%d,"peer":%d}},\n%s,"ph":"e","ts":%s}'):format(head,
    microseconds(event.begin - first), event.micro_batch, event.chunk, event.peer, head,
    microseconds(event.finish - first))
end

-- Adds a transfer of the disk, or a time of waiting for one.
local function disk_line(rank, id, span, first)
  if span.what == "wait" then
    return complete(rank, 2, "waits for the disk", span.begin - first, span.finish - first)
  end
  local head = ('{"name":"disk %s","cat":"disk","id":"%d.%d","pid":%d,"tid":2'):format(span.what, rank, id, rank)
  return ('%s,"ph":"b","ts":%s,"args":{"bytes":%d}},\n%s,"ph":"e","ts":%s}'):format(head,
    microseconds(span.begin - first), span.bytes, head, microseconds(span.finish - first))
end

local function action_line(rank, id, event, first)
  if geometry.is_transfer { event.action } then return message(rank, id, event, first) end
  return complete(rank, 0, event.action, event.begin - first, event.finish - first,
    ('"micro_batch":%d,"chunk":%d,"waited":%s'):format(event.micro_batch, event.chunk,
      microseconds(event.waited or 0)))
end

local function earliest(records)
  local first = math.huge
  for _, record in ipairs(records) do
    for _, phase in ipairs(record.phases) do first = math.min(first, phase.begin) end
    for _, op in ipairs(record.detail and record.detail.ops or {}) do first = math.min(first, op.begin) end
    for _, events in ipairs(record.runs) do
      for _, event in ipairs(events) do first = math.min(first, event.begin) end
    end
  end
  return first
end

-- Moves the times of a rank to the clock of rank 0.
local function correct(record)
  local by = -(record.clock and record.clock.offset or 0)
  if by == 0 then return end
  local function move(list)
    for _, e in ipairs(list or {}) do e.begin, e.finish = e.begin + by, e.finish + by end
  end
  move(record.phases)
  for _, events in ipairs(record.runs) do move(events) end
  move(record.disk)
  if record.detail then detail.move(record.detail, by) end
end

local function said_clock(clock)
  if not clock or clock.error == 0 then return "" end
  return (", clock %+.6f s to %.1f us"):format(clock.offset, 1e6 * clock.error)
end

--- Returns the text of a trace file. records: a list of { rank, stage, phases = list of { name, begin, finish }, runs =
-- list of lists of events of core.executor_events, disk = what tier:recorded returns, or nil, detail = what
-- trace_detail.take returns, or nil, clock = { offset, error } of ganymede.observe.clocks, or nil }, with times in
-- seconds on the clocks of the ranks.
function trace.chrome(records)
  for _, record in ipairs(records) do correct(record) end
  local lines, first = {}, earliest(records)
  local function add(line) lines[#lines + 1] = line end
  for _, record in ipairs(records) do
    local rank, id = record.rank, 0
    add(named(rank, 0, "process_name", ("rank %d, stage %d%s"):format(rank, record.stage, said_clock(record.clock))))
    add(named(rank, 0, "thread_name", "stage"))
    if #record.phases > 0 then add(named(rank, 1, "thread_name", "phases")) end
    for _, phase in ipairs(record.phases) do
      add(complete(rank, 1, phase.name, phase.begin - first, phase.finish - first))
    end
    for _, events in ipairs(record.runs) do
      for _, event in ipairs(events) do
        id = id + 1
        add(action_line(rank, id, event, first))
      end
    end
    if #(record.disk or {}) > 0 then add(named(rank, 2, "thread_name", "disk")) end
    for _, span in ipairs(record.disk or {}) do
      id = id + 1
      if span.begin >= first then add(disk_line(rank, id, span, first)) end
    end
    for _, line in ipairs(record.detail and detail.lines(record.detail, rank, first) or {}) do add(line) end
  end
  return "[\n" .. table.concat(lines, ",\n") .. "\n]\n"
end

-- ---------------------------------------------------------------- the recorder

local Recorder = {}
Recorder.__index = Recorder

local attach_options = {
  steps = { type = "integer", min = 1, default = 20, doc = "the number of updates that are recorded" },
}

local IN_FULL = 3 -- the step that is recorded in full: the second one may be that of --step-file

-- Begins the record of the step that is there in full. A phase of that step has begun: before it, the step file of the
-- step before may still be written, and there is one record at a time.
local function begin_in_full(self)
  if self.in_full == nil and self.updates == math.min(IN_FULL, self.steps) - 1 then
    detail.begin()
    self.in_full = true
  end
end

local function end_in_full(self)
  if not self.in_full then return end
  self.detail, self.in_full = detail.take(), false
  if not self.detail then log.warn "trace: no step is there in full, because another record was made meanwhile" end
end

-- Notes the change from one phase to the next. An update ends when the loop leaves that phase.
function Recorder:enter(name)
  local now, phase = core.executor_clock(), self.phase
  if phase then
    phase.finish = now
    self.phases[#self.phases + 1] = phase
    if phase.name == "update" and name ~= "update" then
      self.updates = self.updates + 1
      end_in_full(self)
    end
  end
  if name ~= "update" and name ~= "other" then begin_in_full(self) end
  self.phase = { name = name, begin = now }
  if self.updates >= self.steps then self:stop() end
end

-- Takes the events of the run that has just ended, if there was one, and returns the results it is given.
function Recorder:take(forward_only, ...)
  local executor = self.engine.executor
  local events = self.recording and executor and core.executor_events(executor) or {}
  if #events > 0 and events[1].begin > self.last then
    self.last = events[1].begin
    self.runs[#self.runs + 1] = events
    if not forward_only or #self.runs == 1 then self.shown, self.shown_forward = #self.runs, forward_only or false end
  end
  return ...
end

--- Begins to record what the engine does, until opt.steps updates have been made or the trace is written.
function trace.attach(engine, opt)
  opt = options.check("trace.attach", attach_options, opt, 2)
  local inner = engine.schedule
  local self = setmetatable({ engine = engine, inner = inner, steps = opt.steps, updates = 0, phases = {}, runs = {},
                              disk = {}, last = -math.huge, recording = true }, Recorder)
  engine.schedule = setmetatable({
    forward_backward_step = function(_, e, iter, run_opt)
      return self:take(run_opt and run_opt.forward_only, inner:forward_backward_step(e, iter, run_opt))
    end,
  }, { __index = inner })
  ranks.on_phase = function(name) self:enter(name) end
  if engine.tier then engine.tier:record(true) end
  if opt.steps == 1 then begin_in_full(self) end
  return self
end

--- Ends recording and keeps what was recorded. A second call does nothing.
function Recorder:stop()
  if not self.recording then return end
  self.recording, self.engine.schedule, ranks.on_phase = false, self.inner, nil
  end_in_full(self)
  local tier = self.engine.tier
  if not tier then return end
  tier:record(false)
  local spans, lost = tier:recorded()
  self.disk = spans
  if lost > 0 then log.info("trace: no memory for %d transfers of the disk", lost) end
end

-- Whether this rank represents its stage in a picture: it is the first along every other axis.
local function stands_for_stage()
  for _, axis in ipairs(core.mesh()) do
    if axis.name ~= "pipeline" and axis.coordinate > 0 then return false end
  end
  return true
end

local function all_records(self)
  local own = { rank = core.rank(), stage = (ranks.stage()), first = stands_for_stage(),
    phases = json.array(self.phases), runs = json.array(self.runs),
    disk = json.array(self.disk), detail = self.detail, clock = clocks.offsets(core.executor_clock)[core.rank() + 1] }
  for _, events in ipairs(self.runs) do json.array(events) end
  local records = {}
  for i, text in ipairs(ranks.texts(json.encode(own))) do
    records[i] = ranks.is_first() and json.decode(text, "the trace of a rank") or nil
  end
  return records
end

-- Returns a picture of the last recorded step with a backward pass.
local function picture(self, records)
  local events, most = {}, 0
  for _, record in ipairs(records) do
    if record.first then events[record.stage + 1] = record.runs[self.shown or 0] end
  end
  if #events == 0 then
    failure(2, "a trace as a picture shows a step of a pipeline schedule, and none has run; name the file .json")
  end
  for _, event in ipairs(events[1]) do most = math.max(most, event.micro_batch) end
  return trace.svg(self.inner:order_for(#events, most, self.shown_forward), events)
end

--- Ends recording and writes the file on rank 0: a picture of one step if its name ends with .svg, otherwise Chrome's
-- events. COLLECTIVE over all ranks.
function Recorder:write(path)
  self:stop()
  local records = all_records(self)
  if not ranks.is_first() then return end
  core.write_whole(path, path:match "%.svg$" and picture(self, records) or trace.chrome(records))
end

signature.export("recorder", Recorder, ":")
return missing.guard("trace", signature.export("trace", trace, nil, nil, { attach = attach_options }))
