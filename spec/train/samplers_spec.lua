--- Samplers by name: what they choose, in code and in a recipe, and that ranks see one order.
-- ranks: 1 3
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local registry = require "ganymede.base.registry"

-- 10 samples whose label is their number.
local numbered = { length = 10, get = function(i) return { i }, i end }

-- The labels of each batch of an epoch, whole, as lists.
local function batches(options, epoch)
  options.dataset, options.batch_size, options.prefetch = numbered, 4, 0
  local loader, out = gm.data.loader(options), {}
  loader:set_epoch(epoch or 0)
  for _, y in loader:batches() do out[#out + 1] = core.gather(y):totable() end
  return out
end

describe("samplers", function()
  before_each(function() gm.context.load_config {} end)

  it("keep the order, or shuffle it by the seed and the epoch", function()
    local kept = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10 } }
    assert.same(kept, batches { sampler = "SequentialSampler" })
    assert.same(kept, batches { sampler = { type = "DataParallelSampler" } })
    local shuffled = batches { sampler = "RandomSampler", seed = 5 }
    assert.not_same(kept, shuffled)
    assert.same(shuffled, batches { shuffle = true, seed = 5 })
    assert.same(shuffled, batches { sampler = { type = "DataParallelSampler", shuffle = true, seed = 5 }, seed = 6 })
    assert.not_same(shuffled, batches({ sampler = "RandomSampler", seed = 5 }, 1))
  end)

  it("give every sample once, whatever the number of ranks", function()
    local seen = {}
    for _, batch in ipairs(batches { sampler = { type = "DataParallelSampler", shuffle = true, seed = 2 } }) do
      for _, i in ipairs(batch) do
        assert.is_nil(seen[i])
        seen[i] = true
      end
    end
    assert.equal(10, #seen)
  end)

  it("leave an incomplete batch out when told to", function()
    assert.equal(2, #batches { sampler = { type = "DataParallelSampler", drop_last = true } })
    assert.equal(3, #batches { sampler = { type = "DataParallelSampler", drop_last = false }, drop_last = true })
    assert.equal(2, #batches { sampler = { type = "DataParallelSampler" }, drop_last = true })
  end)

  it("can be the user's own, in a recipe", function()
    registry.samplers:register("SpecOddSampler", function()
      return { order = function(_, epoch, length)
        local order = {}
        for i = 1 + epoch, length, 2 do order[#order + 1] = i end
        return order
      end }
    end)
    finally(function() registry.samplers.classes.SpecOddSampler = nil end)
    local seen = {}
    gm.fit({
      seed = 1, dtype = "f32", epochs = 2, loss = { type = "MSELoss" }, optimizer = { type = "SGD", lr = 0 },
      model = { type = "MLP", inputs = 1, hidden = { 2 }, classes = 1 }, parallel = {},
      data = { train = { length = 10, get = function(i) return { i }, { i } end, y_dtype = "f32" }, batch_size = 4,
               sampler = { type = "SpecOddSampler" } },
      hooks = { { after_train_iter = function(_, _, _, label)
        for _, row in ipairs(core.gather(label):totable()) do seen[#seen + 1] = row[1] end
      end } },
    }, { log = function() end })
    assert.same({ 1, 3, 5, 7, 9, 2, 4, 6, 8, 10 }, seen)
  end)

  it("that are named wrongly are refused with the nearest name", function()
    local config = require "ganymede.config"
    local ok, err = pcall(config.resolve, {
      model = { type = "MLP", inputs = 16 }, loss = "CrossEntropyLoss", optimizer = "AdamW",
      data = { train = { type = "Synthetic", shape = { 16 } }, sampler = "RandomSamplr" },
    }, { file = "r.lua" })
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("did you mean 'RandomSampler'?", failure.text(err), 1, true)
  end)
end)
