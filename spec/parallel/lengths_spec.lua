--- Micro-batches of different shapes: sequences of another length in every piece and step, GPT in stages, against the
-- same batches on one rank without a schedule.
--
-- Stages agree on what crosses a border once for each shape of input; with variable_shapes every message says it. Both
-- must train alike, to the bit, and as one rank does to 1e-9 (pipelines.lua says why).
-- sanitizers: no, numbers of several ranks are compared; spec/pipeline looks at the same code
local assert = require "luassert"
local job = require "spec.parallel.job"

local recipe = [[
local gm = require "ganymede"
local micro_batches = require "ganymede.data.micro_batches"
require "ganymede.models"

local config = gm.launch { seed = 3, dtype = "f64", parallel = {}, order = "1f1b", variable = false, plain = false,
                           steps = 10 }
local schedule = gm.registry.schedules:build(config.plain and { type = "NonPipelineSchedule" } or
  { type = "PipelineSchedule", num_microbatches = 4, order = config.order, variable_shapes = config.variable })
local model = gm.registry.models:build { type = "GPT", vocabulary = 61, sequence_length = 14, width = 16, depth = 6,
                                         heads = 2, dropout = 0.1 }
if not config.plain then model = gm.build_pipeline_model(model, { schedule = schedule }) end
local engine = gm.initialize {
  model = model, optimizer = { type = "AdamW", lr = 0.01 }, criterion = { type = "CrossEntropyLoss" },
  clip_grad_norm = 0.5, schedule = schedule,
}

-- Pieces of 2 samples, of lengths that change from step to step.
local function pieces(step)
  local x, y, targets = {}, {}, 0
  for k = 1, 4 do
    local n = 5 + (3 * step + 4 * k) % 9
    local ids = {}
    for i = 1, 2 * (n + 1) do ids[i] = (7 * i + k * k + 13 * step) % 61 end
    local text = gm.tensor(ids, { dtype = "i64", shape = { 2, n + 1 } })
    x[k], y[k] = text:narrow(2, 1, n):contiguous(), text:narrow(2, 2, n):contiguous()
    targets = targets + 2 * n
  end
  return x, y, targets
end

local function one_after_the_other(x, y, targets)
  engine:announce(targets, 4)
  for k = 1, 4 do
    engine:zero_grad()
    gm.scope(function() engine:backward(engine:criterion(engine(x[k]), y[k])) end)
  end
end

local function train(step)
  local x, y, targets = pieces(step)
  if config.plain then
    one_after_the_other(x, y, targets)
  else
    engine:zero_grad()
    local output, label = engine:execute_schedule(function() return micro_batches.List(x), micro_batches.List(y) end)
    assert(micro_batches.is_list(label) and #label == 4) -- what cannot be joined stays in pieces
    assert(output == nil or output[4]:size(2) == label[4]:size(2))
  end
  engine:step()
end

for step = 1, config.steps do gm.scope(train, step) end
]]

local function run(ranks, set) return job.run(recipe, ranks, { set = set }) end

local function headers_and_payload(stats)
  local bytes, calls = 0, 0
  for _, phase in ipairs { "forward", "backward" } do
    bytes = bytes + job.traffic(stats, { op = "send", axes = "pipeline", phase = phase })
    calls = calls + job.traffic(stats, { op = "send", axes = "pipeline", phase = phase }, "calls")
  end
  return bytes, calls
end

describe("micro-batches of different shapes #ranks", function()
  local serial

  local function agree(stats)
    serial = serial or run(1, { "plain=true" })
    local worst, at = job.largest_difference(serial, stats, 10)
    assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    assert.is_true(serial.loss[10] < serial.loss[1])
  end

  for _, case in ipairs {
    { 1, "{}", "1f1b" }, { 2, "{pipeline=2}", "1f1b" }, { 2, "{pipeline={size=2,chunks=2}}", "zb-v" },
    { 3, "{pipeline=3}", "zb-h1" },
  } do
    local ranks, parallel, order = unpack(case)
    it(("train as on one rank: %s, %s"):format(parallel, order), function()
      local set = { "parallel=" .. parallel, "order=" .. order }
      local told_once = run(ranks, set)
      agree(told_once)
      if ranks == 1 then return end
      set[#set + 1] = "variable=true"
      local told_always = run(ranks, set)
      assert.same(told_once.loss, told_always.loss)
      local bytes_once, calls_once = headers_and_payload(told_once)
      local bytes_always, calls_always = headers_and_payload(told_always)
      assert.is_true(bytes_always > bytes_once and calls_always > calls_once) -- 9 lengths, 40 pieces
    end)
  end
end)
