--- Steps of more than 64 batches or micro-batches, whose outputs a hook sees as one: ops.cat and ops.stack of so many.
local gm = require "ganymede"
local job = require "spec.parallel.job"
local ops = gm.ops

-- 130 tensors { { 3 i - 2, 3 i - 1, 3 i } }, i from 1.
local function rows()
  local list = {}
  for i = 1, 130 do list[i] = gm.tensor { { 3 * i - 2, 3 * i - 1, 3 * i } } end
  return list
end

describe("of 130 tensors", function()
  local function counted(y) return y:reshape({ -1 }):totable() end
  local all = {}
  for i = 1, 390 do all[i] = i end

  it("ops.cat has all numbers in order, and each its gradient", function()
    gm.scope(function()
      local list = rows()
      for _, x in ipairs(list) do x:requires_grad(true) end
      local y = ops.cat(list, 1)
      assert.same({ 130, 3 }, y:shape())
      assert.same(all, counted(y:detach()))
      ops.sum(y * y):backward()
      for i, x in ipairs(list) do assert.same({ 6 * i - 4, 6 * i - 2, 6 * i }, counted(x:grad())) end
    end)
  end)

  it("ops.stack has all numbers in order", function()
    gm.scope(function()
      local y = ops.stack(rows(), 1)
      assert.same({ 130, 1, 3 }, y:shape())
      assert.same(all, counted(y))
    end)
  end)

  it("ops.cat refuses none, and names the one that is no tensor", function()
    assert.error_matches(function() ops.cat({}, 1) end, "a list of at least one tensor was expected")
    assert.error_matches(function()
      local list = rows()
      list[100] = 7
      ops.cat(list, 1)
    end, "entry 100 is no tensor")
  end)
end)

describe("a step of 70 pieces", function()
  local RECIPE = [[
local gm = require "ganymede"
local function get(i) return { math.sin(i), math.cos(i), math.sin(3 * i) }, i % 3 end
return gm.recipe {
  model = { type = "MLP", inputs = 3, hidden = { 8 }, classes = 3 }, data = { train = { length = 140, get = get } },
  loss = "CrossEntropyLoss", optimizer = { type = "SGD", lr = 0.1 }, steps = 2, hooks = { "AccuracyHook" },
}
]]
  local function accuracy(ranks, ...)
    local stats = job.run(RECIPE, ranks, { set = { ... } })
    return stats.metrics.train.accuracy, stats.loss
  end

  -- The same samples as one batch.
  local function check(ranks, ...)
    local want, losses = accuracy(1, "data.batch_size=70")
    local found, found_losses = accuracy(ranks, ...)
    assert.near(want, found, 1e-9)
    for i, loss in ipairs(losses) do assert.near(loss, found_losses[i], 1e-5) end
  end

  it("has the accuracy of one batch: batches of one sample, added up", function()
    check(1, "data.batch_size=1", "gradient_accumulation=70")
  end)

  it("has the accuracy of one batch: micro-batches of a pipeline", function()
    check(2, "data.batch_size=70", "num_microbatches=70", "parallel.pipeline=2")
  end)
end)
