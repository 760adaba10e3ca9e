--- Batch norm in training: on any ranks it is that of the whole batch, and its running numbers are counted once, are in
-- checkpoints, and load into any layout.
--
-- Checkpoints hold weights, moments, and the running mean and variance of both norms. In f64 only the order of sums
-- differs; 6 steps of AdamW make 1e-9 of that.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/images_spec.lua looks at that code
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

-- No bias and no scale stands before a norm that takes it out again: its gradient would be rounding.
local recipe = [[
return {
  name = "norms", seed = 5, dtype = "f64",
  model = { type = "Sequential", layers = {
    { type = "AvgPool2d", kernel = 4 }, { type = "BatchNorm2d", channels = 1, affine = false, momentum = false },
    { type = "Flatten" }, { type = "Linear", inputs = 49, outputs = 12, bias = false },
    { type = "BatchNorm1d", channels = 12 }, { type = "ReLU" }, { type = "Linear", inputs = 12, outputs = 10 } } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-2 },
  epochs = 1,
}
]]
local STEPS = 6

-- One after the other in folders of `home`, each with a checkpoint at its end.
local home, runs
local function run(ranks, set, folder, flags, steps)
  if not folder then
    runs = runs + 1
    folder = ("%s/%d"):format(home, runs)
    shell.run("mkdir " .. shell.quote(folder))
  end
  steps = steps or STEPS
  local words = { "checkpoint={interval=" .. steps .. "}", unpack(set or {}) }
  local stats = job.run_in(folder, recipe, ranks, { steps = steps, set = words,
    flags = { "--no-eval", "--out", "run", unpack(flags or {}) } })
  stats.folder, stats.weights = folder, ("%s/run/checkpoints/step-%08d"):format(folder, steps)
  return stats
end

local function agree(mine, truth, limit)
  assert.is_true(job.largest_difference(truth, mine, STEPS) <= limit)
  local share, name = stored.difference(mine.weights, truth.weights)
  assert.is_true(share <= limit, ("%s differs by %g"):format(tostring(name), share))
end

describe("batch norm in training #ranks", function()
  local one
  setup(function()
    home, runs = shell.temporary_folder(), 0
    one = run(1)
  end)
  teardown(function() shell.remove(home) end)

  for _, ranks in ipairs { 2, 3, 4 } do
    it(("on %d ranks is that of the whole batch"):format(ranks), function() agree(run(ranks), one, 1e-9) end)
  end

  it("is that of each of several batches of a step, on one rank and on two", function()
    local set = { "gradient_accumulation=2" }
    local alone = run(1, set)
    agree(run(2, set), alone, 1e-9)
    assert.is_true(job.largest_difference(one, alone, STEPS) > 1e-6)
  end)

  it("counts once what runs again in backward", function()
    agree(run(1, { "recompute={sections='2-6, 5'}" }), one, 0)
  end)

  it("in two stages is that of each micro-batch", function()
    local pieces = { "num_microbatches=2", "schedule={type='PipelineSchedule',order='1f1b'}" }
    local alone = run(1, pieces)
    agree(run(2, { "parallel={pipeline=2}", unpack(pieces) }), alone, 1e-9)
  end)

  it("goes on from a checkpoint of 2 ranks on 3", function()
    local first = run(2, nil, nil, nil, STEPS / 2)
    local second = run(3, nil, first.folder, { "--resume", "auto" })
    local share, name = stored.difference(second.weights, one.weights)
    assert.is_true(share <= 1e-9, ("%s differs by %g"):format(tostring(name), share))
  end)
end)
