--- The benches of plans (spec/bench/plan) find the legal settings of their models. Measuring them takes an hour; this
-- shows that what they call is there.
-- sanitizers: no, Lua alone
local setting = require "ganymede.plan.search.setting"
local shell = require "spec.support.shell"
local steps = require "spec.bench.plan.steps"

describe("the benches of plans", function()
  it("list the settings of a model on two ranks", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local bench = steps.new { out = folder, timed = 1, platform = "cpu_ethernet" }
    local list, facts = bench:settings("gpt", 2, { zero = 0 })
    local seen, modes = {}, {}
    for _, s in ipairs(list) do
      local words = setting.words(s, facts)
      assert.is_nil(seen[words], words)
      seen[words] = true
      assert.equal(2, s.data * s.tensor.size * s.sequence.size * s.pipeline.size)
      if s.tensor.size > 1 then modes.tensor = true end
      if s.pipeline.size > 1 then modes.pipeline = true end
      if s.data > 1 then modes.data = true end
    end
    assert.same({ tensor = true, pipeline = true, data = true }, modes)
  end)
end)
