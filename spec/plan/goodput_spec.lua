-- Long runs with failures: the closed formula against runs that are played failure by failure, and against papers.
local core = require "ganymede.core"
local goodput = require "ganymede.plan.goodput"

local cases = {
  { mtbf = 20000, work = 900, block = 60, write = 0, restart = 300 },
  { mtbf = 20000, work = 900, block = 5, write = 200, restart = 300 },
  { mtbf = 20000, work = 900, block = 5, write = 1500, restart = 300 }, -- a copy waits for the write before it
  { mtbf = 3000, work = 1200, block = 100, write = 100, restart = 900 }, -- restarts fail, too
}

describe("a long run", function()
  for i, case in ipairs(cases) do
    it(("number %d has the useful part of the formula"):format(i), function()
      local seconds = 200000 * case.mtbf
      local given = { seconds = seconds, seed = i }
      for key, value in pairs(case) do given[key] = value end
      local found, wanted = core.run_month(given), core.run_expected(given)
      -- What a failure costs has a deviation of at most some mtbf; 200,000 of them make 1/447 of that, and three times
      -- this holds for these seeds, which do not change.
      assert.near(wanted, found.useful / seconds, 3 / math.sqrt(200000))
      assert.near(200000, found.failures, 4 * math.sqrt(200000))
      assert.same(found, core.run_month(given))
    end)
  end

  it("without failures loses what checkpoints take", function()
    local given = { mtbf = 1e15, work = 900, block = 100, write = 50, restart = 10, seconds = 1000 * 1000, seed = 1 }
    assert.near(0.9, core.run_expected(given), 1e-9)
    assert.near(0.9, core.run_month(given).useful / given.seconds, 1e-9)
  end)

  it("has the best interval where Young and Daly have it, if a checkpoint is short", function()
    local g = goodput { step = 1, nodes = 100, mtbf_of_node = 1e8, restart = 100, block = 20, write = 0 }
    assert.equal(1e6, g.mtbf)
    assert.near(math.sqrt(2 * 20 * 1e6), g.young, 1e-9)
    -- Young leaves out terms of order sqrt(block / mtbf), Daly those of order block / mtbf to the power 3/2
    assert.near(g.young, g.best.interval, g.young * 0.01)
    assert.near(g.daly, g.best.interval, g.daly * 1e-4)
    assert.equal(g.interval, g.best.interval)
  end)

  it("has no better interval than the best, whatever the costs", function()
    for _, case in ipairs(cases) do
      local given = { step = 1, nodes = 1, mtbf_of_node = case.mtbf, restart = case.restart, block = case.block,
        write = case.write }
      local best = goodput(given).best
      for _, steps in ipairs { 0.8, 0.97, 1.03, 1.25 } do
        given.steps = best.interval * steps
        assert.is_true(goodput(given).fraction <= best.fraction * (1 + 1e-12))
      end
    end
  end)
end)
