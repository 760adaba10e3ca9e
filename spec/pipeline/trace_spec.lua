-- Traces: what the events of a step come to, as numbers, as Chrome's events and as a picture. The events are those of
-- a simulated step whose times are known, moved and scaled as a clock would.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local pipeline = require "ganymede.schedules.pipeline"
local ranks = require "ganymede.job.ranks"
local shell = require "spec.support.shell"
local trace = require "ganymede.observe.trace"

local START, SECONDS = 5000.25, 0.002 -- of the clock, and of a unit of the simulation

-- What core.executor_events would say on each stage.
local function events_of(schedule, played)
  local events = {}
  for i, actions in ipairs(schedule.actions) do
    events[i] = {}
    for k, action in ipairs(actions) do
      local is_transfer = action[1] == "send" or action[1] == "receive"
      events[i][k] = {
        action = action[1], thing = is_transfer and action[2] or nil, micro_batch = action[is_transfer and 3 or 2],
        chunk = action[is_transfer and 4 or 3], peer = is_transfer and action[5] or nil, waited = 0.5 * SECONDS,
        begin = START + SECONDS * played.begins[i][k], finish = START + SECONDS * played.finishes[i][k],
      }
    end
  end
  return events
end

local function step(name, costs)
  local schedule = pipeline.build(name, { stages = 3, micro_batches = 5 })
  local played = pipeline.simulate(schedule, costs)
  return schedule, played, events_of(schedule, played)
end

-- Seconds from the first computing of all to the last, and of the stage for which that is longest.
local function spans(events)
  local first, last, longest = math.huge, 0, 0
  for _, list in ipairs(events) do
    local from, to = math.huge, 0
    for _, event in ipairs(list) do
      if event.peer == nil then from, to = math.min(from, event.begin), math.max(to, event.finish) end
    end
    first, last, longest = math.min(first, from), math.max(last, to), math.max(longest, to - from)
  end
  return last - first, longest
end

local function near(wanted, got)
  assert.is_true(math.abs(wanted - got) < 1e-6, ("%g, wanted %g"):format(got, wanted))
end

describe("a measured step", function()
  it("comes to the numbers of the simulation whose times it has", function()
    for _, name in ipairs { "gpipe", "1f1b", "zb-h2", "zb-v" } do
      local schedule, played, events = step(name, { forward = 1.25, backward_input = 1, backward_weight = 0.75 })
      local measured = trace.measured(schedule, events)
      near(played.bubble, measured.bubble)
      near(played.bubble_with_barrier, measured.bubble_with_barrier)
      near(1e3 * SECONDS * played.ideal, measured.ideal) -- milliseconds
      local time, span = spans(events)
      near(1e3 * time, measured.time)
      near(1e3 * span, measured.span)
      near(1e3 * SECONDS * 1.25, measured.unit)
      assert.same(played.live, measured.live)
      near(1e3 * SECONDS * (played.begins[3][2] - played.begins[1][1]), measured.begins[3][2] - measured.begins[1][1])
    end
  end)

  it("must be one of that schedule", function()
    local schedule, _, events = step "1f1b"
    table.remove(events[2])
    assert.error_matches(function() trace.measured(schedule, events) end, "stage 1 did %d+ actions, and the schedule")
  end)

  it("is drawn as a schedule is, in milliseconds", function()
    local schedule, played, events = step "zb-h1"
    local svg = trace.svg(schedule, events)
    assert.matches("zb%-h1, 3 stages, 5 micro%-batches, measured: bubble", svg)
    assert.matches(">ms</text>", svg)
    local _, drawn = svg:gsub("<title>", "")
    assert.equal(3 * 5 * 3, drawn) -- forward, backward_input, backward_weight of 5 micro-batches on 3 stages
    assert.is_truthy(svg:find(("bubble %.4g %% of the ideal time"):format(100 * played.bubble), 1, true))
  end)
end)

describe("Chrome's events", function()
  local function chrome(schedule, events)
    local records = {}
    for i in ipairs(schedule.actions) do
      records[i] = { rank = i - 1, stage = i - 1, runs = { events[i] },
                     phases = { { name = "forward", begin = START - 1, finish = START } } }
    end
    return json.decode(trace.chrome(records), "trace")
  end

  it("are every computing with its micro-batch, in microseconds from the first event on", function()
    local schedule, played, events = step "interleaved"
    local found, expected = {}, 0
    for _, event in ipairs(chrome(schedule, events)) do
      if event.ph == "X" and event.tid == 0 then
        local key = ("%d %s %d %d"):format(event.pid, event.name, event.args.micro_batch, event.args.chunk)
        assert.is_nil(found[key])
        found[key] = event
      end
    end
    for i, actions in ipairs(schedule.actions) do
      for k, action in ipairs(actions) do
        local event = found[("%d %s %s %s"):format(i - 1, action[1], action[2], action[3])]
        if action[1] == "forward" or action[1] == "backward" then
          expected = expected + 1
          -- phases begin one second earlier; times have one digit behind the point
          assert.is_true(math.abs(event.ts - 1e6 * (1 + SECONDS * played.begins[i][k])) < 0.11)
          assert.is_true(math.abs(event.dur - 1e6 * SECONDS * (played.finishes[i][k] - played.begins[i][k])) < 0.11)
          assert.equal(1e6 * 0.5 * SECONDS, event.args.waited)
        end
      end
    end
    assert.equal(3 * 5 * 2 * 2, expected)
  end)

  it("are messages that begin and end, phases, and names of ranks", function()
    local schedule, _, events = step "1f1b"
    local count = { M = 0, b = 0, e = 0, phase = 0 }
    local open = {}
    for _, event in ipairs(chrome(schedule, events)) do
      if event.ph == "X" then
        if event.tid == 1 then
          count.phase = count.phase + 1
          assert.same({ 0, 1e6, "forward" }, { event.ts, event.dur, event.name })
        end
      else
        count[event.ph] = count[event.ph] + 1
        if event.ph == "b" then open[event.id] = event end
        if event.ph == "e" then assert.is_true(event.ts >= open[event.id].ts and event.name == open[event.id].name) end
      end
    end
    -- 2 borders, crossed by 5 activations and 5 gradients, each sent and received
    assert.same({ M = 9, b = 40, e = 40, phase = 3 }, count)
  end)
end)

describe("the recorder", function()
  local folder
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  local function phases_in(path)
    local names = {}
    for _, event in ipairs(json.decode(shell.read(path), "trace")) do
      if event.tid == 1 and event.ph == "X" then
        names[#names + 1] = event.name
        assert.is_true(event.dur >= 0)
      end
    end
    return table.concat(names, " ")
  end

  local function turn(engine)
    local output, label, loss = engine.schedule:forward_backward_step(engine, "batches", {})
    for _, phase in ipairs { "forward", "backward", "update", "other" } do ranks.phase(phase) end
    return output, label, loss
  end

  it("takes the phases of so many updates, passes results on and leaves no trace of itself", function()
    local schedule = { forward_backward_step = function(_, _, iter) return iter, nil, 3 end, num_microbatches = 7 }
    local engine = { schedule = schedule }
    local recorder = trace.attach(engine, { steps = 2 })
    assert.equal(7, engine.schedule.num_microbatches)
    for _ = 1, 4 do assert.same({ "batches", nil, 3 }, { turn(engine) }) end
    assert.equal(schedule, engine.schedule)
    assert.is_nil(ranks.on_phase)
    recorder:write(folder .. "/trace.json")
    assert.equal("forward backward update other forward backward update", phases_in(folder .. "/trace.json"))
    assert.error_matches(function() recorder:write(folder .. "/trace.svg") end, "none has run")
  end)

  it("is stopped by writing", function()
    local engine = { schedule = { forward_backward_step = function() end } }
    local recorder = trace.attach(engine)
    turn(engine)
    recorder:write(folder .. "/short.json")
    assert.is_nil(ranks.on_phase)
    assert.equal("forward backward update", phases_in(folder .. "/short.json"))
  end)
end)

describe("core.sleep", function()
  it("lets at least so much time pass, on the clock of the events", function()
    local begin = core.executor_clock()
    core.sleep(0.02)
    core.sleep(0)
    assert.is_true(core.executor_clock() - begin >= 0.02)
    assert.error_matches(function() core.sleep(-1) end, "a number of seconds was expected")
  end)
end)
