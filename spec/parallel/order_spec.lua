-- parallel.order: the same training with the axes of the mesh in other orders, against one rank, to 1e-9 in f64
-- (spec/parallel/equality.lua says why); and what the setting refuses.
-- sanitizers: no, numbers of several ranks are compared
local assert = require "luassert"
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"
local parallel = require "ganymede.job.parallel"

local cases = {
  { "gpt", 4, '{tensor={size=2,mode="1d"},order={"tensor","data"}}', "zero=3" },
  { "gpt", 4, '{pipeline=2,order={"data","pipeline"}}', "num_microbatches=2" },
  { "gpt", 4, '{pipeline=2,order={"pipeline","data"}}', "num_microbatches=2" },
  { "gpt", 8, '{tensor={size=4,mode="2d"},order={"tensor","data"}}' },
  { "gpt", 4, '{sequence=2,tensor={size=2,mode="1d",sequence=true},order={"tensor","sequence"}}' },
  { "moe", 8, '{expert=2,tensor={size=4,mode="2d"},order={"tensor","expert"}}' },
}

describe("parallel.order", function()
  for _, case in ipairs(cases) do
    local model, ranks, given, set = unpack(case)
    it(("%s on %d: %s %s trains as one rank does"):format(model, ranks, given, set or ""), function()
      local reference = equality.serial(model, "f64", nil)
      local stats = equality.run(model, { ranks = ranks, parallel = given }, "f64", job.steps(50), set and { set })
      local worst, at = job.largest_difference(reference, stats, #stats.loss)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    end)
  end

  it("makes the mesh in this order, and needs each axis once", function()
    local tensor = { size = 4, mode = "2d" }
    local plan = parallel.resolve({ tensor = tensor, data = { shard = 2 }, pipeline = 2,
      order = { "tensor", "pipeline", "data" } }, 32)
    assert.same({ { "row", 2 }, { "col", 2 }, { "pipeline", 2 }, { "data", 2 }, { "shard", 2 } }, plan.axes)
    local function refused(order, words)
      local _, message, key = parallel.resolve({ tensor = tensor, expert = 2, order = order }, 16)
      assert.equal("parallel.order", key)
      assert.is_truthy(message:find(words, 1, true), message)
    end
    refused({ "data", "tensor" }, "must name expert")
    refused({ "expert", "data", "tensor" }, "must name data before expert")
    refused({ "data", "expert", "tensor", "data" }, "names data twice")
    refused({ "data", "row" }, "[2] must be one of data, expert")
    refused({ data = 1 }, "must be a list")
    refused("data", "must be a list")
  end)
end)
