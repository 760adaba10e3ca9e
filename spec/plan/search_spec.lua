-- The search for a plan against simulating every setting of small worlds: nothing that it leaves out would have won,
-- and its lower bounds are none above what a simulation finds. And what cannot be, in words.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local bounds = require "ganymede.plan.search.bounds"
local keep = require "ganymede.plan.search.keep"
local search = require "ganymede.plan.search"
local support = require "spec.cli.support"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 3,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 2, heads = 2 },
  data = { train = { type = "Text", path = HOME .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })
shell.write(home .. "/recipe.lua", (shell.read(home .. "/recipe.lua"):gsub("HOME", ("%q"):format(home))))

-- Nodes of 2 ranks with slow links between them. Nothing overlaps (a CPU), or all may (a GPU).
-- more: further keys of the file.
local function machine(name, host_moves, algorithm, more)
  local path = ("%s/%s.json"):format(home, name)
  shell.write(path, ([=[{ "version": 1, "name": %q, "device": %q, "ranks_per_node": 2, %s "launch": 2e-6, "begin": 1e-6,
    "peak": {}, "host_moves": %s, "algorithm": %q, "products": [{ "points": [[8, 4e9], [64, 8e9]] }],
    "moves": [{ "points": [[1e3, 1e9], [1e6, 4e9]] }], "links": [
      { "name": "node", "kind": "switch", "ranks": 2, "bandwidth": 2e9, "latency": 2e-6 },
      { "name": "net", "kind": "switch", "ranks_per_port": 2, "bandwidth": 2e8, "latency": 2e-5 }] }]=]):format(name,
    host_moves and "cpu" or "gpu", more or "", tostring(host_moves), algorithm))
  return path
end

local function plan(given)
  given.recipe = home .. "/recipe.lua"
  given.keep = keep.parse(given.keep)
  return search(given)
end

local function check_bounds(all, on, ranks)
  local about = require("ganymede.plan.machine").read(on)
  for _, row in ipairs(all.rows) do
    local by_formula = bounds.time(row.setting, all.facts, about, ranks)
    local most = row.seconds * (1 + 1e-9) -- sums in another order
    assert.is_true(by_formula <= most, ("%s: %g by formula, %g simulated"):format(row.words, by_formula, row.seconds))
    assert.is_true(row.bound <= most, ("%s: at least %g, %g simulated"):format(row.words, row.bound, row.seconds))
    local bytes = bounds.memory(row.setting, all.facts)
    for _, least in ipairs { bytes, row.least_bytes } do
      assert.is_true(least <= row.peak_bytes, ("%s: at least %g bytes, %g rehearsed"):format(row.words, least,
        row.peak_bytes))
    end
  end
end

-- The rows that a search lists are rows of all settings, in their order.
local function check_listed(all, found)
  local place, before = {}, 0
  for i, row in ipairs(all.rows) do place[row.words] = i end
  assert.equal(1, place[found.rows[1].words])
  for _, row in ipairs(found.rows) do
    local at = place[row.words]
    assert.is_true(at > before, row.words)
    assert.same({ all.rows[at].seconds, all.rows[at].peak_bytes }, { row.seconds, row.peak_bytes })
    before = at
  end
end

local function check_world(ranks, on, kept)
  local all = plan { ranks = ranks, machine = on, keep = kept, all = true }
  local found = plan { ranks = ranks, machine = on, keep = kept, top = 1 }
  assert.equal(all.rows[1].words, found.rows[1].words)
  assert.equal(all.rows[1].seconds, found.rows[1].seconds)
  assert.is_true(#found.rows < #all.rows, "nothing was left out")
  check_listed(all, plan { ranks = ranks, machine = on, keep = kept, top = 4 })
  check_bounds(all, on, ranks)
  return all, found
end

describe("the search for a plan", function()
  it("finds what wins among all settings of 2 ranks of a CPU", function()
    local all = check_world(2, machine("cpu", true, "direct"), { "recompute=none", "gradient_accumulation=1",
      "num_microbatches=2", "parallel.pipeline.split=parameters" })
    assert.is_true(#all.rows >= 10, #all.rows .. " settings")
  end)

  it("has bounds below what is simulated where 2 ranks share a core", function()
    local on = machine("crowded", true, "direct", [["cores": 1, "cores_per_rank": 1,
      "wake": { "work": 1e-6, "late": [1e-5, 1e-4] },]])
    local kept = { "recompute=none", "gradient_accumulation=1", "parallel.pipeline=1", "zero=0" }
    check_bounds(plan { ranks = 2, machine = on, keep = kept, all = true }, on, 2)
  end)

  -- Nodes of 2 ranks on one core, and a node of 4 ranks on 3 cores, where a rank that waits leaves its core to others.
  local function crowded(name, per_node, cores, algorithm)
    local path = ("%s/%s.json"):format(home, name)
    shell.write(path, ([=[{ "version": 1, "name": %q, "device": "cpu", "ranks_per_node": %d, "cores": %d,
      "cores_per_rank": 1, "wake": { "work": 1e-6, "late": [1e-5, 1e-4] }, "launch": 2e-6, "begin": 1e-6, "peak": {},
      "host_moves": true, "algorithm": %q, "products": [{ "points": [[8, 4e9], [64, 8e9]] }],
      "moves": [{ "points": [[1e3, 1e9], [1e6, 4e9]] }], "links": [
        { "name": "memory", "kind": "switch", "ranks": %d, "bandwidth": 2e9, "latency": 7e-6 },
        { "name": "net", "kind": "switch", "bandwidth": 2e8, "latency": 2e-5 }] }]=]):format(name, per_node, cores,
      algorithm, per_node))
    return path
  end

  local ways = {
    ["tensor ranks #slow"] = { "parallel.tensor={size=2,mode='1d'}" },
    ["grids"] = { "parallel.tensor={size=4,mode='2d'}" },
    ["rings"] = { "parallel.sequence={size=4,mode='ring'}" },
    ["heads apart #slow"] = { "parallel.sequence={size=2,mode='ulysses'}", "parallel.tensor=1" },
    ["stages #slow"] = { "parallel.pipeline=2", "parallel.tensor=1", "parallel.sequence=1", "num_microbatches=2" },
    ["data ranks #slow"] = { "parallel.data=4" },
    ["experts #slow"] = { "parallel.expert=2", "parallel.pipeline=1", "parallel.tensor=1", "parallel.sequence=1" },
  }
  for name, kept in pairs(ways) do
    it(("has bounds below what is simulated where 4 ranks share cores: %s"):format(name), function()
      for _, on in ipairs { crowded("pairs", 2, 1, "direct"), crowded("four", 4, 3, "ring") } do
        local order = "parallel.order={'data','expert','pipeline','sequence','tensor'}"
        local list = { "recompute=none", order, unpack(kept) }
        local set = name:find "experts" and { "model.moe={experts=4,every=1}" } or nil
        check_bounds(plan { ranks = 4, machine = on, keep = list, set = set, all = true }, on, 4)
      end
    end)
  end

  it("finds what wins among all settings of 2 ranks of a GPU, with recomputation and accumulation #slow", function()
    check_world(2, machine("gpu", false, "auto"), { "parallel.pipeline=1" })
  end)

  -- A GPU whose ops take less than their launches, or some less and some more.
  local function launched(name, op, between)
    return machine(name, false, "auto", ('"host_launch": { "op": %g, "between": %g },'):format(op, between))
  end

  it("finds what wins among all settings of 2 ranks that hosts launch", function()
    local on = launched("launched", 2e-5, 1e-5)
    local all = check_world(2, on, { "recompute=none", "num_microbatches=2", "parallel.pipeline.split=parameters" })
    assert.is_true(#all.rows >= 15, #all.rows .. " settings")
    local least = math.huge
    for _, row in ipairs(all.rows) do
      least = math.min(least, bounds.time(row.setting, all.facts, require("ganymede.plan.machine").read(on), 2)
        / row.seconds)
    end
    assert.is_true(least > 0.2, ("a bound by formula has %g of the time"):format(least)) -- without launches: less
  end)

  local launched_ways = {
    ["tensor ranks"] = { "parallel.tensor={size=2,mode='1d'}" },
    ["grids"] = { "parallel.tensor={size=4,mode='2d'}" },
    ["rings"] = { "parallel.sequence={size=4,mode='ring'}" },
    ["heads apart"] = { "parallel.sequence={size=2,mode='ulysses'}", "parallel.tensor=1" },
    ["stages"] = { "parallel.pipeline=2", "parallel.tensor=1", "parallel.sequence=1" },
    ["stages only"] = { "parallel.pipeline=4", "num_microbatches=4" },
    ["data ranks"] = { "parallel.data=4" },
    ["experts"] = { "parallel.expert=2", "parallel.pipeline=1", "parallel.tensor=1", "parallel.sequence=1" },
  }
  for name, kept in pairs(launched_ways) do
    it(("has bounds below what is simulated where hosts launch: %s #slow"):format(name), function()
      for _, on in ipairs { launched("small", 2e-5, 1e-5), launched("mixed", 4e-6, 2e-5) } do
        local order = "parallel.order={'data','expert','pipeline','sequence','tensor'}"
        local set = name == "experts" and { "model.moe={experts=4,every=1}" } or nil
        local all = plan { ranks = 4, machine = on, keep = { order, unpack(kept) }, set = set, all = true }
        check_bounds(all, on, 4)
        local found = plan { ranks = 4, machine = on, keep = { order, unpack(kept) }, set = set, top = 1 }
        assert.equal(all.rows[1].seconds, found.rows[1].seconds)
      end
    end)
  end

  it("finds what wins among orders of the axes on 4 ranks, tensor ranks inside of a node #slow", function()
    local all, found = check_world(4, machine("nodes", true, "ring"), { "recompute=none", "gradient_accumulation=1",
      "parallel.pipeline=1", "parallel.data=2", "zero=0" })
    local orders = 0
    for _, row in ipairs(all.rows) do orders = orders + (row.setting.order and 1 or 0) end
    assert.is_true(orders > 0)
    assert.is_truthy(found.rows[1].mesh[2])
  end)

  it("has bounds of pipelines in every order on 4 stages, also where blocks or attention run again #slow", function()
    for _, again in ipairs { "none", "attention", "block" } do
      local all = plan { ranks = 4, machine = machine("gpu", false, "auto"), all = true, keep = {
        "parallel.pipeline=4", "num_microbatches=4", "recompute=" .. again } }
      assert.is_true(#all.rows >= 4, #all.rows .. " settings")
      check_bounds(all, home .. "/gpu.json", 4)
    end
  end)

  it("leaves nothing out that fits, where stages sum gradients over data ranks #slow", function()
    for _, kept in ipairs { { "parallel.pipeline=2", "num_microbatches=4" }, { "parallel.pipeline=1" } } do
      local on, set = machine("gpu", false, "auto"), { "data.batch_size=8" }
      local given = { "parallel.data=2", "recompute=none", "parallel.order={'data','pipeline','tensor'}",
        "parallel.sequence=1", "parallel.tensor=" .. (#kept == 1 and 2 or 1), unpack(kept) }
      local all = plan { ranks = 4, machine = on, keep = given, set = set, all = true }
      check_bounds(all, on, 4)
      local peaks = {}
      for i, row in ipairs(all.rows) do peaks[i] = row.peak_bytes end
      table.sort(peaks)
      for _, at in ipairs { 1, math.ceil(#peaks / 3), math.ceil(2 * #peaks / 3) } do
        local best
        for _, row in ipairs(all.rows) do best = best or row.peak_bytes <= peaks[at] and row or nil end
        local found = plan { ranks = 4, machine = on, keep = given, set = set, memory = peaks[at], top = 1 }
        assert.equal(best.seconds, found.rows[1].seconds)
      end
    end
  end)

  it("leaves out what needs more memory, and takes what needs less", function()
    local kept = { "parallel.data=2", "zero=0", "gradient_accumulation=1" }
    local on = machine("cpu", true, "direct")
    local free = plan { ranks = 2, machine = on, keep = kept, top = 3 }
    assert.equal(3, #free.rows)
    local least = math.min(free.rows[2].peak_bytes, free.rows[3].peak_bytes)
    assert.is_true(least < free.rows[1].peak_bytes)
    local tight = plan { ranks = 2, machine = on, keep = kept, memory = least, top = 1 }
    assert.is_true(tight.rows[1].peak_bytes <= least and tight.rows[1].seconds > free.rows[1].seconds)
    assert.is_truthy(tight.left_out[1].why:find "needs more than" or tight.left_out[2].why:find "needs more than")
    assert.has_error(function() plan { ranks = 2, machine = on, keep = kept, memory = 1000 } end)
  end)
end)
