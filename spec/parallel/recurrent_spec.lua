--- LSTM and GRU in training: data ranks, ZeRO 3, 1D (which leaves them whole), recomputation and two stages give the
-- losses of one rank. f64, 1e-9: only the order of sums differs, over 6 steps of AdamW.
-- sanitizers: no, numbers of several ranks are compared; spec/nn/recurrent_spec.lua looks at the same code
local job = require "spec.parallel.job"

local recipe = [[
return {
  name = "recurrent", seed = 5, dtype = "f64",
  model = { type = "Sequential", layers = {
    { type = "AvgPool2d", kernel = 4 }, { type = "Lambda", fn = function(x) return x:select(2, 1) end },
    { type = "LSTM", inputs = 7, hidden = 6, layers = 2, dropout = 0.2, bidirectional = true, returns = "sequence" },
    { type = "GRU", inputs = 12, hidden = 5, returns = "last" }, { type = "Linear", inputs = 5, outputs = 10 } } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-2 }, epochs = 1,
}
]]
local STEPS = 6

describe("recurrent layers in training #ranks", function()
  local function run(ranks, ...)
    return job.run(recipe, ranks, { steps = STEPS, set = { ... }, flags = { "--no-eval" } })
  end
  local one
  setup(function() one = run(1) end)

  for name, given in pairs {
    ["three data ranks"] = { 3 },
    ["ZeRO 3"] = { 2, "zero={stage=3}" },
    ["1D"] = { 2, 'parallel={tensor={size=2,mode="1d"}}' },
    ["two stages"] = { 2, "parallel={pipeline=2}", "num_microbatches=2" },
    ["recomputation"] = { 1, "recompute={sections='3'}" },
  } do
    it("give the losses of one rank with " .. name, function()
      assert.is_true(job.largest_difference(one, run(unpack(given)), STEPS) <= 1e-9)
    end)
  end
end)
