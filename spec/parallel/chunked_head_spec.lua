--- Heads in pieces train as whole heads do: GPT and BERT, on one rank, over data, with the vocabulary cut, in stages.
-- What is run, and why these limits: spec/parallel/equality.lua.
-- sanitizers: no, numbers of several ranks are compared; spec/memory and spec/train look at the same code
local assert = require "luassert"
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"
local pipelines = require "spec.parallel.pipelines"
local tables = require "spec.support.tables"

local STEPS = job.steps(20)
local wholes = {}

-- With accuracies, measured while the weights change and after.
local function measured(recipe, kind, length)
  return job.changed(recipe, { "epochs = ", 'hooks = { { type = "AccuracyHook" } }, epochs = ' },
    { "batch_size = 10", ([[test = { type = "%s", path = "/usr/share/common-licenses/BSD", sequence_length = %d },
      batch_size = 10]]):format(kind, length) })
end

local recipes = {
  gpt = measured(equality.recipes.gpt, "Text", 31), bert = measured(equality.recipes.bert, "TextPairs", 31),
  stages = measured(pipelines.recipes.gpt, "Text", 30), bert_stages = measured(pipelines.recipes.bert, "TextPairs", 30),
}

local function run(model, ranks, set)
  return job.run(recipes[model], ranks, { steps = STEPS, set = tables.joined({ "dtype=f64" }, set) })
end

-- On one rank, the head whole.
local function whole(model)
  local plain = model:find "stages" and { "num_microbatches=1", "schedule=NonPipelineSchedule" } or {}
  wholes[model] = wholes[model] or run(model, 1, plain)
  return wholes[model]
end

-- Pieces of 17 rows: no batch, micro-batch or block is a multiple.
local function check(model, ranks, set)
  local got = run(model, ranks, tables.joined({ "model.head_chunk=17" }, set or {}))
  assert.equal(STEPS, #got.loss)
  local worst, at = job.largest_difference(whole(model), got, STEPS)
  assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
  assert.is_true(got.loss[STEPS] < got.loss[1])
  for part, metrics in pairs(whole(model).metrics) do
    for name, value in pairs(metrics) do -- the same numbers of right answers
      assert.near(value, got.metrics[part][name], 1e-9, part .. " " .. name)
    end
  end
  assert.is_true(got.metrics.train.accuracy > 0)
end

describe("training with a head in pieces #ranks", function()
  it("gpt on one rank, in micro-batches of two steps", function()
    check("gpt", 1)
    local set = { "gradient_accumulation=2" }
    local worst = job.largest_difference(run("gpt", 1, set), run("gpt", 1, { "model.head_chunk=17", set[1] }), STEPS)
    assert.is_true(worst <= 1e-9, worst)
  end)

  it("bert over data", function() check("bert", 2, { "parallel={data=2}" }) end)
  it("gpt, the vocabulary cut", function() check("gpt", 2, { 'parallel={tensor={size=2,mode="1d"}}' }) end)
  it("bert in two stages", function() check("bert_stages", 2, { "parallel={pipeline=2}" }) end)
  it("gpt in two stages, zb-h1", function()
    check("stages", 2, { "parallel={pipeline=2}", 'schedule={type="PipelineSchedule",order="zb-h1"}' })
  end)
end)
