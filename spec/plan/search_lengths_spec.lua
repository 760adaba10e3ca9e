-- A step of many pieces, reckoned from steps of few: against whole simulations, and a search that reckons against one
-- that simulates every setting.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local keep = require "ganymede.plan.search.keep"
local lengths = require "ganymede.plan.search.lengths"
local refine = require "ganymede.plan.search.refine"
local search = require "ganymede.plan.search"
local setting = require "ganymede.plan.search.setting"
local simulate = require "ganymede.plan.simulate"
local support = require "spec.cli.support"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 3,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 2, heads = 2 },
  data = { train = { type = "Text", path = HOME .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 24 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })
shell.write(home .. "/recipe.lua", (shell.read(home .. "/recipe.lua"):gsub("HOME", ("%q"):format(home))))

local on = home .. "/gpu.json"
shell.write(on, [=[{ "version": 1, "name": "gpu", "device": "gpu", "ranks_per_node": 2, "launch": 2e-6, "begin": 1e-6,
  "peak": {}, "host_moves": false, "algorithm": "auto", "products": [{ "points": [[8, 4e9], [64, 8e9]] }],
  "moves": [{ "points": [[1e3, 1e9], [1e6, 4e9]] }], "links": [
    { "name": "node", "kind": "switch", "ranks": 2, "bandwidth": 2e9, "latency": 2e-6 },
    { "name": "net", "kind": "switch", "ranks_per_port": 2, "bandwidth": 2e8, "latency": 2e-5 }] }]=])

local function seconds_of(s, facts, ranks)
  return simulate { recipe = home .. "/recipe.lua", ranks = ranks, machine = on, set = setting.sets(s, facts) }.seconds
end

local facts = { samples = 24, accumulation = 1, own = {}, bounds = function(_, parts)
  local ends = {}
  for i = 1, parts do ends[i] = i end
  return ends
end }

local function made(size, micro, accumulation, order, data, zero)
  return { data = data, expert = 1, tensor = { size = 1 }, sequence = { size = 1, mode = "ring" }, zero = zero,
    recompute = "none", micro = micro, accumulation = accumulation,
    pipeline = { size = size, schedule = order, chunks = order == "interleaved" and 2 or 1, split = "uniform" } }
end

describe("a step of many pieces", function()
  it("is reckoned from steps of few, and no faster than it is simulated", function()
    for _, s in ipairs { made(1, 1, 12, "none", 2, 0), made(1, 1, 12, "none", 2, 2), made(1, 1, 12, "none", 2, 3),
      made(2, 24, 1, "1f1b", 1, 0), made(2, 24, 1, "gpipe", 1, 0), made(2, 24, 1, "zb-h1", 1, 0),
      made(2, 12, 1, "interleaved", 1, 0) } do
      local ranks, seconds = s.data * s.pipeline.size, {}
      local short, steps = refine.lengths(s, facts)
      for i, few in ipairs(short) do seconds[i] = seconds_of(few, few.facts, ranks) end
      local line, least = lengths.reckon(seconds, steps)
      local whole, words = seconds_of(s, facts, ranks), setting.words(s, facts)
      assert.is_true(least <= whole, ("%s: at least %.9g, simulated %.9g"):format(words, least, whole))
      -- What is unknown by lengths.lua, and what the bend of the line adds.
      assert.is_true(math.abs(line - whole) <= line - least, ("%s: reckoned %.9g, simulated %.9g"):format(words, line,
        whole))
      assert.is_true(line - least <= 0.02 * line, ("%s: only known to %g"):format(words, 1 - least / line))
    end
  end)

  it("goes on where a straight line would, and less surely the more it is bent", function()
    local line, least = lengths.reckon({ 1, 3, 5 }, 10)
    assert.near(25, line, 1e-12)
    assert.near(25 * (1 - 1e-3), least, 1e-12)
    line, least = lengths.reckon({ 1, 3, 5.5 }, 10)
    assert.near(30.5, line, 1e-12)
    assert.near(30.5 * (1 - 1e-3) - 5, least, 1e-12)
  end)

  it("has short ones with 2, 3 and 4 batches, or 1, 2 and 3 micro-batches a stage, of the same samples", function()
    local function counts(s)
      local short, steps = refine.lengths(s, facts)
      local list = {}
      for i, few in ipairs(short or {}) do list[i] = { few.accumulation, few.micro, few.facts.samples } end
      return list, steps
    end
    local list, steps = counts(made(1, 1, 12, "none", 2, 0))
    assert.same({ { 2, 1, 4 }, { 3, 1, 6 }, { 4, 1, 8 } }, list)
    assert.equal(8, steps)
    list, steps = counts(made(2, 12, 1, "1f1b", 2, 0))
    assert.same({ { 1, 2, 4 }, { 1, 4, 8 }, { 1, 6, 12 } }, list)
    assert.equal(3, steps)
    assert.same({}, (counts(made(2, 8, 1, "1f1b", 2, 0))))
    assert.same({}, (counts(made(1, 1, 4, "none", 2, 0))))
  end)
end)

describe("a search that reckons", function()
  local kept = { "recompute=none", "parallel.pipeline=1", "parallel.tensor=1", "parallel.sequence=1" }
  local function plan(given)
    given.recipe, given.ranks, given.machine, given.keep = home .. "/recipe.lua", 2, on, keep.parse(kept)
    return search(given)
  end

  it("finds what wins among all settings, with many pieces", function()
    table.insert(kept, "gradient_accumulation=12")
    local all, found = plan { all = true }, plan { top = 1 }
    assert.equal(0, all.reckoned)
    assert.is_true(found.reckoned > 0)
    assert.equal(all.rows[1].words, found.rows[1].words)
    assert.equal(all.rows[1].seconds, found.rows[1].seconds)
    assert.is_true(found.rows[1].bound <= found.rows[1].seconds)
    local near = plan { top = 1, within = 0.2 } -- at most a fifth slower than what wins, with fewer looks
    assert.is_true(near.complete and near.rows[1].seconds <= 1.2 * all.rows[1].seconds)
    local function looks(of) return of.rehearsed + of.reckoned + of.simulated end
    assert.is_true(looks(near) <= looks(found))
    assert.truthy(near.left_out[1].why:find "at most 20 %% faster")
    local some = plan { top = 1, looks = 2 } -- one rehearsed, one reckoned
    assert.is_false(some.complete)
    assert.equal(1, #some.rows)
  end)
end)
