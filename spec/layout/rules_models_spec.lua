-- Models and loaders under data parallelism: one forward and backward on blocks against the same on the whole batch.
-- ranks: 2 4
--
-- Batches of 10 samples (blocks of 3, 3, 3, 1 on four ranks) and of 2 (two ranks have none), dropout on, f64. Gradients
-- differ from the whole run's by the order of sums over the batch: 1e-12 of the largest.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"

local world = core.world()

local function tokens(n, length, limit)
  local list = {}
  for i = 1, n * length do list[i] = (i * i + 3 * i) % limit end
  return gm.tensor(list, { dtype = "i64", shape = { n, length } })
end

local function labels(n, limit) return tokens(n, 1, limit):reshape(n) end

-- A list: every rank must take them in the same order, which pairs() does not promise.
local models = {
  { "an MLP", function(n)
    return gm.models.MLP { inputs = 12, hidden = { 10, 8 }, classes = 4, dropout = 0.3 },
      gm.normal({ n, 12 }, { seed = 3 }), labels(n, 4)
  end },
  { "a vision transformer", function(n)
    return gm.models.VisionTransformer { image_size = 8, patch_size = 4, channels = 2, classes = 5, width = 12,
      depth = 2, heads = 3, dropout = 0.2, attention_dropout = 0.2, drop_path = 0.2 },
      gm.normal({ n, 2, 8, 8 }, { seed = 4 }), labels(n, 5)
  end },
  { "a vision transformer that pools by the mean", function(n)
    return gm.models.VisionTransformer { image_size = 8, patch_size = 4, channels = 2, classes = 5, width = 12,
      depth = 1, heads = 3, pool = "mean" }, gm.normal({ n, 2, 8, 8 }, { seed = 4 }), labels(n, 5)
  end },
  { "a GPT", function(n)
    return gm.models.GPT { vocabulary = 11, sequence_length = 6, width = 12, depth = 2, heads = 4, kv_heads = 2,
      dropout = 0.2, attention_dropout = 0.2 }, tokens(n, 6, 11), tokens(n, 6, 7)
  end },
}

-- The loss (a number) of one step on x, y, and leaves the gradients.
local function step(model, x, y)
  local criterion = gm.nn.CrossEntropyLoss { label_smoothing = 0.1, ignore_index = 2 }
  core.zero_grad(model:parameters())
  core.begin_step()
  core.set_batch(4, x:size(1)) -- as the second micro-batch of a step has it
  local loss = criterion(model(x), y, criterion:count(y) + 3)
  local value = loss:item()
  loss:backward()
  core.set_batch(0, 0)
  return value
end

local function gradients(model)
  local list = {}
  for i, p in ipairs(model:named_parameters()) do list[i] = { name = p.name, grad = p.tensor:grad():clone() } end
  return list
end

describe("a model on blocks of a batch", function()
  both.in_f64(setup, teardown, function() both.mesh { "data", world } end)

  for _, entry in ipairs(models) do
    local name, make = unpack(entry)
    for _, n in ipairs { 10, 2 } do
      it(("has the loss and the gradients of the whole: %s, %d samples"):format(name, n), function()
        gm.scope(function()
          local model, x, y = make(n)
          model:train()
          local want = step(model, x, y)
          local want_gradients = gradients(model)
          local got = step(model, both.place(x, both.rows), both.place(y, both.rows))
          assert(math.abs(got - want) <= 1e-12 * math.abs(want), ("loss %.17g, not %.17g"):format(got, want))
          for i, g in ipairs(gradients(model)) do numeric.agree(g.grad, want_gradients[i].grad, 1e-12, 1e-3) end
        end)
      end)
    end
  end
end)

describe("a loader on several ranks", function()
  setup(function() both.mesh { "data", world } end)

  local function whole_and_blocks(dataset, options)
    options.dataset = dataset
    local loader = gm.data.loader(options)
    local blocks = {}
    for x, y in loader:batches() do
      blocks[#blocks + 1] = { x = core.gather(x):totable(), y = core.gather(y):totable(), layout = both.describe(x),
        rows = x:local_tensor():size(1), size = x:size(1), samples = loader:sample_numbers(), count = loader:samples() }
    end
    both.mesh { "pipeline", world } -- no axis cuts batches: every rank reads all of them
    loader:seek(0)
    local i = 0
    for x, y in loader:batches() do
      i = i + 1
      local b = blocks[i]
      assert.same(x:totable(), b.x)
      assert.same(y:totable(), b.y)
      assert.same(loader:sample_numbers(), b.samples)
      assert.equal(x:size(1), b.size)
      assert.equal(x:size(1), b.count)
      assert.equal(math.ceil(x:size(1) / world), b.rows)
      assert.equal("data", b.layout:match "^[^,]+")
    end
    assert.equal(i, #blocks)
    loader:close()
    both.mesh { "data", world }
  end

  for _, prefetch in ipairs { 0, 2 } do
    it(("reads the blocks of batches, the last one short, prefetch %d"):format(prefetch), function()
      gm.scope(function()
        local dataset = gm.data.dataset { type = "Synthetic", length = 23, shape = { 2, 3 } }
        whole_and_blocks(dataset, { batch_size = 10, shuffle = true, seed = 7, prefetch = prefetch })
      end)
    end)
  end

  it("asks a dataset written in Lua for its own samples only", function()
    gm.scope(function()
      local asked = {}
      local dataset = {
        length = 13,
        get = function(i)
          asked[#asked + 1] = i
          return { i, 2 * i }, i
        end,
      }
      local loader = gm.data.loader { dataset = dataset, batch_size = 10 }
      loader:next()
      local _, own = core.batch_rows(10)
      assert.equal(own, #asked)
      whole_and_blocks(dataset, { batch_size = 10, shuffle = true, seed = 5 })
    end)
  end)
end)
