--- A loss that compares each sample with all others of the batch (InfoNCE): nn.stream.whole gathers the batch, and
-- gradients travel back. It is the same on one rank and on meshes that cut the batch.
-- sanitizers: no, numbers of several ranks are compared; spec/layout looks at the same code
local assert = require "luassert"
local job = require "spec.parallel.job"

local recipe = [[
local gm = require "ganymede"
local nn, ops = gm.nn, gm.ops

local Contrast = nn.class "Contrast"
Contrast.options = { temperature = { type = "number", above = 0, default = 0.5, doc = "what logits are divided by" } }

function Contrast:count(label) return label:size(1) end

local function unit(x) return x / (x:square():sum(2, true) + 1e-12):sqrt() end

-- x (batch, 2 width): two views of each sample, each of which should find the other among those of all samples
function Contrast:forward(x, label, count)
  local width = x:size(2) / 2
  local a, b = unit(x:narrow(2, 1, width)), nn.stream.whole(unit(x:narrow(2, width + 1, width)), 1)
  local logits = ops.matmul(a, b:transpose(1, 2)) / self.opt.temperature
  return ops.cross_entropy(logits, gm.arange(x:size(1))):sum() / (count or self:count(label))
end

return gm.recipe {
  name = "contrast", seed = 5, dtype = "f64", steps = 5,
  model = { type = "MLP", inputs = 6, hidden = { 16 }, classes = 8 }, loss = Contrast {},
  data = { train = { type = "Synthetic", length = 64, shape = { 6 }, classes = 3 },
    test = { type = "Synthetic", length = 21, shape = { 6 }, classes = 3, split = "test" }, batch_size = 7 },
  optimizer = { type = "SGD", lr = 0.1 },
}
]]

describe("a contrastive loss #ranks", function()
  local one
  setup(function() one = job.run(recipe, 1) end)

  for _, case in ipairs { { 2, "data=2" }, { 4, "data=2,tensor={size=2,mode='1d'}" },
                          { 4, "tensor={size=4,mode='2d'}" } } do
    it("has negatives of all ranks: " .. case[2], function()
      local many = job.run(recipe, case[1], { set = { "parallel={" .. case[2] .. "}" } })
      assert.equal(5, #many.loss)
      for i, loss in ipairs(one.loss) do assert.near(loss, many.loss[i], 1e-13) end
      assert.near(one.metrics.test.loss, many.metrics.test.loss, 1e-13)
      assert.is_true(one.loss[5] < one.loss[1])
    end)
  end
end)
