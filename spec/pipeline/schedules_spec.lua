--- Pipeline schedules: bubbles and live micro-batches by closed formulas, times by a clock that ticks, results by an
--- executor that follows the lists to the letter, sizes that are refused.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local pipeline = require "ganymede.schedules.pipeline"
local reference = require "spec.pipeline.reference"

local function build(name, p, m, v) return pipeline.build(name, { stages = p, micro_batches = m, chunks = v }, 0) end

-- Micro-batches that interleaved 1F1B puts into a round, or nil where m is refused: written out from the head of
-- schedules/interleaved.lua.
local function round_of(p, m)
  local rounds = math.max(1, math.floor(m / p))
  return m % rounds == 0 and m / rounds or nil
end

-- Lost time of the rank that loses most, in passes of one chunk, for costs F, B, W of a chunk; and live micro-batches
-- by rank s from 0. Sources: performance.md 2.6 and the papers; few micro-batches (m < p, m < 2 p - 1): what is missing
-- of the passes that would have filled the wait for the first gradient.
local closed = {
  ["gpipe"] = {
    lost = function(p, _, _, F, B, W) return (p - 1) * (F + B + W) end,
    live = function(_, m) return m end,
  },
  ["1f1b"] = {
    lost = function(p, _, _, F, B, W) return (p - 1) * (F + B + W) end,
    live = function(p, m, _, s) return math.min(m, p - s) end,
  },
  ["interleaved"] = {
    lost = function(p, m, v, F, B, W) return (p - 1 + (v - 1) * math.max(0, p - m)) * (F + B + W) end,
    live = function(p, m, v, s) return math.min(m * v, 2 * (p - s - 1) + (v - 1) * round_of(p, m) + 1) / v end,
  },
  ["zb-h1"] = {
    lost = function(p, m, _, F, B, W) return m >= p and (p - 1) * (F + B - W) or 2 * p - 1 - m end,
    live = function(p, m) return math.min(m, p) end,
  },
  ["zb-h2"] = {
    lost = function(p, m, _, F, B, W) return m >= 2 * p - 1 and (p - 1) * (F + B - 2 * W) or 2 * p - 1 - m end,
    live = function(p, m) return math.min(m, 2 * p - 1) end,
  },
  ["zb-v"] = {
    lost = function(p, m) return 2 * math.max(0, 2 * p - 1 - m) end,
  },
}

-- Every schedule for every number of micro-batches to 4 p; for many stages those near a multiple of p or a turn.
local function grid(stages)
  local out = {}
  for m = 1, 4 * stages do
    if stages < 8 or m <= 3 or m % 8 <= 1 or m == 15 or m == 31 then
      for _, name in ipairs { "gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v" } do
        out[#out + 1] = { name, stages, m, name == "zb-v" and 2 or 1 }
      end
      for v = 2, round_of(stages, m) and 4 or 0 do out[#out + 1] = { "interleaved", stages, m, v } end
    end
  end
  return out
end

local function near(wanted, found, what)
  assert.is_true(math.abs(wanted - found) <= 1e-9 * math.max(1, math.abs(wanted)),
    ("%s: %.12g, by the formula %.12g"):format(what, found, wanted))
end

describe("pipeline schedules", function()
  for _, stages in ipairs { 1, 2, 3, 4, 8 } do
    it(("on %d stages lose and hold what the formulas say"):format(stages), function()
      for _, case in ipairs(grid(stages)) do
        local name, p, m, v = unpack(case)
        local what = ("%s p%d m%d v%d"):format(unpack(case))
        local s = pipeline.simulate(build(name, p, m, v))
        near(3 * m * v, s.ideal, what .. " ideal time")
        near(closed[name].lost(p, m, v, 1, 1, 1) / (3 * m * v), s.bubble, what .. " bubble")
        local most = 0
        for rank = 0, p - 1 do
          most = math.max(most, s.live[rank + 1])
          if closed[name].live then
            near(closed[name].live(p, m, v, rank), s.live[rank + 1], ("%s live on rank %d"):format(what, rank))
          end
        end
        if name == "zb-v" then near(math.min(m, p), most, what .. " live") end
      end
    end)
  end

  it("have the bubbles of their papers for unequal costs too", function()
    for _, costs in ipairs { { 1, 1, 0.5 }, { 1, 1.5, 1 }, { 2, 3, 2 }, { 4, 5, 3 } } do
      local F, B, W = unpack(costs)
      for _, size in ipairs { { 2, 8 }, { 4, 8 }, { 4, 16 }, { 8, 16 } } do
        local p, m = unpack(size)
        for _, name in ipairs { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2" } do
          local schedule = build(name, p, m)
          local s = pipeline.simulate(schedule, { forward = F, backward_input = B, backward_weight = W })
          near(closed[name].lost(p, m, schedule.chunks, F, B, W), s.bubble * s.ideal,
            ("%s p%d m%d F%g B%g W%g"):format(name, p, m, F, B, W))
        end
      end
    end
  end)

  it("give the numbers of the exact simulations that the reference prints", function()
    -- bubbles.py: bubble over ideal time, peak by stage; zb.py with room 2 p - 1: nothing idle in a stage, p - 1 in all
    for _, case in ipairs {
      { "1f1b", 4, 8, 1, 0.375, { 4, 3, 2, 1 } }, { "1f1b", 8, 32, 1, 0.21875, { 8, 7, 6, 5, 4, 3, 2, 1 } },
      { "gpipe", 4, 8, 1, 0.375, { 8, 8, 8, 8 } }, { "gpipe", 2, 4, 1, 0.25, { 4, 4 } },
      { "interleaved", 4, 8, 2, 0.1875, { 5.5, 4.5, 3.5, 2.5 } },
      { "interleaved", 4, 8, 4, 0.09375, { 4.75, 4.25, 3.75, 3.25 } },
      { "interleaved", 8, 16, 2, 0.21875, { 11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5 } },
    } do
      local s = pipeline.simulate(build(unpack(case, 1, 4)))
      assert.same({ case[5], case[6] }, { s.bubble, s.live })
    end
    for _, size in ipairs { { 4, 8 }, { 4, 12 }, { 8, 24 } } do
      local p, m = unpack(size)
      local s = pipeline.simulate(build("zb-h2", p, m))
      for rank = 1, p do assert.same({ 0, 2 * p - 1 }, { s.idle[rank], s.live[rank] }) end
      assert.equal(3 * m + p - 1, s.time)
      assert.is_true(pipeline.simulate(build("zb-h1", p, m)).time == 3 * m + p - 1, "the formula of ZB-H1")
    end
  end)

  it("begin each action when a clock that ticks says so", function()
    local compared = 0
    for _, costs in ipairs {
      { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0 },
      { forward = 2, backward_input = 3, backward_weight = 1, transfer = 1 },
    } do
      for _, case in ipairs { { "gpipe", 3, 4 }, { "1f1b", 4, 6 }, { "1f1b", 4, 2 }, { "interleaved", 3, 6, 3 },
        { "interleaved", 4, 5, 2 }, { "zb-h1", 4, 7 }, { "zb-h2", 3, 7 }, { "zb-v", 4, 9 }, { "zb-v", 4, 3 } } do
        local schedule = build(unpack(case))
        local begins = reference.tick(schedule, costs)
        local s = pipeline.simulate(schedule, costs)
        for i, actions in ipairs(schedule.actions) do
          local found = {}
          for k, a in ipairs(actions) do
            if a[1] ~= "send" and a[1] ~= "receive" then found[#found + 1] = s.begins[i][k] end
          end
          assert.same(begins[i], found)
          compared = compared + #found
        end
      end
    end
    assert.is_true(compared > 1000, "compared only " .. compared)
  end)

  it("compute what one process computes, with blocking and with non-blocking sends, whoever is fast", function()
    for _, case in ipairs { { 1, 1 }, { 1, 3 }, { 2, 1 }, { 2, 2 }, { 2, 5 }, { 3, 2 }, { 3, 6 }, { 4, 3 }, { 4, 4 },
      { 4, 7 }, { 4, 8 } } do
      local p, m = unpack(case)
      for _, name in ipairs { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" } do
        if name ~= "interleaved" or round_of(p, m) then
          local schedule = build(name, p, m)
          for number = 1, 2 do
            assert.is_true(reference.execute(schedule, true, number))
            assert.is_true(reference.execute(schedule, false, number))
          end
        end
      end
    end
    assert.is_true(reference.execute(build("interleaved", 3, 6, 4), true, 5))
  end)

  it("have their forward passes alone for evaluation", function()
    for _, name in ipairs { "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v" } do
      for _, case in ipairs { { 1, 2 }, { 2, 4 }, { 3, 6 }, { 4, 3 } } do
        local p, m = unpack(case)
        local schedule = pipeline.build(name, { stages = p, micro_batches = m, forward_only = true }, 0)
        assert.is_true(reference.execute(schedule, true, 1))
        assert.is_true(reference.execute(schedule, false, 1))
        for _, actions in ipairs(schedule.actions) do
          for _, a in ipairs(actions) do assert.is_nil(a[1]:find "backward" or a[2] == "gradient" or nil) end
        end
        if schedule.chunks == 1 then -- the last stage begins after p - 1 passes and then works without a gap
          local s = pipeline.simulate(schedule)
          assert.same({ p - 1 + m, 1 }, { s.time, s.live[1] })
        end
      end
    end
  end)

  it("are the same tables on every rank and every time", function()
    assert.same(build("zb-v", 4, 8), build("zb-v", 4, 8))
    assert.same(build("interleaved", 4, 8, 4), build("interleaved", 4, 8, 4))
    assert.same({ { "forward", 1, 1 }, { "backward", 1, 1 } }, build("1f1b", 1, 1).actions[1])
  end)

  it("lie as the papers draw them", function()
    assert.same({ { 1, 5 }, { 2, 6 }, { 3, 7 }, { 4, 8 } }, build("interleaved", 4, 4, 2).parts)
    assert.same({ { 1, 8 }, { 2, 7 }, { 3, 6 }, { 4, 5 } }, build("zb-v", 4, 4).parts)
    assert.same({
      { "receive", "activation", 1, 1, 0 }, { "forward", 1, 1 }, { "receive", "activation", 2, 1, 0 },
      { "backward", 1, 1 }, { "send", "gradient", 1, 1, 0 }, { "forward", 2, 1 }, { "backward", 2, 1 },
      { "send", "gradient", 2, 1, 0 },
    }, build("1f1b", 2, 2).actions[2])
  end)

  it("send each border's activation and gradient once a micro-batch", function()
    local function sends(schedule)
      local n = 0
      for _, actions in ipairs(schedule.actions) do
        for _, a in ipairs(actions) do n = n + (a[1] == "send" and 1 or 0) end
      end
      return n
    end
    assert.equal(2 * 3 * 8, sends(build("1f1b", 4, 8)))
    assert.equal(2 * 7 * 8, sends(build("interleaved", 4, 8, 2))) -- also from the last rank back to the first
    assert.equal(2 * 6 * 8, sends(build("zb-v", 4, 8))) -- not where the V turns
    assert.equal(0, sends(build("interleaved", 1, 8, 2)))
  end)
end)

describe("sizes that a schedule cannot have", function()
  local function refused(...)
    local ok, why = pcall(build, ...)
    assert.is_false(ok)
    return why
  end

  it("are named with those that it can", function()
    assert.equal("interleaved: 9 micro-batches do not divide into 2 rounds of at least 4 (the stages); 8 and 10 do",
      refused("interleaved", 4, 9, 2))
    assert.matches("14 micro%-batches do not divide into 3 rounds .*; 12 and 15 do", refused("interleaved", 4, 14, 2))
    assert.equal("interleaved: chunks must be an integer, at least 2; got 1", refused("interleaved", 4, 8, 1))
    assert.equal("zb-v: chunks must be an integer, at least 2, at most 2; got 4", refused("zb-v", 4, 8, 4))
    assert.equal("1f1b: chunks must be an integer, at least 1, at most 1; got 2", refused("1f1b", 4, 8, 2))
    assert.equal("pipeline_schedules: no type 'zbh1' (did you mean 'zb-h1'?)", refused("zbh1", 4, 8))
    assert.matches("option 'micro_batches' is missing", refused("1f1b", 4))
    assert.matches("option 'stages' must be an integer, at least 1", refused("1f1b", 0, 4))
  end)

  it("are refused at the caller's line", function()
    local ok, why = pcall(function() pipeline.build("interleaved", { stages = 4, micro_batches = 9 }) end)
    assert.is_false(ok)
    assert.matches("^spec/pipeline/schedules_spec.lua:%d+: interleaved: 9 micro", (why:gsub("^.-spec/", "spec/")))
  end)
end)
