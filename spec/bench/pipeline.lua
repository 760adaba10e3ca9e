-- pipeline.lua - throughput, bubble and memory of every pipeline schedule, measured, beside what the simulator says.
--
--     ganymede run spec/bench/pipeline.lua -n 4 --threads 1                       parts that wait: 4 stages, any cores
--     ganymede run spec/bench/pipeline.lua -n 4 --threads 1 --set pictures=true   and docs/pictures/trace_*
--     ganymede run spec/bench/pipeline.lua -n 2 --threads 1 --set work=compute --set parallel.pipeline=2
--                                                                                 parts that compute, by the engine
--
-- Waiting parts (spec/bench/waiting.lua) take `forward`, `input` and `weight` milliseconds a stage and need no core, so
-- stages do not take time from each other where cores are fewer than ranks. Computing parts are linear layers, f32
-- (equal products in forward and both halves of backward); ranks should have a core each. Rounds go through all
-- schedules in turn. Printed by rank 0: medians of the milliseconds of a step, the throughput as a ratio to 1F1B's, the
-- bubble as a share of the ideal time, measured and as ganymede.schedules.simulate says it for the measured times of
-- each part and of messages, and the (micro-batch, chunk) pairs held by each rank.
local gm = require "ganymede"
local core = require "ganymede.core"
local simulate = require "ganymede.schedules.simulate"
local trace = require "ganymede.observe.trace"
local waiting = require "waiting"

local config = gm.launch {
  work = "wait", micro_batches = 8, rounds = 5, forward = 10, input = 10, weight = 10, -- milliseconds of waiting parts
  layers = 16, width = 512, rows = 128, pictures = false,
  parallel = { pipeline = 4 },
}
local stages = core.world()
local everybody = core.comm_group()

-- ---------------------------------------------------------------- what runs: { schedule, step() -> events, peak }

local function computing(order)
  local schedule = gm.PipelineSchedule { num_microbatches = config.micro_batches, order = order }
  local layers = {}
  for i = 1, config.layers do layers[i] = gm.nn.Linear(config.width, config.width) end
  local engine = gm.initialize {
    model = gm.build_pipeline_model(layers, { schedule = schedule, split = "uniform" }), schedule = schedule,
    optimizer = { type = "SGD", lr = 1e-3 },
    criterion = function(output, target) return (output - target):square():mean() end,
  }
  local shape = { config.micro_batches * config.rows, config.width }
  local x, y = gm.uniform(shape, { seed = 1 }):keep(), gm.uniform(shape, { seed = 2 }):keep()
  engine:train()
  local function step()
    local given = false
    gm.scope(function()
      engine:zero_grad()
      engine:execute_schedule(function()
        if given then return nil end
        given = true
        return x, y
      end, { return_output_label = false })
      engine:step()
    end)
    return core.executor_events(engine.executor), core.executor_peak(engine.executor)
  end
  return { schedule = schedule:order_for(stages, config.micro_batches, false), step = step }
end

local function idle(order)
  local times = { config.forward / 1e3, config.input / 1e3, config.weight / 1e3 }
  local pipeline = waiting.pipeline(order, { micro_batches = config.micro_batches, times = times })
  return { schedule = pipeline.schedule, step = function() return pipeline:step() end }
end

-- ---------------------------------------------------------------- measuring

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)]
end

-- One step of a contestant, by the clock from barrier to barrier; the events of all ranks.
local function measure(one)
  core.comm_barrier(everybody)
  local began = core.now()
  local events, peak = one.step()
  core.comm_barrier(everybody)
  local seconds = core.now() - began
  one.events, one.peaks = waiting.gather(events, peak)
  one.seconds[#one.seconds + 1] = seconds
  one.bubbles[#one.bubbles + 1] = trace.measured(one.schedule, one.events).bubble
  table.insert(one.all, one.events)
end

-- Medians of the seconds of one kind of computing, by part; a whole backward pass counts as two equal halves.
local function costs_of(one, kind)
  local by_part, factor = {}, 1
  for _, events in ipairs(one.all) do
    for i, list in ipairs(events) do
      for _, event in ipairs(list) do
        local fits = event.action == kind
        if kind ~= "forward" and event.action == "backward" then fits, factor = true, 0.5 end
        if fits then
          local part = one.schedule.parts[i][event.chunk]
          by_part[part] = by_part[part] or {}
          table.insert(by_part[part], event.finish - event.begin)
        end
      end
    end
  end
  for part, list in ipairs(by_part) do by_part[part] = factor * median(list) end
  return by_part
end

-- Median seconds from when a send was begun until the message was there.
local function transfer_of(one)
  local times = {}
  for _, events in ipairs(one.all) do
    local begun = {}
    local function key(e, from, to)
      local number = ("%d %d %s %d"):format(from, to, e.thing, e.micro_batch)
      begun[number] = begun[number] or {}
      return begun[number]
    end
    for i, list in ipairs(events) do
      for _, e in ipairs(list) do
        if e.action == "send" then table.insert(key(e, i - 1, e.peer), e.begin) end
      end
    end
    for i, list in ipairs(events) do
      for _, e in ipairs(list) do
        -- two chunks may cross the same border: in the order in which they were sent
        if e.action == "receive" then times[#times + 1] = e.finish - table.remove(key(e, e.peer, i - 1), 1) end
      end
    end
  end
  return #times > 0 and math.max(median(times), 0) or 0
end

local function predicted(one)
  return simulate(one.schedule, {
    forward = costs_of(one, "forward"), backward_input = costs_of(one, "backward_input"),
    backward_weight = costs_of(one, "backward_weight"), transfer = transfer_of(one),
  }).bubble
end

-- ---------------------------------------------------------------- the run

local make = config.work == "compute" and computing or idle
local orders, found = { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" }, {}
for i, order in ipairs(orders) do
  found[i] = make(order)
  found[i].seconds, found[i].bubbles, found[i].all = {}, {}, {}
  found[i].step() -- the first tells shapes
end
for _ = 1, config.rounds do
  for _, one in ipairs(found) do measure(one) end
end

local function draw()
  for i, order in ipairs(orders) do
    local one, records = found[i], {}
    for rank, events in ipairs(one.events) do
      records[rank] = { rank = rank - 1, stage = rank - 1, phases = {}, runs = { events } }
    end
    local path = "docs/pictures/trace_" .. order:gsub("-", "_")
    if order ~= "gpipe" and order ~= "zb-h2" then
      core.write_whole(path .. ".svg", trace.svg(one.schedule, one.events))
      core.write_whole(path .. ".json", trace.chrome(records))
    end
  end
end

local function report()
  local base = median(found[2].seconds)
  print(("%d stages, %d micro-batches, parts that %s; medians of %d steps"):format(stages, config.micro_batches,
    config.work, config.rounds))
  print(("%-12s %9s %10s %10s %10s   %s"):format("", "step", "to 1f1b", "bubble", "simulated", "held, by rank"))
  for i, order in ipairs(orders) do
    local one = found[i]
    print(("%-12s %6.1f ms %10.3f %8.1f %% %8.1f %%   %s"):format(order, 1e3 * median(one.seconds),
      base / median(one.seconds), 100 * median(one.bubbles), 100 * predicted(one), table.concat(one.peaks, " ")))
  end
end

if core.rank() == 0 then
  report()
  if config.pictures then draw() end
end
