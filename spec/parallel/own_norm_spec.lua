--- A model with a norm of the user's own, y * rsqrt(mean(y^2)), on batches that no number of ranks divides: on padded
-- rows it is 0 * inf. It must train like one rank, in every mode; sums in another order change f64 losses by 1e-12.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local assert = require "luassert"
local job = require "spec.parallel.job"

local recipe = [[
local gm = require "ganymede"
local nn, ops = gm.nn, gm.ops
local Model = nn.class("OwnNorm", nil, "models")
Model.options = {}
function Model:build()
  self.a = nn.Linear { inputs = 6, outputs = 8, bias = false }
  self.b = nn.Classifier { inputs = 8, classes = 3, bias = false }
end
function Model:forward(x)
  local y = self.a(x)
  return self.b(y * ops.rsqrt((y * y):mean(-1, true):settle()))
end
return gm.recipe {
  model = { type = "OwnNorm" },
  data = { train = { type = "Synthetic", shape = { 6 }, classes = 3, length = 15 }, batch_size = 5, shuffle = false },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 }, steps = 3, dtype = "f64",
}
]]

describe("a norm of the user's own", function()
  local serial

  local function losses(ranks, parallel)
    return job.run(recipe, ranks, { set = parallel and { "parallel=" .. parallel } or nil }).loss
  end

  for _, mode in ipairs {
    { 3, "{data=3}" }, { 4, "{data=4}" }, { 3, "{tensor={size=3,mode='1d'}}" }, { 4, "{tensor={size=4,mode='2d'}}" },
    { 8, "{tensor={size=8,mode='3d'}}" },
  } do
    it("trains like one rank with " .. mode[2], function()
      serial = serial or losses(1)
      local got = losses(mode[1], mode[2])
      assert.equal(3, #got)
      for i, loss in ipairs(got) do assert.is_true(math.abs(loss - serial[i]) <= 1e-12 * serial[i]) end
    end)
  end
end)
