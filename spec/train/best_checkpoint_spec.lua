--- CheckpointHook { best = ... } keeps the checkpoint of the best evaluation beside the last ones, also in a run that
-- goes on.
local checkpoint = require "ganymede.checkpoint"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local snapshot = require "ganymede.checkpoint.snapshot"
local support = require "spec.train.support"

local folder

-- A test metric that takes these values by the step of the trainer.
local function metric(values)
  return { priority = 1, after_test_epoch = function(_, trainer)
    trainer.metrics.test.score = values[math.min(trainer.step, #values)]
  end }
end

local function steps_kept()
  local steps = {}
  for i, entry in ipairs(checkpoint.list(folder)) do steps[i] = entry.step end
  return steps
end

-- Trains so many epochs of one step with these values of the metric -> steps of the checkpoints, what was said, the
-- trainer. goes_on: from the last checkpoint.
local function train(epochs, values, opt, goes_on)
  local loader = support.loader { batches = 1, size = 4, width = 3, classes = 3 }
  local engine, batches, test = gm.initialize {
    model = support.model { width = 3, classes = 3 }, criterion = { type = "CrossEntropyLoss" },
    train_dataloader = loader, test_dataloader = loader, optimizer = { type = "SGD", lr = 0.1 },
  }
  local trainer, said = gm.trainer(engine), {}
  trainer.sink = function(text) said[#said + 1] = text end
  local hook = { type = "CheckpointHook", directory = folder }
  for name, value in pairs(opt) do hook[name] = value end
  trainer:prepare { train_dataloader = batches, test_dataloader = test, epochs = epochs,
    hooks = { metric(values), hook } }
  local list = checkpoint.list(folder)
  if goes_on then snapshot.restore(trainer, list[#list].path) end
  trainer:fit()
  return steps_kept(), table.concat(said, "\n"), trainer
end

describe("CheckpointHook with best", function()
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local nan = 0 / 0
  for name, case in pairs {
    ["the largest"] = { { 1, 5, 2, 4, 5, 3 }, { best = "score" }, 2 },
    ["the smallest"] = { { 3, 2, 0.5, 4, 5, 3 }, { best = "score", mode = "min" }, 3 },
    ["never NaN"] = { { nan, 1, nan, 0, nan, nan }, { best = "score", background = false }, 2 },
    ["the last"] = { { 1, 2, 3, 4, 5, 6 }, { best = "score" }, 6 },
  } do
    it("keeps " .. name, function()
      case[2].keep_last = 1
      local steps, said = train(6, case[1], case[2])
      assert.same({ case[3] == 6 and 5 or case[3], 6 }, steps) -- what was best before goes with the next save
      assert.matches(("the best score was %%S+; its checkpoint is that of step %d"):format(case[3]), said)
    end)
  end

  it("saves at evaluations that no interval reaches", function()
    assert.same({ 2, 6 }, (train(6, { 1, 5, 2, 4, 5, 3 }, { best = "score", interval = 100, keep_last = 1 })))
  end)

  it("knows the best one of the run before", function()
    local opt = { best = "score", keep_last = 1 }
    train(4, { 1, 5, 2, 4 }, opt)
    local steps = train(6, { 0, 0, 0, 0, 4.5, 4.9 }, opt, true)
    assert.same({ 2, 6 }, steps)
    local _, said, trainer = train(8, { 0, 0, 0, 0, 0, 0, 9, 1 }, opt, true)
    assert.matches("step 7", said)
    assert.equal(8, trainer.step)
  end)

  it("refuses metrics that are not measured, and a mode of nothing", function()
    assert.error_matches(function() train(1, { 1 }, { best = "scores" }) end,
      "CheckpointHook: evaluation has no metric 'scores'; there are loss, score")
    assert.error_matches(function() train(1, { 1 }, { mode = "min" }) end, "mode is for best")
  end)
end)
