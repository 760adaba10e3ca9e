--- A recipe whose loss is a plain function of output and target trains as with the class of the same formula, also on
-- ranks; a function without arguments makes the loss, and one that makes nothing is refused.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local agree = require("spec.support.numeric").agree
local job = require "spec.parallel.job"

local RECIPE = [[
local gm = require "ganymede"
return gm.recipe {
  model = { type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 40 }, batch_size = 10 },
  loss = %s, optimizer = { type = "SGD", lr = 1e-1 }, steps = 6, dtype = "f64",
}
]]

local function losses(loss, ranks, options) return job.run(RECIPE:format(loss), ranks or 1, options or {}).loss end

describe("the loss of a recipe as a function", function()
  local plain = "function(output, target) return gm.ops.cross_entropy(output, target):mean() end"
  local want = losses '{ type = "CrossEntropyLoss" }'

  it("of output and target is the loss itself", function()
    assert.equal(6, #want)
    assert.is_true(math.abs(want[1] - want[6]) > 1e-3, "it trains")
    agree(losses(plain), want, 1e-12)
  end)

  it("is a mean over the batch of all ranks, and over the batches of a step", function()
    agree(losses(plain, 3), want, 1e-12)
    agree(losses(plain, 1, { set = { "gradient_accumulation=2", "data.batch_size=5" } }), want, 1e-12)
  end)

  it("without arguments makes the loss", function()
    agree(losses "function() return gm.nn.CrossEntropyLoss {} end", want, 0)
  end)

  it("that makes nothing is refused, with what would be right", function()
    local found = job.run(RECIPE:format "function() end", 1, { code = 2 })
    assert.is_truthy(found.err:find("loss: the function returned nothing; without arguments it makes a loss", 1, true),
      found.err)
  end)
end)
