--- Which stages of a chain run again: the dynamic programme against all plans, and plans against all schedules.
--
-- Two independent truths for short chains. `all_plans` lists every list of nested regions; each is executed operation
-- by operation, and its bytes are counted. `best_schedule` knows nothing of regions: it searches all states that
-- operations lead to (what is held, which backward pass is due) for the least time within a limit.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local operations = require "ganymede.recompute.operations"
local solve = require "ganymede.recompute.solve"

local huge = math.huge

-- ---------------------------------------------------------------- chains

-- draw(a, b) -> an integer from a to b, by Park and Miller's generator, whose products stay below 2^53.
local function stream(seed)
  local state = seed
  return function(a, b)
    state = state * 16807 % 2147483647
    return a + math.floor(state / 127) % (b - a + 1)
  end
end

-- A chain of n stages of any sizes.
local function random_chain(seed, n)
  local draw, chain = stream(7919 * seed + 1), {}
  local function bytes(least, most) return draw(1000003 * least, 1000003 * most) end
  for i = 1, n do
    local input, kept = i > 1 and bytes(1, 4) or 0, bytes(1, 12)
    chain[i] = { forward = draw(1, 9), backward = draw(1, 18), input = input, kept = kept, gradient = bytes(1, 4),
      passing = input + bytes(1, 5), keeping = input + kept + bytes(0, 4), backward_extra = bytes(0, 6) }
  end
  return chain, draw
end

local function uniform_chain(n)
  local chain = {}
  for i = 1, n do
    chain[i] = { forward = 1, backward = 2, input = i > 1 and 10 or 0, kept = 50, backward_extra = 20 }
  end
  return chain
end

local function run(chain, regions) return operations.simulate(chain, operations.of(regions, #chain)) end

-- ---------------------------------------------------------------- all plans

-- Every list of nested regions of first..last; without is_whole none that is a single region around all of it.
local function all_plans(first, last, is_whole, known)
  local key = ("%d-%d-%s"):format(first, last, tostring(is_whole))
  if known[key] then return known[key] end
  local out = {}
  if first > last then out[1] = {} end
  for _, rest in ipairs(first <= last and all_plans(first + 1, last, true, known) or {}) do out[#out + 1] = rest end
  for e = first, is_whole and last or last - 1 do
    for _, inside in ipairs(all_plans(first, e, false, known)) do
      for _, rest in ipairs(all_plans(e + 1, last, true, known)) do
        out[#out + 1] = { { first = first, last = e, inside = inside }, unpack(rest) }
      end
    end
  end
  known[key] = out
  return out
end

local known_plans = {}

-- Times and peaks of all plans of a chain -> best(limit): the least time of those that fit.
local function brute_force(chain)
  local took = {}
  for i, regions in ipairs(all_plans(1, #chain, true, known_plans)) do took[i] = run(chain, regions) end
  return function(limit)
    local time = huge
    for _, one in ipairs(took) do
      if one.peak <= limit and one.time < time then time = one.time end
    end
    return time
  end, took
end

local function least_peak(took)
  local peak = huge
  for _, one in ipairs(took) do peak = math.min(peak, one.peak) end
  return peak
end

-- ---------------------------------------------------------------- all schedules

local function has(set, i) return i > 0 and math.floor(set / 2 ^ i) % 2 == 1 end
local function with(set, i) return has(set, i) and set or set + 2 ^ i end
local function without(set, i) return has(set, i) and set - 2 ^ i or set end

local function bytes_of(chain, state)
  local bytes = state.due > 0 and chain[state.due].gradient or 0
  for i, stage in ipairs(chain) do
    if has(state.whole, i) then bytes = bytes + stage.kept end
    if has(state.input, i) then bytes = bytes + stage.input end
  end
  return bytes
end

-- States that one operation leads to: { state, time }, of those within the limit. `fresh` is the stage whose result was
-- made last: it is there for the next operation. An input that is held stays until the backward pass of its stage (the
-- schedules of Rotor are persistent).
local function successors(chain, state, limit)
  local out, held = {}, bytes_of(chain, state)
  local function add(more, time, next)
    if held + more <= limit then out[#out + 1] = { next, time } end
  end
  for i = 1, state.due do
    local s, is_held = chain[i], has(state.input, i)
    if (i == 1 or is_held or state.fresh == i - 1) and not has(state.whole, i) then
      local there = is_held and s.input or 0
      add(s.keeping - there, s.forward,
        { whole = with(state.whole, i), input = state.input, due = state.due, fresh = i })
      add(s.passing - there, s.forward, { whole = state.whole, input = state.input, due = state.due, fresh = i })
      if not is_held then
        add(s.passing, s.forward, { whole = state.whole, input = with(state.input, i), due = state.due, fresh = i })
      end
    end
    if i == state.due and has(state.whole, i) then
      add(s.backward_extra, s.backward,
        { whole = without(state.whole, i), input = without(state.input, i), due = i - 1, fresh = 0 })
    end
  end
  return out
end

local function key_of(s) return ("%d %d %d %d"):format(s.whole, s.input, s.due, s.fresh) end

-- The least time of all schedules within the limit (Dijkstra's search; times are small integers).
local function best_schedule(chain, limit)
  local buckets, done, last = { [0] = { { whole = 0, input = 0, due = #chain, fresh = 0 } } }, {}, 0
  local time = 0
  while time <= last do
    for _, state in ipairs(buckets[time] or {}) do
      if state.due == 0 then return time end
      local key = key_of(state)
      if not done[key] then
        done[key] = true
        for _, next in ipairs(successors(chain, state, limit)) do
          local at = time + next[2]
          buckets[at], last = buckets[at] or {}, math.max(last, at)
          table.insert(buckets[at], next[1])
        end
      end
    end
    buckets[time], time = nil, time + 1
  end
  return huge
end

-- ---------------------------------------------------------------- the spec

-- Limits from below the least to above the most that a chain can use.
local function limits(took, n)
  local least, most = least_peak(took), 0
  for _, one in ipairs(took) do most = math.max(most, one.peak) end
  local out = { least - 1, least }
  for i = 1, n do out[#out + 1] = math.floor(least + (most - least) * i / n) end
  return out
end

describe("the operations of a plan", function()
  local function text(regions, n)
    local words, short = {}, { all = "A", check = "c", none = "n", backward = "B" }
    for i, op in ipairs(operations.of(regions, n)) do words[i] = short[op[1]] .. op[2] end
    return table.concat(words, " ")
  end

  it("keep everything where there is no region", function()
    assert.equal("A1 A2 A3 B3 B2 B1", text({}, 3))
  end)

  it("run a region again before its backward pass, and regions inside once more", function()
    assert.equal("A1 c2 n3 A4 B4 A2 A3 B3 B2 B1", text({ { first = 2, last = 3 } }, 4))
    assert.equal("c1 n2 n3 A4 B4 c1 n2 A3 B3 A1 A2 B2 B1",
      text({ { first = 1, last = 3, inside = { { first = 1, last = 2 } } } }, 4))
  end)

  it("take the time and the bytes that one counts by hand", function()
    local chain = {
      { forward = 1, backward = 2, input = 0, kept = 50, backward_extra = 7 },
      { forward = 3, backward = 4, input = 10, kept = 40, keeping = 55 },
      { forward = 5, backward = 6, input = 20, kept = 30, gradient = 1 },
    }
    local whole = run(chain, {})
    -- Kept: 50 of stage 1, 40 of stage 2, 30 of stage 3, whose input is there as well; and the gradient of the loss.
    assert.same({ time = 21, forward = 9, peak = 1 + 50 + 40 + 20 + 30, at = 3, held = 120 }, whole)
    -- Kept: 50 of stage 1, 10 for stage 2; then 20 (the gradient) and the 55 of stage 2, the 10 among them.
    local again = run(chain, { { first = 2, last = 2 } })
    assert.same({ time = 24, forward = 12, peak = 50 + 20 + 55, at = 5, held = 50 + 10 + 30 }, again)
  end)

  it("are refused where they lack something", function()
    local chain = uniform_chain(2)
    local function fails(list, what)
      assert.error_matches(function() operations.simulate(chain, list) end, what)
    end
    fails({ { "all", 2 } }, "operation 1, all of stage 2: its input is not there")
    fails({ { "check", 1 }, { "none", 2 }, { "all", 2 } }, "operation 3, all of stage 2: its input is not there")
    fails({ { "all", 1 }, { "backward", 1 } }, "backward of stage 1: the next is of stage 2")
    fails({ { "check", 1 }, { "check", 2 }, { "backward", 2 } }, "backward of stage 2: it is not kept")
    fails({ { "all", 1 }, { "all", 2 }, { "backward", 2 }, { "all", 1 } }, "all of stage 1: it is kept already")
    fails({ { "all", 1 }, { "all", 2 }, { "backward", 2 } }, "the backward pass of stage 1 is missing")
  end)
end)

describe("what runs again", function()
  it("is the best of all plans", function()
    for seed = 1, 8 do
      local chain = random_chain(seed, 3 + seed % 4)
      local best, took = brute_force(chain)
      for _, limit in ipairs(limits(took, 9)) do
        local plan, why = solve(chain, limit)
        local time = best(limit)
        if plan then
          assert.equal(time, plan.time)
          assert.is_true(plan.peak <= limit)
          local again = run(chain, plan.regions)
          assert.same({ plan.time, plan.peak }, { again.time, again.peak })
        else
          assert.equal(huge, time)
          assert.same({ least_peak(took), least_peak(took) - limit }, { why.least, why.missing })
        end
      end
    end
  end)

  -- A chain of 10 stages no two plans of which take the same time, and limits between its least and its most.
  local function long_staircases(seed)
    local chain, draw = random_chain(seed, 10)
    for _, stage in ipairs(chain) do stage.forward = draw(1000, 9000) end
    local _, why = solve(chain, 0)
    local least, most, out = why.least, run(chain, {}).peak, {}
    for i = 1, 4 do out[i] = math.floor(least + (most - least) * i / 5) end
    return chain, out, least
  end

  it("is worse by no more than the steps that are left out", function()
    for seed = 1, 3 do
      local chain, at, least = long_staircases(seed)
      for _, limit in ipairs(at) do
        local plan = solve(chain, limit, { steps = 60 })
        local less = solve(chain, math.max(least, math.floor(limit * (1 - 11 / 59))))
        assert.is_true(plan.peak <= limit)
        assert.is_true(plan.time <= less.time)
      end
    end
  end)

  it("fits with very few steps, too, and then loses something", function()
    local worse = 0
    for seed = 1, 3 do
      local chain, at = long_staircases(seed)
      for _, limit in ipairs(at) do
        local plan = solve(chain, limit, { steps = 3 })
        assert.is_true(plan.peak <= limit)
        if plan.time > solve(chain, limit).time then worse = worse + 1 end
      end
    end
    assert.is_true(worse > 0)
  end)

  it("is the best of all schedules that keep what they keep until it is used", function()
    for seed = 1, 8 do
      local chain = random_chain(seed, 3 + seed % 3)
      local _, took = brute_force(chain)
      for _, limit in ipairs(limits(took, 5)) do
        local plan = solve(chain, limit)
        assert.equal(best_schedule(chain, limit), plan and plan.time or huge)
      end
    end
  end)

  it("is nothing where everything fits", function()
    local chain = uniform_chain(5)
    local whole = run(chain, {})
    assert.same({ regions = {}, time = 15, peak = whole.peak }, solve(chain, whole.peak))
    assert.is_true(#solve(chain, whole.peak - 1).regions > 0)
  end)

  it("leaves out of regions what is fixed", function()
    for seed = 1, 4 do
      local chain = random_chain(seed, 5)
      chain[2].fixed = true
      local _, why = solve(chain, 0)
      local plan = solve(chain, why.least)
      for _, op in ipairs(operations.of(plan.regions, 5)) do
        assert.is_true(op[2] ~= 2 or op[1] == "all" or op[1] == "backward")
      end
    end
  end)

  it("is the best of all plans where other micro-batches hold memory, but for the limits that are tried", function()
    local worse, tried = 0, 0
    for seed = 1, 4 do
      local chain = random_chain(seed, 3 + seed % 2)
      local _, took = brute_force(chain)
      for _, copies in ipairs { 2, 3.5 } do
        local function peak_of(one) return one.peak + (copies - 1) * one.held end
        local least, most = huge, 0
        for _, one in ipairs(took) do least, most = math.min(least, peak_of(one)), math.max(most, peak_of(one)) end
        for k = 1, 8 do
          local limit, best, nearly = math.floor(least + (most - least) * k / 8), huge, huge
          for _, one in ipairs(took) do
            if peak_of(one) <= limit then best = math.min(best, one.time) end
            if peak_of(one) <= limit * (1 - 1 / 48) then nearly = math.min(nearly, one.time) end
          end
          local plan = solve(chain, limit, { copies = copies })
          assert.is_true(plan == nil and nearly == huge or plan.peak <= limit and plan.time <= nearly)
          tried, worse = tried + 1, worse + ((not plan or plan.time > best) and 1 or 0)
        end
        assert.is_nil((solve(chain, math.floor(least) - 1, { copies = copies })))
      end
    end
    assert.is_true(worse <= tried / 10, ("%d of %d"):format(worse, tried))
  end)

  -- The plans that a restricted problem allows, by brute force.
  local function best_where(chain, limit, allowed)
    local time = huge
    for _, regions in ipairs(all_plans(1, #chain, true, known_plans)) do
      local is_allowed = true
      for _, r in ipairs(regions) do is_allowed = is_allowed and allowed(r) end
      local took = is_allowed and run(chain, regions)
      if took and took.peak <= limit and took.time < time then time = took.time end
    end
    return time
  end

  it("is the best with regions of one stage, or with none inside others, where that is asked for", function()
    local function flat(r) return #r.inside == 0 end
    local function single(r) return r.first == r.last end
    for seed = 1, 4 do
      local chain = random_chain(seed, 5)
      local _, took = brute_force(chain)
      for _, limit in ipairs(limits(took, 6)) do
        local plan = solve(chain, limit, { nested = false })
        assert.equal(best_where(chain, limit, flat), plan and plan.time or huge)
        plan = solve(chain, limit, { span = 1 })
        assert.equal(best_where(chain, limit, single), plan and plan.time or huge)
      end
    end
  end)

  it("of a long chain is found and needs no more than its limit", function()
    local chain = uniform_chain(96)
    local plan = solve(chain, 3000)
    assert.is_true(plan.peak <= 3000)
    -- Everything of at most 60 blocks is kept (60 * 50), so 36 or more run again; one of six is lost to the inputs of
    -- regions and to what runs again.
    assert.is_true(plan.time >= 96 * 3 + 36 and plan.time <= 96 * 3 + 42)
  end)

  it("refuses a chain that is none", function()
    assert.error_matches(function() solve({}, 1) end, "a chain without stages")
    assert.error_matches(function() solve(uniform_chain(1), -1) end, "a limit in bytes, 0 or more")
    assert.error_matches(function() solve({ { forward = 1, backward = 1, input = 0, kept = 0.5 } }, 9) end,
      "stage 1: kept and input are whole numbers of bytes")
  end)
end)
