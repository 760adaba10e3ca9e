-- What a search reckons of an order of passes against formulas on paper (1e-9: sums of thousands), against the
-- simulator of schedules, and against replays of records written by hand, above which no bound may lie. And a tree of
-- settings against the list of all.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local bundle = require "ganymede.plan.search.bundle"
local geometry = require "ganymede.job.geometry"
local keep = require "ganymede.plan.search.keep"
local passes = require "ganymede.plan.search.passes"
local pipelines = require "ganymede.schedules.pipeline"
local space = require "ganymede.plan.search.space"
local support = require "spec.plan.support"

local facts = { samples = 16, accumulation = 1, pieces = 1, heads = 4, kv_heads = 4, sections = 8,
  floors = { none = {}, block = {} }, bounds = function(_, parts)
    local ends = {}
    for i = 1, parts do ends[i] = 8 / parts * i end
    return 8 % parts == 0 and ends or nil
  end }

local function setting(size, order, chunks, micro, more)
  local s = { data = 1, pipeline = { size = size, schedule = order, chunks = chunks, split = "uniform" }, micro = micro,
    accumulation = 1, recompute = "none" }
  for key, value in pairs(more or {}) do s[key] = value end
  return s
end

local function sections(f, i, w)
  local out = { forward = {}, input = {}, weight = {} }
  for k = 1, 8 do out.forward[k], out.input[k], out.weight[k] = f(k), i(k), w(k) end
  return out
end

local function always(v) return function() return v end end

-- Costs whose parts that may run in either half of a backward pass are in this half.
local function with_either(costs, half)
  local out = { forward = costs.forward, backward_input = costs.backward_input,
    backward_weight = costs.backward_weight }
  out[half] = {}
  for part, seconds in ipairs(costs[half]) do out[half][part] = seconds + costs.either[part] end
  return out
end

describe("the passes of a pipeline", function()
  it("take (m + p - 1) passes of a stage where stages are equal, by formula and played", function()
    local s = setting(4, "1f1b", 1, 6)
    local costs = passes.of_parts(sections(always(1), always(0.75), always(1.5)), s, facts)
    local wanted = (6 + 4 - 1) * 2 * (1 + 0.75 + 1.5)
    assert.near(wanted, passes.least(s, costs), 1e-9)
    assert.near(wanted, passes.played(s, costs, space.schedule(s)).time, 1e-9)
    assert.near(3 * wanted, passes.least(setting(4, "1f1b", 1, 6, { accumulation = 3 }), costs), 1e-9)
    assert.near(6 * 8 * 3.25, passes.least(setting(1, "none", 1, 6), passes.of_parts(sections(always(1), always(0.75),
      always(1.5)), setting(1, "none", 1, 6), facts)), 1e-9)
  end)

  it("never take less than the formula says, in any order with any costs", function()
    for _, case in ipairs { { "1f1b", 1 }, { "gpipe", 1 }, { "interleaved", 2 }, { "zb-h1", 1 }, { "zb-h2", 1 },
      { "zb-v", 2 } } do
      for turn = 1, 4 do
        for _, recompute in ipairs { "none", "block" } do
          local s = setting(4, case[1], case[2], 4 * turn, { recompute = recompute })
          local function cost(k) return 1 + (k * turn * 7 % 5) end
          local costs = passes.of_parts(sections(cost, cost, function(k) return 1 + k * turn % 3 end), s, facts)
          local least, longest = passes.least(s, costs)
          local schedule = pipelines.build(case[1], { stages = 4, micro_batches = 4 * turn, chunks = case[2] })
          local played = passes.played(s, costs, space.schedule(s)).time
          assert.is_true(longest >= 1 and longest <= 4)
          for _, half in ipairs { "backward_input", "backward_weight" } do -- what may be in either half is in this one
            local found = pipelines.simulate(schedule, with_either(costs, half)).time
            local where = ("%s of %d, %s: %g, %g, %g"):format(case[1], 4 * turn, half, least, played, found)
            assert.is_true(least > 0.5 * found and least <= found * (1 + 1e-9), where)
            assert.is_true(played >= least and played <= found * (1 + 1e-9), where)
            if recompute == "none" then assert.near(found, played, 1e-9 * found) end
          end
        end
      end
    end
  end)

  it("of other stages lie before and behind those of a stage: played, it is never busy for longer", function()
    for _, order in ipairs { "1f1b", "gpipe", "zb-h1" } do
      local s = setting(4, order, 1, 6)
      local costs = passes.of_parts(sections(function(k) return 1 + k % 3 end, always(0.75), always(1.5)), s, facts)
      local played = passes.played(s, costs, space.schedule(s)).time
      local longest = 0
      for stage = 1, 4 do
        local before, after = passes.around(s, costs, stage)
        longest = math.max(longest, (passes.of_stage(s, costs, stage)))
        assert.is_true(before + 6 * passes.of_stage(s, costs, stage) + after <= played * (1 + 1e-12))
      end
      assert.near(5 + 2 * 2.25, longest, 1e-9)
      local before, after = passes.around(s, costs, 3)
      assert.near((2 + 3) + (1 + 2), before, 1e-9)
      assert.near(order == "zb-h1" and 0 or 4 * (0.75 + 1.5), after, 1e-9)
    end
  end)

  it("count a gradient of weights that may run in either half as work of its rank alone", function()
    local s = setting(4, "zb-h1", 1, 4, { recompute = "block" })
    local costs = passes.of_parts(sections(always(1), always(1), always(1)), s, facts)
    assert.is_true(costs.backward_weight[1] < 1e-9 and math.abs(costs.backward_input[1] - 2) < 1e-9)
    assert.near(2, costs.either[1], 1e-9)
    assert.near(6, passes.of_stage(s, costs, 1), 1e-9)
    assert.near(4 * 6 + 3 * 2, passes.least(s, costs), 1e-9) -- the last stage begins after three forward passes
    local whole = setting(4, "1f1b", 1, 4, { recompute = "block" })
    costs = passes.of_parts(sections(always(1), always(1), always(1)), whole, facts)
    assert.near(4, costs.backward_input[1], 1e-9)
  end)

  it("end with the sums of gradients, which begin in the last pass that adds to them", function()
    local s = setting(2, "1f1b", 1, 3)
    local costs = passes.of_parts(sections(always(1), always(1), always(1)), s, facts)
    local played = passes.played(s, costs, space.schedule(s)) -- 4 sections a stage: forward 4, backward 8
    assert.near(4 * 12, played.time, 1e-9)
    assert.near(4 * 12 - 8 + 100, passes.step(s, played, function(part) return part == 1 and 100 or 0 end), 1e-9)
    assert.near(4 * 12 - 16 + 100, passes.step(s, played, function(part) return part == 2 and 100 or 0 end), 1e-9)
    assert.near(48, passes.step(s, played, always(1)), 1e-9)
    local alone = setting(1, "none", 1, 1, { accumulation = 5 })
    local whole = passes.played(alone, passes.of_parts(sections(always(1), always(1), always(1)), alone, facts))
    assert.near(5 * 24 - 16 + 100, passes.step(alone, whole, always(100)), 1e-9)
  end)
end)

describe("what the ranks of a pipeline hold at once", function()
  local function holdings(order, chunks, micro)
    return passes.holdings(space.schedule(setting(4, order, chunks, micro)))
  end

  it("is as many micro-batches as their order has under way, and gradients that are no sums of all", function()
    local function one(held, open) return { held = { held }, open = { open } } end
    assert.same({ { one(4, true) }, { one(3, true) }, { one(2, true) }, { one(1, true) } }, holdings("1f1b", 1, 8))
    local two = { one(2, false), one(1, true) }
    assert.same({ two, two, two, { one(1, true) } }, holdings("1f1b", 1, 2))
    for _, list in ipairs(holdings("gpipe", 1, 8)) do assert.same({ one(8, false), one(7, true) }, list) end
    -- the first pass that makes gradients is the last one, too
    for _, list in ipairs(holdings("gpipe", 1, 1)) do assert.same({ one(1, false) }, list) end
    for rank, list in ipairs(holdings("zb-h2", 1, 8)) do
      local most = 0
      for _, state in ipairs(list) do most = math.max(most, state.held[1]) end
      assert.equal(2 * (4 - rank) + 1, most)
    end
  end)

  -- The most that a rank holds where a micro-batch of chunk c counts saved[c] and its gradients weights[c]: at each
  -- pass that goes back, by counting passes on both sides of it.
  local function most_by_counting(actions, saved, weights)
    local most = 0
    local function count(chunk, from, to, a, b)
      local n = 0
      for k = from, to do
        local name, _, at = unpack(actions[k])
        n = n + (at == chunk and (name == a or name == b) and 1 or 0)
      end
      return n
    end
    for k, action in ipairs(actions) do
      local sum = 0
      for chunk = 1, action[1] ~= "forward" and #saved or 0 do
        local waiting = count(chunk, 1, k - 1, "forward") - count(chunk, 1, k - 1, "backward", "backward_input")
        local before = count(chunk, 1, k - 1, "backward", "backward_weight")
        local after = count(chunk, k, #actions, "backward", "backward_weight")
        sum = sum + waiting * saved[chunk] + (before > 0 and after > 0 and weights[chunk] or 0)
      end
      most = math.max(most, sum)
    end
    return most
  end

  it("has the most of all moments, whatever weighs more", function()
    for _, case in ipairs { { "1f1b", 1, 8 }, { "gpipe", 1, 4 }, { "interleaved", 2, 8 }, { "interleaved", 2, 4 },
      { "interleaved", 4, 8 },
      { "zb-h1", 1, 8 }, { "zb-h2", 1, 8 }, { "zb-v", 2, 8 }, { "zb-v", 2, 12 } } do
      local order, chunks, micro = unpack(case)
      local schedule = space.schedule(setting(4, order, chunks, micro))
      for turn = 1, 6 do
        local saved, weights = {}, {}
        for chunk = 1, chunks do saved[chunk], weights[chunk] = chunk * turn % 3, 7 * (turn * chunk % 4) end
        for rank, list in ipairs(passes.holdings(schedule)) do
          local most = 0
          for _, one in ipairs(list) do
            local sum = 0
            for chunk = 1, chunks do
              sum = sum + one.held[chunk] * saved[chunk] + (one.open[chunk] and weights[chunk] or 0)
            end
            most = math.max(most, sum)
          end
          assert.equal(most_by_counting(schedule.actions[rank], saved, weights), most, order .. " rank " .. rank)
        end
      end
    end
  end)
end)

describe("the passes of a pipeline that hosts launch", function()
  -- The events of a rank: `ops` ops in each pass of a section, each of `seconds`. A message has no bytes.
  local function record_of(schedule, rank, seconds, ops, held)
    local events, id, arrives, last = {}, 0, {}, schedule.stages * schedule.chunks
    for _ = 1, held do events[#events + 1] = { "op", 1 } end
    for _, action in ipairs(schedule.actions[rank]) do
      local kind = action[1]
      if geometry.is_transfer(action) then
        id = id + 1
        events[#events + 1] = { "begin", kind, "pipeline", 1e-9, action[5] }
        if kind == "receive" then arrives[action[2] .. action[3] .. " " .. action[4]] = id end
      else
        local thing = geometry.reads(kind, schedule.parts[rank][action[3]], last)
        local from = thing and arrives[thing .. action[2] .. " " .. action[3]]
        if from then events[#events + 1] = { "wait", from } end
        local n = ops * 8 / last * (kind == "backward" and 2 or 1) -- 8 sections
        for _ = 1, n do events[#events + 1] = { "op", seconds } end
      end
    end
    return events
  end

  local function replayed(m, order, chunks, micro, ...)
    local schedule, paths = pipelines.build(order, { stages = 4, micro_batches = micro, chunks = chunks }), {}
    for rank = 1, 4 do
      paths[rank] = support.step(rank - 1, { { "pipeline", 4 } }, record_of(schedule, rank, ...))
    end
    return support.simulate(m, paths, 4).seconds
  end

  local cases = { { "1f1b", 1 }, { "gpipe", 1 }, { "interleaved", 2 }, { "zb-h1", 1 }, { "zb-h2", 1 }, { "zb-v", 2 } }

  it("never take less than what is played, and little more: receives that are posted late", function()
    for _, case in ipairs(cases) do
      for _, host in ipairs { { 0.5, 0.25 }, { 3, 1 }, { 3, 20 }, { 10, 5 } } do
        local m = support.machine({ { name = "net", kind = "switch", bandwidth = 1, latency = 2 } },
          { host_launch = { op = host[1], between = host[2] } })
        for _, seconds in ipairs { 1, 4 } do
          local s, ops, micro, held = setting(4, case[1], case[2], 8), 3, 8, 16
          local own = sections(always(ops * seconds), always(ops * seconds), always(ops * seconds))
          own.host = sections(always(ops * host[1]), always(ops * host[1]), always(ops * host[1]))
          own.host.between, own.host.before, own.before, own.latency = host[2], 2 * host[1], 2, 2
          local costs = passes.of_parts(own, s, facts)
          local found = replayed(m, case[1], case[2], micro, seconds, ops, held)
          local played = passes.step(s, passes.played(s, costs, space.schedule(s)))
          local least = passes.least(s, costs)
          local where = ("%s, host %g and %g, ops of %g: %g, %g, %g"):format(case[1], host[1], host[2], seconds, least,
            played, found)
          assert.is_true(played <= found * (1 + 1e-9) and played > 0.85 * found, where)
          assert.is_true(least <= found * (1 + 1e-9) and least > 0.6 * found, where)
          for stage = 1, s.pipeline.size do
            assert.is_true(s.micro * passes.of_stage(s, costs, stage) <= found * (1 + 1e-9), where)
          end
        end
      end
    end
  end)

  it("end when they have been launched, one after the other", function()
    local schedule = pipelines.build("1f1b", { stages = 2, micro_batches = 1 })
    local function played(launch)
      local found = pipelines.simulate(schedule, { launch = launch })
      return found.time
    end
    assert.equal(6, played())
    -- launched at 10 and 30 by both hosts; the first stage has 2 to do when the second has ended
    assert.equal(30 + 2, played { forward = 10, backward_input = 10, backward_weight = 10 })
    assert.equal(30 + 2 - 7, played { from = -7, forward = 10, backward_input = 10, backward_weight = 10 })
    assert.equal(6, played { from = -7, forward = 1, backward_input = 1, backward_weight = 1 })
    assert.has_error(function() played { forward = -1 } end)
  end)

  it("of several batches take what the host launches in all", function()
    local own = sections(always(1), always(1), always(1))
    own.host = sections(always(7), always(7), always(7))
    own.host.between, own.host.before, own.before = 2, 5, 1
    local s = setting(1, "none", 1, 1, { accumulation = 3 })
    local costs = passes.of_parts(own, s, facts)
    assert.near(3 * (5 + 8 * 21), passes.least(s, costs), 1e-9)
    assert.near(3 * (5 + 8 * 21), passes.step(s, passes.played(s, costs)), 1e-9)
    own.host = nil
    assert.near(3 * (1 + 8 * 3), passes.step(s, passes.played(s, passes.of_parts(own, s, facts))), 1e-9)
    s = setting(4, "1f1b", 1, 4, { accumulation = 3 })
    own.host = sections(always(7), always(7), always(7))
    own.host.between, own.host.before = 2, 5
    -- a stage in the middle sends and receives twice a piece
    costs = passes.of_parts(own, s, facts)
    assert.near(3 * 4 * (5 + 2 * 21 + 4 * 2), passes.step(s, passes.played(s, costs, space.schedule(s))), 1e-9)
    local device, host = passes.of_stage(s, costs, 4)
    assert.near(1 + 2 * 3, device, 1e-9)
    assert.near(5 + 2 * 21 + 2 * 2, host, 1e-9)
  end)
end)

describe("the tree of settings", function()
  it("has the children of a node one after the other, made when their turn comes", function()
    local made = {}
    local children = { { code = 7, bound = 1, peak = 10, count = 2 }, { code = 3, bound = 4, peak = 20, count = 5 } }
    local list = bundle.new(children, function(code, bound, peak, count)
      made[#made + 1] = code
      return { code = code, bound = bound, peak = peak, count = count }
    end)
    assert.same({ 7, {} }, { list.count, made })
    local first = bundle.next(list)
    assert.same({ 7, 1, 10, 2 }, { first.code, first.bound, first.peak, first.count })
    assert.is_true(first.rest == list and list.count == 5 and #made == 1)
    assert.equal(3, bundle.next(list).code)
    assert.is_nil(bundle.next(list))
    assert.equal(0, list.count)
  end)

  local m = support.machine { { name = "node", kind = "switch", ranks = 2, bandwidth = 9, latency = 0 },
    { name = "net", kind = "switch", bandwidth = 1, latency = 0 } }

  it("has all settings of the list once, and counts those that cannot be", function()
    local given = { ranks = 8, machine = m, keep = keep.parse { "parallel.sequence=1" } }
    local shares = space.shares(facts, given)
    local promised, refused, settings, seen = 0, 0, 0, {}
    for _, share in ipairs(shares) do
      promised = promised + share.count
      space.each_bunch(share, facts, function() end, function(bunch, code)
        local again, of_families = space.bunch(share, code, bunch.zeros), 0
        assert.same({ bunch.number, bunch.count, bunch.micro, bunch.accumulation, bunch.recompute },
          { again.number, again.count, again.micro, again.accumulation, again.recompute })
        for _, pipe in ipairs(bunch.places) do
          local family = space.family(again, pipe)
          assert.same({ bunch.micro, bunch.accumulation, bunch.recompute, bunch.pipeline.size },
            { family.micro, family.accumulation, family.recompute, family.pipeline.size })
          of_families = of_families + family.count
        end
        assert.equal(bunch.count, of_families)
      end)
      for _, family in ipairs(space.families(share, facts, function(_, n) refused = refused + n end)) do
        local list = space.settings(family)
        assert.equal(family.count, #list)
        settings = settings + #list
        for _, s in ipairs(list) do
          assert.is_nil(seen[s.number])
          seen[s.number] = true
        end
      end
    end
    assert.equal(promised, settings + refused)
    local list, why = space.list(facts, given)
    local orders = 0
    for text, n in pairs(why) do orders = orders + (text:find "micro%-batches do not" and n or 0) end
    assert.equal(settings, #list + orders)
    for i = 2, #list do
      local a, b = list[i - 1], list[i]
      assert.is_true(a.complexity < b.complexity or (a.complexity == b.complexity and a.number < b.number))
    end
  end)
end)
