-- What a search looks at in place of a whole step: a setting with fewer pieces of the same size.
local passes = require "ganymede.plan.search.passes"
local refine = require "ganymede.plan.search.refine"
local relatives = require "ganymede.plan.search.relatives"
local setting = require "ganymede.plan.search.setting"

local facts = { samples = 96, accumulation = 1, own = {}, bounds = function(_, parts)
  local ends = {}
  for i = 1, parts do ends[i] = i end
  return ends
end }

local function made(size, micro, accumulation, order)
  return { data = 2, expert = 1, tensor = { size = 1 }, sequence = { size = 1, mode = "ring" }, zero = 1,
    recompute = "none", micro = micro, accumulation = accumulation,
    pipeline = { size = size, schedule = order, chunks = order == "interleaved" and 2 or 1, split = "uniform" } }
end

local function batch_of(s)
  return tonumber(table.concat(setting.sets(s, s.facts), " "):match "data.batch_size=(%d+)")
end

describe("a look at a setting with many pieces", function()
  it("has two batches, or two micro-batches a stage, of the same samples", function()
    local few, missing = refine.short(made(1, 1, 24, "none"), facts)
    assert.same({ 2, 22, 4 }, { few.accumulation, missing, batch_of(few) })
    few, missing = refine.short(made(4, 24, 1, "1f1b"), facts)
    assert.same({ 8, 16, 32 }, { few.micro, missing, batch_of(few) })
    few, missing = refine.short(made(4, 12, 1, "interleaved"), facts)
    assert.same({ 8, 4, 64 }, { few.micro, missing, batch_of(few) })
    assert.same({ n = 2, nil, 0 }, { n = select("#", refine.short(made(4, 8, 1, "1f1b"), facts)),
      refine.short(made(4, 8, 1, "1f1b"), facts) })
    assert.equal(96, facts.samples)
  end)

  it("has records of its own, because its samples are not those of others with as many pieces", function()
    local a, b = refine.short(made(1, 1, 24, "none"), facts), refine.short(made(1, 1, 12, "none"), facts)
    assert.equal(a.accumulation, b.accumulation)
    assert.not_equal(relatives.records(a), relatives.records(b))
    assert.equal(relatives.records(a), (relatives.records(refine.short(made(1, 1, 24, "none"), facts))))
  end)

  it("counts what a stage works for each piece that is missing", function()
    local s = made(2, 8, 1, "interleaved")
    local costs = passes.of_parts({ forward = { 1, 2, 3, 4 }, input = { 10, 20, 30, 40 }, weight = { 0, 0, 0, 0 } }, s,
      facts)
    assert.near(11 + 33, (passes.of_stage(s, costs, 1)), 1e-9)
    assert.near(22 + 44, (passes.of_stage(s, costs, 2)), 1e-9)
  end)
end)
