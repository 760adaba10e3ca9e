--- Training in bf16 on several ranks: the same run as on one, within what bf16 rounds.
--
-- Each rank rounds its part of a gradient to 16 bits before the parts are summed in f32, and activations that are sums
-- over ranks likewise: gradients differ by some 2^-9 of their largest number. AdamW's updates do not grow with
-- gradients, so that in twelve steps the losses part by 2^-11 or less (measured: 4.3e-4 in 2D, 1.1e-4 else); twice that
-- is allowed. A learning rate that is 2 % off parts them by 4.5e-3, a rank whose samples are left out by 8e-2.
local assert = require "luassert"
local job = require "spec.parallel.job"

local recipe = [[
local gm = require "ganymede"
return gm.recipe {
  name = "precision", dtype = "bf16", seed = 7, clip_grad_norm = 1, hooks = {},
  model = { type = "GPT", vocabulary = 256, sequence_length = 16, width = 16, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", sequence_length = 16, stride = 4 },
           batch_size = 8 },
  loss = { type = "CrossEntropyLoss", label_smoothing = 0.1 },
  optimizer = { type = "AdamW", lr = 0.01 },
}
]]

local steps = 12
local on_one

local function whole()
  on_one = on_one or job.run(recipe, 1, { steps = steps })
  return on_one
end

describe("training in bf16", function()
  for _, case in ipairs {
    { 2, "data", "{data=2}" }, { 2, "pipeline", "{pipeline=2}" }, { 2, "ring attention", "{sequence=2}" },
    { 4, "2D", '{tensor={size=4,mode="2d"}}' }, { 2, "1D", '{tensor={size=2,mode="1d",sequence=true}}' },
    { 4, "1D, data #slow", '{data=2,tensor={size=2,mode="1d"}}' },
    { 4, "1D, pipeline #slow", '{pipeline=2,tensor={size=2,mode="1d"}}' },
    { 4, "Ulysses, data #slow", '{data=2,sequence={size=2,mode="ulysses"}}' },
    { 8, "2.5D #slow", '{tensor={size=8,mode="2.5d",depth=2}}' },
    { 8, "3D #slow", '{tensor={size=8,mode="3d"}}' },
  } do
    local ranks, name, parallel = unpack(case)
    it(("on %d ranks (%s) is that on one"):format(ranks, name), function()
      local sets = { "parallel=" .. parallel }
      if name:find "pipeline" then sets[2] = "num_microbatches=2" end
      local got = job.run(recipe, ranks, { steps = steps, set = sets })
      local worst, at = job.largest_difference(whole(), got, steps)
      assert.is_true(worst <= 2 ^ -10, ("losses differ by %g of their size at step %d"):format(worst, at))
      assert.is_true(got.loss[steps] < 0.8 * got.loss[1])
    end)
  end

  it("on one rank is not that in f32, and near it", function()
    local wide = job.run(recipe, 1, { steps = steps, set = { "dtype=f32" } })
    local worst = job.largest_difference(wide, whole(), steps)
    assert.is_true(worst > 0 and worst <= 2 ^ -10, worst)
  end)
end)
