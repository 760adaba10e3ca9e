--- Ranks that were to share layers, sequences or experts and share nothing of the model are warned of, others are not.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local idle_axes = require "ganymede.train.idle_axes"
local job = require "spec.parallel.job"

local MLP = '{ type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 }, data = { train = { type = "Synthetic" }, '
local GPT = '{ type = "GPT", vocabulary = 11, sequence_length = 8, width = 8, depth = 1, heads = 2 %s }, data = '
  .. '{ train = { type = "Synthetic", kind = "tokens", vocab_size = 11, sequence_length = 8 }, '

local function said(model, parallel)
  local text = 'return require("ganymede").recipe { model = %sbatch_size = 4 }, loss = { type = "CrossEntropyLoss" }, '
    .. 'optimizer = { type = "SGD", lr = 1e-2 }, steps = 3 }'
  return job.run(text:format(model), 2, { alone = true, set = { "parallel=" .. parallel } }).err
end

describe("axes of which nothing is shared", function()
  it("are told from what the first step has sent", function()
    local function of(mesh, ...) return idle_axes.of(mesh, { ... }) end
    local function entry(axes, op, phase, calls, bytes)
      return { axes = axes, op = op, phase = phase, calls = calls, bytes = bytes }
    end
    local four = { { name = "data", size = 2 }, { name = "sequence", size = 2 }, { name = "row", size = 2 },
      { name = "col", size = 2 } }
    assert.same({ "sequence", "tensor" }, of(four))
    assert.same({}, of { { name = "data", size = 4 }, { name = "sequence", size = 1 } })
    assert.same({ "sequence" }, of(four, entry({ "col" }, "broadcast", "forward", 1, 8)))
    assert.same({}, of(four, entry({ "data", "sequence", "row" }, "all_reduce", "backward", 1, 400)))
    assert.same({ "sequence", "tensor" }, of(four, entry({ "sequence" }, "all_reduce", "forward", 3, 24),
      entry({ "row", "col" }, "all_reduce", "update", 1, 4096), entry({ "sequence" }, "send", "evaluate", 1, 4096)))
    local experts = { { name = "expert", size = 4 } }
    assert.same({ "expert" }, of(experts, entry({ "expert" }, "all_reduce", "backward", 1, 4096)))
    assert.same({}, of(experts, entry({ "expert" }, "all_to_all_rows", "forward", 1, 0)))
  end)

  it("are named once by a run #ranks", function()
    for parallel, words in pairs {
      ["{sequence=2}"] = "warning: parallel.sequence = 2: nothing of the model is cut along a sequence",
      ["{expert=2}"] = "warning: parallel.expert = 2: the model has no experts",
    } do
      local err = said(MLP, parallel)
      local _, count = err:gsub("warning: parallel", "")
      assert.equal(1, count, err)
      assert.is_truthy(err:find(words, 1, true), err)
    end
  end)

  it("are not those that layers share #ranks", function()
    for parallel, model in pairs { ["{sequence=2}"] = GPT:format "", ["{tensor={size=2,mode='1d'}}"] = MLP,
      ["{expert=2}"] = GPT:format ", moe = { experts = 2 }" } do
      assert.is_nil(said(model, parallel):find("warning: parallel", 1, true), parallel)
    end
  end)
end)
