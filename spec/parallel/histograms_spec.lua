-- Histograms of parameters and gradients are right in every layout: equal to plain counts of the whole tensors, and the
-- parameters' first ones are the same on every number of ranks.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local histograms = require "ganymede.observe.histograms"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

describe("the bins of a histogram", function()
  local function of(list)
    local h = histograms.new()
    histograms.add(h, list, 1)
    return h
  end

  it("hold what lies between their limits, each number once", function()
    local list = { 1, 1.4999, 1.5, 1.99, 2, -1, -1.5, -3, 1e-30, -1e30, 0.75, 5e-324, 1e300 }
    for _, x in ipairs(list) do
      local found
      for bin, count in pairs(of { x }.bins) do
        assert.equal(1, count)
        assert.is_nil(found)
        found = bin
      end
      local low, high = histograms.limits(found)
      if x > 0 then assert(low <= x and x < high) else assert(low < x and x <= high) end
    end
    local next_to = {}
    for bin = 1, 242 do next_to[bin] = { histograms.limits(bin) } end
    for bin = 2, 242 do assert.equal(next_to[bin - 1][2], next_to[bin][1]) end
    assert.same({ 0, math.huge }, { next_to[1][1], next_to[242][2] })
  end)

  it("leave out zeros and what is not finite, which is counted", function()
    local h = of { 0, -0, 0 / 0, 1 / 0, -1 / 0, 2 }
    assert.equal(3, h.not_finite)
    assert.same({ 2, 2, 2, 4 }, { h.min, h.max, h.sum, h.squares })
  end)

  it("become buckets in rising order that hold all numbers", function()
    local h = of { -3, -1, -1.2, 0.5, 7 }
    h.count, h.zeros = 7, 2
    local buckets, n, limit = histograms.buckets(h), 0, -math.huge
    for _, bucket in ipairs(buckets) do
      assert(bucket[1] > limit)
      limit, n = bucket[1], n + bucket[2]
    end
    assert.equal(7, n)
    assert.equal(7, limit)
    assert.same({ -3, 1 }, { buckets[1][1], buckets[1][2] }) -- the bin from -4 to -3 holds -3 itself
  end)
end)

-- A recipe whose hook compares histograms with counts of the whole tensors, after step 2, and writes them after step 1.
local recipe = [[
local core = require "ganymede.core"
local gathered = require "ganymede.nn.gathered"
local gm = require "ganymede"
local histograms = require "ganymede.observe.histograms"
local json = require "ganymede.base.json"

local function plain(whole)
  local h = { zeros = 0, count = 0, sum = 0, list = {} }
  for _, x in ipairs(whole:reshape({ -1 }):totable()) do
    h.count, h.sum = h.count + 1, h.sum + x
    if x == 0 then h.zeros = h.zeros + 1 else h.list[#h.list + 1] = x end
  end
  table.sort(h.list)
  return h
end

local function compare(name, h, p)
  local function equal(what, a, b)
    if a ~= b then error(("%s: %s is %s, should be %s"):format(name, what, a, b), 0) end
  end
  equal("count", h.count, p.count)
  equal("zeros", h.zeros, p.zeros)
  if p.list[1] then
    equal("min", h.min, math.min(p.list[1], p.zeros > 0 and 0 or p.list[1]))
    equal("max", h.max, math.max(p.list[#p.list], p.zeros > 0 and 0 or p.list[1]))
  end
  if math.abs(h.sum - p.sum) > 1e-9 * (1 + math.abs(p.sum)) then error(name .. ": sum", 0) end
  for bin, count in pairs(h.bins) do
    local low, high = histograms.limits(bin)
    local n = 0
    for _, x in ipairs(p.list) do
      if bin > 0 and low <= x and x < high or bin < 0 and low < x and x <= high then n = n + 1 end
    end
    equal("bin " .. bin, count, n)
  end
end

local function check(trainer)
  local items = trainer.engine.optimizer.items
  for _, gradients in ipairs { false, true } do
    local list, by_name = histograms.of(items, { gradients = gradients }), {}
    for _, h in ipairs(list or {}) do by_name[h.name] = h end
    local own = {}
    for i, item in ipairs(items) do
      gm.scope(gm.no_grad, function()
        local whole
        if gradients then
          whole = item.tensor:grad():gather()
        else
          gathered.gathered(item.tensor, function() whole = item.tensor:detach():gather() end)
        end
        own[i] = whole and { item.name, plain(whole) }
        if whole and core.rank() == 0 then compare(item.name, by_name[item.name], own[i][2]) end
      end)
    end
  end
end

local function written(trainer)
  local list = histograms.of(trainer.engine.optimizer.items)
  if not list then return end
  local out = {}
  for _, h in ipairs(list) do
    local bins = {}
    for bin, n in pairs(h.bins) do bins[tostring(bin)] = n end
    out[h.name] = { bins = bins, zeros = h.zeros, count = h.count, min = h.min, max = h.max }
  end
  local file = io.open("FILE", "w")
  file:write(json.encode(out))
  file:close()
end

local hook = { needs_output = false }
function hook.after_train_iter(_, trainer)
  if trainer.step ~= 2 then return end
  check(trainer)
  written(trainer) -- the parameters have not changed: lr is 0
end

return {
  name = "histograms", seed = 3, dtype = "f64", steps = 3,
  model = { type = "GPT", vocabulary = 259, sequence_length = 7, width = 24, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 7, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0 }, hooks = { hook },
}
]]

describe("histograms of a run", function()
  local folder, first
  setup(function() folder = shell.temporary_folder() end)
  teardown(function() shell.remove(folder) end)

  for _, case in ipairs {
    { "one rank", 1, {} }, { "data ranks", 4, {} },
    { "ZeRO 1", 4, { "zero=1" } }, { "ZeRO 2", 4, { "zero=2" } },
    { "ZeRO 3", 3, { "zero={stage=3,whole_below=0}" } },
    { "ZeRO 3 of large ones", 4, { "zero={stage=3,whole_below=500}" } },
    { "1D", 4, { "parallel={tensor={size=4,mode='1d'}}" } }, { "2D", 4, { "parallel={tensor={size=4,mode='2d'}}" } },
    { "1D and ZeRO 3", 4, { "parallel={tensor={size=2,mode='1d'}}", "zero={stage=3,whole_below=0}" } },
    { "a pipeline", 4, { "parallel.pipeline=2", "num_microbatches=2" } },
    { "a ring", 2, { "parallel={sequence={size=2,mode='ring'}}" } },
  } do
    it("are those of the whole tensors: " .. case[1], function()
      local path = folder .. "/" .. case[1]:gsub(" ", "_") .. ".json"
      local set = case[3]
      job.run((recipe:gsub("FILE", path)), case[2], { set = set })
      local found = json.decode(shell.read(path), path)
      first = first or found
      assert.is_truthy(next(found))
      assert.same(first, found)
    end)
  end
end)
