-- The clocks of ranks: how far apart they are is found, with a bound, wherever they stand.
-- ranks: 1 3
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local clocks = require "ganymede.observe.clocks"
local core = require "ganymede.core"

describe("clocks.offsets", function()
  it("finds how far the clock of each rank is ahead, within the error that it states", function()
    local ahead = { [0] = 0, 1000.25, -7e-2 }
    local list = clocks.offsets(function() return core.executor_clock() + ahead[core.rank()] end)
    assert.equal(core.world(), #list)
    for i, found in ipairs(list) do
      assert.is_true(math.abs(found.offset - ahead[i - 1]) <= found.error + 1e-9)
      assert.is_true(found.error >= 0 and found.error < 5, found.error) -- also where ranks wait for cores
      assert.equal(i == 1, found.error == 0)
    end
  end)

  it("is 0 for ranks that share a clock", function()
    for _, found in ipairs(clocks.offsets(core.executor_clock)) do assert.equal(0, found.offset) end
  end)
end)
