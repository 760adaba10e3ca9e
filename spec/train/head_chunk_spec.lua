--- A head in pieces under the trainer: losses, accuracies and predictions of the whole head, whatever the batches come
-- in; what users see of it; what memory holds.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local support = require "spec.train.support"

local CLASSES, LENGTH = 37, 7

-- 6 batches of 4 sequences; the last of 7 targets is ignored.
local function loader()
  local made = support.loader { batches = 6, size = 4, width = 1, classes = CLASSES }
  made.x = numeric.integers({ 24, LENGTH }, function(i) return 5 * i % 11 end):keep()
  made.y = numeric.integers({ 24, LENGTH }, function(i)
    return i % LENGTH == LENGTH - 1 and -100 or 5 * (i + 1) % 11
  end):keep()
  return made
end

local function gpt(chunk)
  core.set_seed(3)
  return models.GPT { vocabulary = CLASSES, sequence_length = LENGTH, width = 16, depth = 1, heads = 2, std = 0.3,
                      dropout = 0.1, head_chunk = chunk }
end

-- opt: chunk, and what gm.initialize takes -> engine, trainer after two epochs
local function trained(opt, hooks)
  local given = { model = gpt(opt.chunk), criterion = { type = "CrossEntropyLoss", label_smoothing = 0.1 },
                  optimizer = { type = "AdamW", lr = 0.01 }, train_dataloader = loader() }
  for key, value in pairs(opt) do
    if key ~= "chunk" then given[key] = value end
  end
  local engine, train = gm.initialize(given)
  local trainer = gm.trainer(engine)
  trainer.sink = function() end
  trainer:fit { train_dataloader = train, test_dataloader = train, epochs = 2, hooks = hooks }
  return engine, trainer
end

describe("a trainer with a head in pieces", function()
  local before
  setup(function() before = gm.default_dtype() gm.set_default_dtype "f64" end)
  teardown(function() gm.set_default_dtype(before) end)

  local ways = {
    { "a batch a step", {} },
    { "batches of a step", { gradient_accumulation = 2 } },
    { "micro-batches", { num_microbatches = 3, schedule = { type = "PipelineSchedule" } } },
  }
  for _, way in ipairs(ways) do
    it("has the losses and accuracies of the whole one: " .. way[1], function()
      local seen = {}
      for i, chunk in ipairs { 0, 5 } do
        local opt = { chunk = chunk }
        for key, value in pairs(way[2]) do opt[key] = value end
        local _, trainer = trained(opt, { gm.hooks.AccuracyHook() })
        local predicted = gm.scope(function()
          return numeric.flat(trainer:predict(loader().x:narrow(1, 1, 2)))
        end)
        seen[i] = { trainer.losses, { trainer.metrics.test.loss }, predicted,
                    { trainer.metrics.train.accuracy, trainer.metrics.test.accuracy } }
      end
      for k = 1, 3 do numeric.agree(seen[2][k], seen[1][k], 1e-9) end
      assert.same(seen[1][4], seen[2][4]) -- numbers of right answers, while the weights change
      assert.is_true(seen[1][4][1] > 0.05 and seen[1][4][1] < seen[1][4][2], "nothing was learned")
    end)
  end

  it("tells hooks what the output is, and refuses logits of weights that are gone", function()
    local said = {}
    trained({ chunk = 5 }, { { after_train_iter = function(_, _, output)
      said[1] = said[1] or select(2, pcall(function() return output:size(1) end))
      said[2] = said[2] or select(2, pcall(function() return output:logits() end))
      said[3] = said[3] or select(2, pcall(gm.ops.softmax, output))
    end } })
    assert.is_truthy(said[1]:find("'size' of a Projection, the output of a head in pieces (head_chunk)", 1, true))
    assert.is_truthy(said[2]:find("have been updated since it was made; use it before the update", 1, true), said[2])
    assert.is_truthy(said[3]:find("x must be a tensor; got a Projection", 1, true), said[3])
  end)

  it("gives logits, with gradients, to who asks before", function()
    gm.scope(function()
      local whole, pieces, x = gpt(0):eval(), gpt(5):eval(), loader().x:narrow(1, 1, 2)
      local logits = pieces(x):logits()
      logits:square():sum():backward()
      local wanted = whole(x)
      numeric.agree(logits, wanted, 1e-12)
      wanted:square():sum():backward()
      numeric.agree(pieces.tokens.weight:grad(), whole.tokens.weight:grad(), 1e-12)
    end)
  end)
end)
