--- What the measurement of a machine trains: its ranks do not sum gradients, so a slow network does not slow it down.
-- ranks: 2
-- sanitizers: no, what ranks send is counted
local core = require "ganymede.core"
local measure = require "ganymede.plan.measure"

describe("the models that measure a machine", function()
  it("send some numbers in a step, and no gradients", function()
    core.comm_reset_traffic()
    local steps = measure.train { "GPT", 16, 2, 16, 2, 2 }
    assert.equal(10, #steps)
    local bytes = 0
    for _, t in ipairs(core.comm_traffic()) do
      assert.is_true(t.phase ~= "backward", t.op)
      bytes = bytes + t.bytes
    end
    assert.is_true(bytes / 12 < 200, ("%g bytes a step"):format(bytes / 12)) -- the model has 15 thousand
    local products = 0
    for _, e in ipairs(steps[1]) do products = products + (e.kind == "op" and e.products > 0 and 1 or 0) end
    assert.is_true(products > 12) -- forward and backward of two blocks are there
  end)
end)
