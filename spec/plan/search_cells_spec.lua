-- Cells: what a rehearsal of one piece says of the passes of sections, against sums on paper and against records of
-- whole worlds.
local cells = require "ganymede.plan.search.cells"
local core = require "ganymede.core"
local facts_module = require "ganymede.plan.search.facts"
local machines = require "ganymede.plan.machine"
local record = require "ganymede.plan.search.record"
local passes = require "ganymede.plan.search.passes"
local rehearsal = require "ganymede.job.rehearsal"
local cli = require "spec.cli.support"
local support = require "spec.plan.support"
local shell = cli.shell

local home = cli.home([[
return {
  name = "small", seed = 1, steps = 3,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 5, heads = 2 },
  data = { train = { type = "Text", path = HOME .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })
shell.write(home .. "/recipe.lua", (shell.read(home .. "/recipe.lua"):gsub("HOME", ("%q"):format(home))))

describe("the sections of a cell", function()
  local links = { { name = "node", kind = "switch", ranks = 2, bandwidth = 100, latency = 1 },
    { name = "net", kind = "switch", bandwidth = 10, latency = 2 } }
  -- an op of 3 s, an all-reduce of 100 bytes over two ranks under an op of 1 s, an op of backward
  local cell = { sections = 2, map = { 1, 2, 2 }, by_place = {}, like = {}, saved = {}, events = {
    { seconds = 3, at = 1, kind = "forward" },
    { begins = 1, axes = { "tensor" }, name = "all_reduce", bytes = 100, at = 1, kind = "forward" },
    { seconds = 1, at = 2, kind = "forward" }, { waits = 1 },
    { seconds = 6, at = 2, kind = "input", part = 0.5 }, { seconds = 5, kind = "input" } } }
  local inside = { { name = "data", size = 2 }, { name = "tensor", size = 2 } }
  local outside = { { name = "tensor", size = 2 }, { name = "data", size = 2 } }

  it("take what their ops take and what does not hide, by where the axes lie", function()
    local m = support.machine(links, { begin = 0.25 })
    local near, first = cells.sections(cell, inside, m)
    local far, second = cells.sections(cell, outside, m)
    -- a ring of two: 2 hops of latency, all bytes. 3 s within a node, 14 between; 1 s of them hides, and the begin
    assert.same({ 3 + 0.25 + 3 - 1.25, 1, 1 }, near.forward)
    assert.same({ 3 + 0.25 + 14 - 1.25, 1, 1 }, far.forward)
    assert.same({ 0, 3, 3 }, near.input)
    assert.same({ 0, 3, 3 }, near.weight) -- of which only a half is sure to be earlier
    assert.not_equal(first, second)
    assert.equal(1, near.latency)
    assert.is_nil(near.host)
  end)

  it("have what a host takes to launch them, and what comes before the first", function()
    local m = support.machine(links, { begin = 0.25, host_launch = { op = 10, between = 100 } })
    local own = { sections = 2, map = { 1, 2, 2 }, by_place = {}, like = {}, saved = {}, events = {
      { seconds = 2, n = 4, at = 0, kind = "forward" }, unpack(cell.events) } }
    own.events[6] = { seconds = 6, n = 3, at = 2, kind = "input", part = 0.5 }
    local near = cells.sections(own, inside, m)
    assert.same({ 2, 40, 100 }, { near.before, near.host.before, near.host.between })
    assert.same({ 10 + 100, 10, 10 }, near.host.forward)
    assert.same({ 0, 15, 15 }, near.host.input)
    assert.same({ 0, 15, 15 }, near.host.weight)
  end)

  it("hide nothing where ranks move the bytes themselves", function()
    local m = support.machine(links, { begin = 0.25, host_moves = true })
    cell.by_place, cell.like = {}, {}
    assert.same({ 3 + 0.25 + 3, 1, 1 }, cells.sections(cell, inside, m).forward)
    cell.by_place, cell.like = {}, {}
  end)

  it("have sums of all of them, by which a mean rank of any pipeline works", function()
    local m = support.machine(links, { begin = 0.25, host_launch = { op = 10, between = 100 } })
    local own = { sections = 2, map = { 1, 2, 2 }, by_place = {}, like = {}, saved = {}, events = {
      { seconds = 2, n = 4, at = 0, kind = "forward" }, unpack(cell.events) } }
    local sums, sections = cells.sums(own, inside, m), cells.sections(own, inside, m)
    local passes_of, host = 0, 0
    for i = 1, 3 do
      for _, kind in ipairs { "forward", "input", "weight" } do
        passes_of, host = passes_of + sections[kind][i], host + sections.host[kind][i]
      end
    end
    assert.same({ 2, passes_of, 40, host }, { sums.before, sums.passes, sums.host_before, sums.host })
    local s = { pipeline = { size = 2 }, micro = 3, accumulation = 4 }
    assert.near(12 * math.max(2 + passes_of / 2, 40 + host / 2), passes.mean(s, sums), 1e-9)
    own.by_place, own.like = {}, {}
    sums = cells.sums(own, inside, support.machine(links, { begin = 0.25 }))
    assert.near(12 * (2 + passes_of / 2), passes.mean(s, sums), 1e-9)
  end)
end)

describe("cells of a model", function()
  local m, device = machines.read "dgx_a100_80g", machines.read "dgx_a100_80g"
  device.host_launch = nil

  local function family(more)
    local s = { data = 1, expert = 1, tensor = { size = 1 }, sequence = { size = 1, mode = "ring" },
      pipeline = { size = 1, schedule = "none", chunks = 1, split = "parameters" }, micro = 1, accumulation = 4,
      recompute = "none", zero = 0 }
    for key, value in pairs(more or {}) do s[key] = value end
    return s
  end

  it("have the pieces of the recipe: its batches, in its micro-batches", function()
    rehearsal.with_workers(function()
      local found = facts_module.of({ recipe = home .. "/recipe.lua", set = { "gradient_accumulation=3" } }, m, {})
      assert.same({ 12, 3, 3 }, { found.samples, found.accumulation, found.pieces })
      local set = { "parallel.pipeline=2", "num_microbatches=4", "gradient_accumulation=2",
        "schedule={type='PipelineSchedule',order='1f1b'}" }
      found = facts_module.of({ recipe = home .. "/recipe.lua", set = set }, m, {})
      assert.same({ 8, 2, 8 }, { found.samples, found.accumulation, found.pieces })
    end)
  end)

  it("have no more events where a layer has more experts", function()
    rehearsal.with_workers(function()
      local events = {}
      for i, experts in ipairs { 2, 16 } do
        local given = { recipe = home .. "/recipe.lua", set = { ("model.moe={experts=%d,every=1}"):format(experts) } }
        events[i] = #cells.open(given, facts_module.of(given, m, {}), m):get(family()).events
      end
      assert.equal(events[1], events[2])
    end)
  end)

  local function sum_of(cell, mesh)
    local sum, sections = 0, cells.sections(cell, mesh, m)
    for _, kind in ipairs { "forward", "input", "weight" } do
      for _, seconds in ipairs(sections[kind]) do sum = sum + seconds end
    end
    return sum
  end

  it("have anchors of more samples without recomputation, a part of which no piece takes less than", function()
    rehearsal.with_workers(function()
      local given = { recipe = home .. "/recipe.lua", set = { "data.batch_size=16" } }
      local list = cells.open(given, facts_module.of(given, m, {}), m)
      local mesh, seen = { { name = "tensor", size = 2 } }, {}
      for _, recompute in ipairs { "none", "block" } do
        for _, batches in ipairs { 16, 8, 4, 2 } do -- of 1, 2, 4 and 8 samples
          local s = family { tensor = { size = 2, mode = "1d" }, accumulation = batches, recompute = recompute }
          local anchor, part = list:anchor(s, 8)
          if anchor then
            seen[list:get(anchor)] = true
            local least, own = part * sum_of(list:get(anchor), mesh), sum_of(list:get(s), mesh)
            assert.near(2 / batches, part, 1e-12)
            assert.is_true(least > 0.05 * own and least <= own, ("%d batches: %g, %g"):format(batches, least, own))
            assert.is_nil(list:anchor(s, 8)) -- it is known
          else
            assert.same({ "none", 2 }, { recompute, batches })
          end
        end
      end
      assert.is_truthy(next(seen) and not next(seen, next(seen)), "there is one anchor")
      list.rises = false
      assert.is_nil(list:anchor(family { accumulation = 16 }, 8))
      list:close()
    end)
  end)

  it("say what a layer of experts says from two periods of blocks, with the rows that travel", function()
    rehearsal.with_workers(function()
      local given = { recipe = home .. "/recipe.lua",
        set = { "model.depth=6", "model.moe={experts=4,every=2,router={type='TopKRouter',k=1}}" } }
      local list = cells.open(given, facts_module.of(given, m, {}), m)
      local s = family { data = 2, expert = 2, accumulation = 1 }
      assert.same({ 1, 2, 3, 4, 5, 4, 5, 6 }, list.facts.short and list.facts.short.map)
      local inside = { { name = "expert", size = 2 } }
      local outside = { inside[1], { name = "data", size = 8 } }
      local short = list:get(s)
      local near, far = cells.sections(short, inside, m), cells.sections(short, outside, m)
      assert.is_true(far.forward[3] > near.forward[3]) -- on other links; backward hides them here
      assert.equal(near.forward[2], far.forward[2])
      list.facts.short = nil
      local whole_list = cells.open(given, list.facts, m)
      local whole = cells.sections(whole_list:get(s), inside, m)
      for _, kind in ipairs { "forward", "input", "weight" } do
        for i = 1, 7 do assert.near(whole[kind][i], near[kind][i], 1e-12 * whole[kind][i]) end
        assert.is_true(near[kind][8] <= whole[kind][8]) -- the losses of fewer layers are with the last section
      end
      whole_list:close()
      list:close()
    end)
  end)

  it("say the same from two of its blocks as from all, and what a piece of a world takes", function()
    rehearsal.with_workers(function()
      local given = { recipe = home .. "/recipe.lua" }
      local facts = facts_module.of(given, m, {})
      assert.same({ 1, 2, 3, 3, 3, 3, 4 }, facts.short and facts.short.map)
      local list = cells.open(given, facts, m)
      local s = family { tensor = { size = 2, mode = "1d" } }
      local short = list:get(s)
      facts.short = nil
      local whole_list = cells.open(given, facts, m)
      local whole = whole_list:get(s)
      local mesh = { { name = "tensor", size = 2 } }
      local a, b = cells.sections(short, mesh, m), cells.sections(whole, mesh, m)
      for _, kind in ipairs { "forward", "input", "weight" } do
        for i = 1, 7 do assert.near(b[kind][i], a[kind][i], 1e-12 * b[kind][i]) end
      end
      assert.same(whole.saved, short.saved)
      local padded = list:get(family { data = 4, tensor = { size = 2, mode = "1d" }, accumulation = 2 }) -- a half
      assert.is_true(padded == short)
      -- blocks that run again go back as a whole: the gradients of their weights are with those of their inputs
      local again = list:get(family { recompute = "block" })
      local plain = cells.sections(list:get(family()), {}, m)
      local of = cells.sections(again, {}, m)
      assert.equal(0, of.weight[3])
      assert.is_true(of.input[3] > plain.input[3] + plain.weight[3] and plain.weight[3] > 0)
      assert.equal(plain.weight[7], of.weight[7])
      local larger = list:get(family { tensor = { size = 2, mode = "1d" }, accumulation = 1 }) -- 4 samples a piece
      assert.is_true(short.saved[3] > 0)
      assert.equal(4 * short.saved[3], larger.saved[3])
      -- the record of a rank of a world of 2 x 2 ranks: four pieces take at least four times what the cell says
      local path = home .. "/step"
      assert(rehearsal { recipe = given.recipe, ranks = 4, rank = 0, step_file = path, device = "cuda", set = {
        "parallel={data=2,tensor={size=2,mode='1d'}}", "gradient_accumulation=2", "data.batch_size=2" } })
      local function check(sections, found)
        local sum = sections.before
        assert.is_true(sum > 0, "targets are counted first")
        for _, kind in ipairs { "forward", "input", "weight" } do
          for i = 1, 7 do sum = sum + sections[kind][i] end
        end
        assert.is_true(2 * sum <= found and 2 * sum > 0.9 * found, ("%g, %g"):format(2 * sum, found))
      end
      local events, on = core.step_read(path).events, { { name = "data", size = 2 }, mesh[1] }
      check(a.host, record.of_rank(events, on, m).host_of_passes)
      check(a, record.of_rank(events, on, device).passes)
      assert.equal(4, list.asked)
      list:expect(family { data = 4 })
      list:close()
      whole_list:close()
    end)
  end)
end)
