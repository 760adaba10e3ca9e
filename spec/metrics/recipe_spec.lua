--- Metrics in recipes: the setting `metrics`, MetricsHook, --stats; the same on one rank, on two that share the
-- samples, and on two stages of a pipeline.
-- sanitizers: no, whole runs are compared; spec/metrics/classes_spec.lua looks at the same code
local gm = require "ganymede"
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

-- 50 points in batches of 8: the last has 2. Between layers without a rate nothing changes, so all runs test one model.
local recipe = [[
return {
  name = "points", seed = 5, dtype = "f64", steps = 9,
  model = { type = "MLP", inputs = 6, hidden = { 8, 8 }, classes = 3 },
  data = { train = { type = "Synthetic", length = 50, shape = { 6 }, classes = 3 },
    test = { type = "Synthetic", length = 50, shape = { 6 }, classes = 3 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 1e-12 },
  metrics = { { type = "Accuracy" }, { type = "TopK", k = 2 }, { type = "F1" }, { type = "AUC", class = 1 },
    { type = "AUC", class = 2, bins = 64, name = "coarse" }, { type = "Perplexity" }, { type = "ConfusionMatrix" } },
  hooks = { { type = "AccuracyHook" }, { type = "LossHook" },
    { type = "MetricsHook", train = true, metrics = { { type = "Recall", average = "micro", name = "recall" } } } },
}
]]

local keys = { "accuracy", "auc", "coarse", "f1", "loss", "perplexity", "recall", "top_2" }

describe("metrics of a recipe #ranks", function()
  local one
  setup(function() one = job.run(recipe, 1) end)

  it("are those of the hooks that measure the same", function()
    local test, train = one.metrics.test, one.metrics.train
    assert.equal(one.metrics.test.accuracy, test.recall) -- micro recall is accuracy
    assert.equal(train.accuracy, train.recall)
    assert.near(math.exp(test.loss), test.perplexity, 1e-12)
    local all, right = 0, 0
    for i, row in ipairs(test.confusion_matrix) do
      for j, n in ipairs(row) do all, right = all + n, right + (i == j and n or 0) end
    end
    assert.equal(50, all)
    assert.equal(right / 50, test.accuracy)
    assert.is_true(test.top_2 > test.accuracy and test.auc > 0 and test.auc < 1 and test.coarse > 0)
    assert.is_true(math.abs(test.coarse - test.auc) > 0)
  end)

  for name, setting in pairs { ["two ranks"] = "parallel.data=2", ["two stages"] = "parallel.pipeline=2" } do
    it("are the same on " .. name, function()
      local two = job.run(recipe, 2, { set = { setting, name == "two stages" and "num_microbatches=2" or nil } })
      assert.same(one.metrics.test.confusion_matrix, two.metrics.test.confusion_matrix)
      for _, key in ipairs(keys) do
        assert.near(one.metrics.test[key], two.metrics.test[key], 1e-12, key)
      end
      assert.near(one.metrics.train.recall, two.metrics.train.recall, 1e-15)
    end)
  end

  it("that have one name, and what is no metric, are refused", function()
    assert.error_matches(function()
      gm.hooks.MetricsHook { metrics = { { type = "AUC" }, { type = "AUC", bins = 8 } } }
    end, "two called 'auc'; give one of them another name")
    assert.error_matches(function() gm.hooks.MetricsHook { metrics = { { update = 1 } } } end, "no 'type'")
    local run = job.run(recipe, 1, { set = { "metrics.3.average=mean" }, code = 2 })
    assert.matches("metrics.3.average", run.err, 1, true)
    run = job.run(recipe, 1, { set = { "hooks.3.metrics.1.avrage=micro" }, code = 2 })
    assert.matches("hooks.3.metrics.1.avrage is no option (did you mean 'average'?) [Recall]", run.err, 1, true)
  end)

  -- 3 classes. What fits no output is known before the first step, also where another stage has the outputs.
  for _, case in ipairs { { "one rank", 1 }, { "two ranks", 2, "parallel.data=2" },
                          { "two stages", 2, "parallel.pipeline=2", "num_microbatches=2" } } do
    it("are refused before the first step where they do not fit: " .. case[1], function()
      local run = job.run(recipe, case[2], { set = { "metrics.2.k=4", case[3], case[4] }, code = 1 })
      assert.matches("TopK: k is 4, and outputs have 3 classes", run.err, 1, true)
      assert.is_nil((run.out .. run.err):find("step 1/9", 1, true))
    end)
  end

  it("that do not fit are refused by check", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/recipe.lua", recipe)
    local function check(set)
      return support.run(folder, { "check", "recipe.lua", "--set", "metrics.2.k=" .. set })
    end
    local good, bad = check(3), check(4)
    shell.remove(folder)
    assert.equal(0, good.code, good.err)
    assert.equal(2, bad.code)
    assert.matches("recipe.lua: TopK: k is 4, and outputs have 3 classes", bad.err, 1, true)
  end)
end)
