-- Convolutions train on every mesh as on one rank: data, ZeRO, recomputation, stages, channels cut in 1D, other
-- modes.
--
-- 7 channels between the first two and 5 behind the last divide by no mesh; the 6 groups of the third are shared by 2
-- ranks and whole on 4. Only the order of sums differs: in f64 6 steps agree to 1e-12. SGD, which a gradient of the
-- wrong size cannot pass.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/padding_spec.lua looks at the same code
local job = require "spec.parallel.job"

local recipe = [[
local gm = require "ganymede"
return {
  name = "convolutions", seed = 4, dtype = "f64",
  model = { type = "Sequential", layers = {
    { type = "Conv2d", in_channels = 1, out_channels = 7, kernel_size = 5, stride = 3, padding = 2, activation = "gelu",
      partition = "column" },
    { type = "Conv2d", in_channels = 7, out_channels = 6, kernel_size = 3, padding = "same", activation = "silu",
      partition = "row" },
    { type = "Conv2d", in_channels = 6, out_channels = 6, kernel_size = 3, stride = 2, groups = 6 },
    { type = "ConvTranspose2d", in_channels = 6, out_channels = 8, kernel_size = 2, stride = 2, activation = "gelu",
      partition = "column" },
    { type = "ConvTranspose2d", in_channels = 8, out_channels = 5, kernel_size = 2, partition = "row" },
    { type = "Conv2d", in_channels = 5, out_channels = 3, kernel_size = 3 },
    { type = "Lambda", fn = function(x) return x:reshape(x:size(1), -1) end },
    { type = "Classifier", inputs = 3 * 7 * 7, classes = 10 },
  } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]
local STEPS = job.steps(6)

local function tensor(mode, size) return ("parallel={tensor={size=%d,mode='%s'}}"):format(size, mode) end

local meshes = {
  { "data 3", 3, {} },
  { "data 2, ZeRO 3, recomputed", 2, { "zero={stage=3,whole_below=0}", "recompute={'2','4'}" } },
  { "two stages, data 2", 4, { "parallel={pipeline=2,data=2}", "num_microbatches=2" } },
  { "1d on 2", 2, { tensor("1d", 2) } },
  { "1d on 4", 4, { tensor("1d", 4) } },
  { "2d on 4 #slow", 4, { tensor("2d", 4) } },
  { "1d on 2, data 2, ZeRO 1 #slow", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}", "zero=1" } },
}

describe("convolutions #ranks", function()
  local one
  local function serial()
    one = one or job.run(recipe, 1, { steps = STEPS })
    return one
  end

  it("learn", function() assert.is_true(serial().loss[STEPS] < serial().loss[1]) end)

  for _, mesh in ipairs(meshes) do
    it("train as on one rank: " .. mesh[1], function()
      local many = job.run(recipe, mesh[2], { steps = STEPS, set = mesh[3] })
      assert.is_true(job.largest_difference(serial(), many, STEPS) <= 1e-12)
    end)
  end
end)
