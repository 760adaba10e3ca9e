--- DLRM on several ranks: tables whole, by rows, by columns; stages of a pipeline; 2D; ZeRO; checkpoints. Losses and
-- weights are those of one rank, and no gradient of a shared table travels.
--
-- In f64 sums in another order round differently; 6 steps of Adagrad make 1e-10 of that. Batches of 10 on 3 ranks, 37
-- rows on 2 and a width of 6 on 4 are uneven.
-- sanitizers: no, numbers of several ranks are compared; spec/nn/embedding_bag_spec.lua looks at that code
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

local recipe = [[
local rows = { 20, 11, 6 }
return {
  name = "clicks", seed = 5, dtype = "f64",
  model = { type = "DLRM", dense = 3, counts = rows, width = 6, bottom = { 8 }, top = { 12, 7 } },
  data = { train = { type = "Clicks", length = 200, dense = 3, rows = rows },
    test = { type = "Clicks", length = 50, dense = 3, rows = rows, split = "test" }, batch_size = 10 },
  loss = { type = "BCEWithLogitsLoss" }, optimizer = { type = "Adagrad", lr = 0.1 },
  metrics = { { type = "AUC" } },
}
]]
local STEPS, LIMIT = 6, 1e-10

local home, runs
local function run(ranks, set, flags, steps)
  runs = runs + 1
  local folder = ("%s/%d"):format(home, runs)
  shell.run("mkdir " .. shell.quote(folder))
  local words = { "checkpoint={interval=" .. STEPS .. "}", unpack(set or {}) }
  local stats = job.run_in(folder, recipe, ranks, { steps = steps or STEPS, set = words,
    flags = { "--out", "run", unpack(flags or {}) } })
  stats.weights = ("%s/run/checkpoints/step-%08d"):format(folder, steps or STEPS)
  return stats
end

-- Bytes that ranks send in a phase, for all kinds of messages.
local function sent(stats, phase)
  local bytes = 0
  for _, entry in ipairs(stats.ranks[1].comm) do
    if entry.phase == phase then bytes = bytes + entry.bytes_logical end
  end
  return bytes
end

describe("DLRM #ranks", function()
  local one
  setup(function()
    home, runs = shell.temporary_folder(), 0
    one = run(1)
  end)
  teardown(function() shell.remove(home) end)

  local function agree(mine)
    assert.is_true(job.largest_difference(one, mine, STEPS) <= LIMIT)
    assert.near(one.metrics.test.auc, mine.metrics.test.auc, LIMIT)
    local share, name = stored.difference(mine.weights, one.weights)
    assert.is_true(share <= LIMIT, ("%s differs by %g"):format(tostring(name), share))
  end

  for _, about in ipairs { { 1, "none" }, { 3, "none" }, { 2, "rows" } } do
    it(("on %d ranks, tables cut by %s, with sparse gradients equals dense ones"):format(about[1], about[2]),
      function() agree(run(about[1], { "model.cut=" .. about[2], "model.sparse=true" })) end)
  end

  it("with sparse gradients and SparseAdam equals one rank", function()
    local set = { "model.sparse=true", "optimizer={type='SparseAdam',lr=0.01}" }
    local alone, mine = run(1, set), run(3, { "model.cut=none", unpack(set) })
    assert.is_true(job.largest_difference(alone, mine, STEPS) <= LIMIT)
    local share, name = stored.difference(mine.weights, alone.weights)
    assert.is_true(share <= LIMIT, ("%s differs by %g"):format(tostring(name), share))
  end)

  local rows
  for _, about in ipairs {
    { 3, "none" }, { 2, "rows" }, { 3, "rows" }, { 4, "columns" },
    { 2, "rows", "parallel.pipeline=2", "num_microbatches=2", ranks = 4 }, { 4, "columns", "zero=3" },
    { 4, "none", "parallel={tensor={size=4,mode='2d'}}" },
  } do
    local ranks, cut = about.ranks or about[1], about[2]
    it(("on %d ranks, tables cut by %s%s, equals one rank"):format(ranks, cut, about[3] and ", " .. about[3] or ""),
      function()
        local mine = run(ranks, { "model.cut=" .. cut, about[3], about[4] })
        agree(mine)
        if cut == "rows" and ranks == 2 then rows = mine end
      end)
  end

  it("sends no gradient of a shared table", function()
    local whole = run(2, { "model.cut=none" })
    local table_bytes, steps = (20 + 11 + 6) * 6 * 8, STEPS
    local share = 2 * (2 - 1) / 2 -- of an all-reduce on 2 ranks
    local shared = rows or run(2)
    local fewer = sent(whole, "backward") + sent(whole, "update") - sent(shared, "backward") - sent(shared, "update")
    -- In backward the gradients (10, 3, 6) of the sums are gathered instead.
    local gathered = 10 * 3 * 6 * 8 / 2
    assert.near((table_bytes * share - gathered) * steps, fewer, 8 * steps) -- shares of an odd number are rounded up
    assert.equal((37 - 19) * 6 * 8, whole.ranks[1].parameter_bytes - shared.ranks[1].parameter_bytes)
    assert.equal((37 - 19) * 6 * 8, whole.ranks[1].optimizer_bytes - shared.ranks[1].optimizer_bytes)
  end)

  it("goes on from a checkpoint of another number of ranks and another cut", function()
    local longer = run(1, { "checkpoint.interval=3" }, nil, STEPS)
    local half = run(3, { "checkpoint.interval=3" }, nil, 3)
    local resumed = run(2, { "model.cut=columns", "checkpoint.interval=3" }, { "--resume", half.weights }, STEPS)
    local share, name = stored.difference(resumed.weights, longer.weights)
    assert.is_true(share <= LIMIT, ("%s differs by %g"):format(tostring(name), share))
  end)
end)
