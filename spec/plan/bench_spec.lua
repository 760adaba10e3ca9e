--- The benches of plans (spec/bench/plan) find the legal settings of their models. Measuring them takes an hour; this
-- shows that what they call is there.
-- sanitizers: no, Lua alone
local shell = require "spec.support.shell"
local steps = require "spec.bench.plan.steps"

describe("the benches of plans", function()
  it("list the settings of a model on two ranks", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local bench = steps.new { out = folder, timed = 1, platform = "cpu_ethernet" }
    local list = bench:settings("gpt", 2, { zero = 0 })
    local seen, modes = {}, {}
    for _, one in ipairs(list) do
      local words, s = one.words, one.setting
      assert.is_nil(seen[words], words)
      seen[words] = true
      assert.equal("table", type(one.sets))
      assert.equal(2, s.data * s.tensor.size * s.sequence.size * s.pipeline.size)
      if s.tensor.size > 1 then modes.tensor = true end
      if s.pipeline.size > 1 then modes.pipeline = true end
      if s.data > 1 then modes.data = true end
    end
    assert.same({ tensor = true, pipeline = true, data = true }, modes)
  end)

  it("find the best of what was measured", function()
    local rows = { a = { words = "a", measured = 3 }, b = { words = "b", measured = 2 }, c = { words = "c" } }
    local best, list = steps.best_of(rows)
    assert.same({ "b", "a", "b", 2 }, { best.words, list[1].words, list[2].words, #list })
    assert.equal("regret 50.0 %", steps.regret(best.measured, 3))
  end)
end)
