-- What schedules lose and hold when they really run, on 4 stages, against the formulas of the papers.
-- ranks: 4
--
-- The formulas hold for equal costs of forward and both halves of backward: T each, 3 T a micro-batch, so m of them
-- take 3 m T at best. On clocks that travel with the data (spec/bench/waiting.lua) they hold exactly, on any machine:
-- that no pass ran before or after its place. What these cannot see, a receive that blocks computing, costs 7 T and
-- more by the executor's own clock, with parts that wait instead of computing (#slow): a rank that a loaded machine
-- wakes up late makes a step longer, which says nothing about the schedule, so there the best of 8 steps counts,
-- and may be off by less than one T.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local trace = require "ganymede.observe.trace"
local waiting = require "spec.bench.waiting"

local P, T, ATTEMPTS = 4, 0.008, 8

local function each(fn)
  local list = {}
  for rank = 0, P - 1 do list[rank + 1] = fn(rank) end
  return list
end

-- bubble / ideal time for m micro-batches, and the (micro-batch, chunk) pairs that rank r (from 0) holds. GPipe: Huang
-- et al. 2019; 1F1B and interleaved: Narayanan et al. 2021, section 2; ZB: Qi et al. 2023, table 2, and 2024, table 2.
local cases = {
  { "gpipe", 8, 3 / 8, function() return 8 end },
  { "1f1b", 8, 3 / 8, function(r) return P - r end },
  { "1f1b", 2, 3 / 2, function(r) return math.min(2, P - r) end },
  { "interleaved", 8, 3 / (2 * 8), function(r) return 2 * (P - r - 1) + P + 1 end },
  { "zb-h1", 8, 1 / 8, function() return P end },
  { "zb-h2", 8, 0, function() return 2 * P - 1 end },
  { "zb-v", 8, 0, function() return 2 * P end }, -- two chunks: p micro-batches of the whole stage
}

describe("a pipeline of 4 stages", function()
  setup(function() core.set_mesh { { "pipeline", P } } end)

  -- Steps until one has the bubble wanted, or the best of them; the peaks of every step must be exact. All ranks see
  -- the same events, and so stop together.
  local function best_step(pipeline, wanted, held, tolerance)
    local best = math.huge
    for _ = 1, ATTEMPTS do
      local events, peaks = waiting.gather(pipeline:step())
      assert.same(held, peaks)
      local bubble = trace.measured(pipeline.schedule, events).bubble
      if math.abs(bubble - wanted) < math.abs(best - wanted) then best = bubble end
      if math.abs(best - wanted) < tolerance then break end
    end
    return best
  end

  for _, case in ipairs(cases) do
    local name, m, wanted, held = unpack(case)
    it(("loses and holds with %s and %d micro-batches what the formulas say"):format(name, m), function()
      local pipeline = waiting.pipeline(name, { micro_batches = m, times = { 64, 64, 64 }, virtual = true })
      local events, peaks = waiting.gather(pipeline:step())
      pipeline:free()
      assert.same(each(held), peaks)
      assert.near(wanted, trace.measured(pipeline.schedule, events).bubble, 1e-12) -- times are whole numbers
    end)

    it(("does so by the clock with %s and %d micro-batches #slow"):format(name, m), function()
      local pipeline = waiting.pipeline(name, { micro_batches = m, times = { T, T, T } })
      local tolerance = 1 / (3 * m)
      local best = best_step(pipeline, wanted, each(held), tolerance)
      pipeline:free()
      assert.is_true(math.abs(best - wanted) < tolerance,
        ("bubble %.3f of the ideal time, wanted %.3f"):format(best, wanted))
    end)
  end
end)
