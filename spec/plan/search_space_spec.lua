-- The settings of a search, and what is left out of them, for facts written by hand.
local keep = require "ganymede.plan.search.keep"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"
local support = require "spec.plan.support"

local flat = support.machine { { name = "net", kind = "switch", bandwidth = 1, latency = 0 } }
local nodes = support.machine { { name = "node", kind = "switch", ranks = 2, bandwidth = 9, latency = 0 },
  { name = "net", kind = "switch", bandwidth = 1, latency = 0 } }

local function facts(more)
  local out = { samples = 8, accumulation = 1, pieces = 1, heads = 4, kv_heads = 4, sections = 6,
    floors = { none = {}, attention = {}, block = {} }, bounds = function(_, parts) return { parts } end }
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

local function list(ranks, of, kept, on)
  return space.list(of or facts(), { ranks = ranks, machine = on or flat, keep = keep.parse(kept) })
end

local function words(found, of)
  local out = {}
  for i, s in ipairs(found) do out[i] = setting.words(s, of or facts()) end
  return out
end

local function has(reasons, text)
  for why in pairs(reasons) do
    if why:find(text, 1, true) then return true end
  end
  local all = {}
  for why in pairs(reasons) do all[#all + 1] = why end
  error(text .. " is no reason; there are:\n" .. table.concat(all, "\n"), 2)
end

describe("the settings of a search", function()
  local plain = { "recompute=none", "gradient_accumulation=1", "zero=0", "parallel.pipeline=1" }

  it("are all ways to share the ranks, the simpler ones first", function()
    assert.same({ "data 2", "tensor 2 (1d)", "sequence 2 (ring)", "sequence 2 (ulysses)", "tensor 2 (1d, sequence)" },
      (function()
        local found = words((list(2, nil, plain)))
        table.sort(found, function(a, b) return #a < #b or (#a == #b and a < b) end)
        return { found[1], found[2], found[3], found[4], found[5] }
      end)())
    assert.equal("data 2", words((list(2)))[1])
    local four = table.concat(words((list(4, nil, plain))), "\n")
    for _, text in ipairs { "tensor 4 (2d)", "tensor 4 (1d)", "data 2, tensor 2 (1d)", "sequence 4 (ulysses)" } do
      assert.is_truthy(four:find(text, 1, true), text)
    end
    assert.is_truthy(table.concat(words((list(8, facts { heads = 8, kv_heads = 8 }, plain))), "\n"):find(
      "tensor 8 (2.5d, depth 2)", 1, true))
  end)

  it("leave out what cannot be, in words", function()
    local _, why = list(8, facts { heads = 2, kv_heads = 2, sections = 3, samples = 4 })
    has(why, "2 key heads cannot be divided evenly over 4 ranks of tensor")
    has(why, "2 key heads on a rank cannot be divided over 4 ranks of ulysses")
    has(why, "3 sections cannot make 4 parts")
    has(why, "mode 2d needs a square size")
    has(why, "a rank would have no sample of a piece")
    has(why, "there are no data ranks that ZeRO could divide over")
    has(why, "with one batch a step, stage 2 of ZeRO is stage 1")
    has(select(2, list(2, facts { sections = false }, { "parallel.pipeline=2" })), "says no sections")
  end)

  it("keep the samples of a step, and its pieces where experts decide by them", function()
    local of = facts { samples = 12, accumulation = 2, pieces = 2, experts = 4 }
    for _, s in ipairs(list(2, of)) do
      assert.equal(2, s.micro * s.accumulation)
      local said = table.concat(setting.sets(s, of), " ")
      assert.is_truthy(said:find(("data.batch_size=%d"):format(12 / s.accumulation), 1, true), said)
    end
    local _, why = list(2, of)
    has(why, "experts decide by the pieces of a batch, and a step of the recipe has 2")
    local found, fixed = list(2, facts { samples = 8, accumulation = 2, fixed_batches = "so it is" })
    for _, s in ipairs(found) do assert.equal(2, s.pipeline.size > 1 and 2 or s.accumulation) end
    has(fixed, "gradient_accumulation stays 2: so it is")
  end)

  it("have orders of the axes where links have levels, each once", function()
    local kept = { "parallel.data=2", "parallel.tensor.size=2", "parallel.tensor.mode=1d", unpack(plain) }
    local sequence = "parallel.tensor.sequence=false"
    kept[#kept + 1] = sequence
    assert.equal(1, #list(4, nil, kept))
    local found = list(4, nil, kept, nodes)
    assert.equal(2, #found)
    assert.is_nil(found[1].order)
    assert.same({ "tensor", "data" }, found[2].order)
    assert.same({ "tensor", "data", "expert" },
      (list(4, facts { experts = 2, pieces = 1 }, { "parallel.expert=2", unpack(kept) }, nodes))[2].order)
  end)

  it("are fixed by --keep", function()
    local found = list(8, nil, { "parallel.pipeline={size=2,chunks=1}", "schedule.order=zb-h1", "num_microbatches=4",
      "parallel.tensor={size=2,mode='1d',sequence=false}", "zero=1", "recompute=block",
      "parallel.pipeline.split={3,3}" })
    assert.equal(1, #found) -- 2 ranks are left: data, because ZeRO has nothing to divide over ranks of a sequence
    for _, s in ipairs(found) do
      assert.same({ size = 2, schedule = "zb-h1", chunks = 1, split = { 3, 3 } }, s.pipeline)
      assert.equal(4, s.micro)
      assert.equal(1, s.zero)
      assert.equal("block", s.recompute)
    end
  end)
end)

describe("--keep", function()
  it("takes what a plan does not choose as it is", function()
    local kept = keep.parse { "parallel.data.bucket_mb=16", "parallel.transport=host", "zero={stage=3,whole_below=7}" }
    local s = { data = 2, expert = 1, tensor = { size = 1 }, sequence = { size = 1 }, pipeline = { size = 1 } }
    assert.same({ data = { size = 2, bucket_mb = 16 }, transport = "host" }, setting.parallel(s, kept.more))
    assert.same({ whole_below = 7 }, kept.stored)
    assert.equal(3, kept.zero)
    s.recompute, s.accumulation, s.micro, s.zero = "none", 1, 1, 3
    local function said() return table.concat(setting.sets(s, { samples = 8, stored = kept.stored }), " ") end
    assert.matches("zero={ ?stage = 3, whole_below = 7 ?}", said())
    s.zero = 2
    assert.matches(" zero=2 ", said(), 1, true)
  end)

  it("refuses what has no meaning", function()
    for text, words_of in pairs { ["optimizer.lr=1"] = "chooses no such key", ["parallel.pipelin=2"] = "did you mean",
      ["parallel.pipeline=two"] = "an integer of at least 1", ["parallel"] = "key=value",
      ["zero=4"] = "an integer of at least 0, at most 3, was",
      ["parallel.tensor.mode=4d"] = "one of 1d, 2d", ["recompute=all"] = "one of none",
      ["parallel.order=5"] = "must be a list", ["parallel.order={'far'}"] = "[1] must be one of data, expert",
      ["parallel.pipeline.split=evenly"] = "must be one of uniform", ["parallel.tensor.sequence=5"] = "a boolean",
      ["parallel.data.bucket_mb=-1"] = "above 0", ["zero.keep=much"] = "no number of bytes",
      ["parallel={}"] = "an empty table keeps nothing",
      ["zero={stage=1,whole_below=7}"] = "zero.whole_below is about parameters that stage 3 of ZeRO divides" } do
      local ok, why = pcall(keep.parse, { text })
      assert.is_false(ok)
      assert.is_truthy(tostring(require("ganymede.base.failure").text(why)):find(words_of, 1, true), text)
    end
    assert.has_error(function() keep.parse { "zero=1", "zero.stage=2" } end)
  end)
end)
