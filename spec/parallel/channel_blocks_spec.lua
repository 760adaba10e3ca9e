--- Models of images in 2D and 2.5D tensor parallelism, whose ranks share samples and channels, train as on one rank:
-- losses of several steps; no rank holds a whole weight; checkpoints go between modes, parameters and moments included.
--
-- In f64 only the order of sums differs; a few steps of SGD make 1e-9 of that. Channels divide evenly and unevenly.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/channel_blocks_spec.lua looks at the same code
local chain = require "spec.parallel.chain"
local equality = require "spec.parallel.equality"
local full = require "spec.support.full"
local job = require "spec.parallel.job"

local STEPS, LIMIT = 3, 1e-9
local two_d, two_and_half = "parallel={tensor={size=4,mode='2d'}}", "parallel={tensor={size=8,mode='2.5d',depth=2}}"

local recipe = [[
return {
  name = "channels", seed = 5, dtype = "f64",
  model = { %s },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]

local diffusion = [[
return {
  name = "diffusion", seed = 5, dtype = "f64",
  model = { type = "Diffusion", drop = 0.3, process = { schedule = "cosine", prediction = "v" }, denoiser = { %s } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 6 },
  loss = { type = "DiffusionLoss" },
  schedule = { type = "NonPipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]

local autoencoder = [[
return {
  name = "autoencoder", seed = 5, dtype = "f64",
  model = { %s },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 6 },
  loss = { type = "VAELoss" },
  schedule = { type = "NonPipelineSchedule", data_process_func = function(x) return x, x end },
  optimizer = { type = "SGD", lr = 1e-4, momentum = 0.9 },
  epochs = 1,
}
]]

local volumes = [[
local gm = require "ganymede"
local function volume(i)
  local x = gm.uniform({ 8, 8, 4 }, { low = -1, high = 1, seed = i, dtype = "f64" })
  return x:reshape(1, 8, 8, 4), gm.ops.cast(gm.ops.gt(x, 0.3), "i64")
end
return {
  name = "volumes", seed = 3, dtype = "f64",
  model = { %s },
  data = { train = { length = 9, get = volume }, test = { length = 3, get = volume }, batch_size = 3 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.2, momentum = 0.9 }, epochs = 1,
  metrics = { { type = "IoU", name = "mean_iou" } },
}
]]

-- Name, recipe, model.
local models = {
  { "ResNet, bottlenecks, the stem of ImageNet", recipe, [[type = "ResNet", depth = 50, blocks = { 1, 1 }, width = 3,
    channels = 1, classes = 10]] },
  { "ResNet, the stem of small images", recipe, [[type = "ResNet", depth = 18, blocks = { 1, 1, 1 }, stem = "cifar",
    width = 4, channels = 1, classes = 10]] },
  { "VGG", recipe, [[type = "VGG", blocks = { 1, 1 }, width = 4, hidden = 8, pool = 2, dropout = 0.2, channels = 1,
    classes = 10]] },
  { "VGG, channels that its dense layers divide otherwise", recipe, [[type = "VGG", blocks = { 1 }, width = 3,
    hidden = 8, pool = 2, dropout = 0, batch_norm = true, channels = 1, classes = 10]] },
  { "ConvNeXt", recipe, [[type = "ConvNeXt", blocks = { 1, 1 }, width = 4, layer_scale = 0.5, kernel = 3,
    drop_path = 0.2, channels = 1, classes = 10]] },
  { "ConvNeXt, depthwise convolutions that are whole", recipe, [[type = "ConvNeXt", blocks = { 1 }, width = 5,
    layer_scale = 0.5, kernel = 3, channels = 1, classes = 10]] },
  { "Swin", recipe, [[type = "Swin", blocks = { 2, 1 }, heads = { 2, 2 }, width = 4, patch_size = 4, window = 2,
    channels = 1, classes = 10]] },
  { "MLPMixer", recipe, [[type = "MLPMixer", image_size = 28, patch_size = 7, width = 6, depth = 2, token_hidden = 5,
    drop_path = 0.2, channels = 1, classes = 10]] },
  { "UNet", diffusion, [[type = "UNet", channels = 1, width = 4, multipliers = { 1, 2 }, blocks = 1, groups = 2,
    heads = 2, attention = { 2 }, classes = 11, dropout = 0.1]] },
  { "UNet, times that scale, groups that ranks share", diffusion, [[type = "UNet", channels = 1, width = 6,
    multipliers = { 1, 2 }, blocks = 1, groups = 3, heads = 2, attention = { 1, 2 }, scale_shift = true,
    classes = 11]] },
  { "DiT", diffusion, [[type = "DiT", image_size = 28, patch_size = 7, channels = 1, width = 8, depth = 2, heads = 2,
    classes = 11]] },
  { "AutoencoderKL", autoencoder, [[type = "AutoencoderKL", channels = 1, latent = 2, width = 4, multipliers = { 1, 2 },
    blocks = 1, groups = 2, attention = false]] },
  { "SegmentationUNet", volumes, [[type = "SegmentationUNet", width = 3, levels = 2, classes = 3]] },
  { "SegmentationUNet, norms of each image", volumes, [[type = "SegmentationUNet", width = 2, levels = 2, classes = 3,
    norm = "instance"]] },
}

-- Ranks, what is set beside it.
local further = {
  { "2.5D on 8", 8, { two_and_half } },
  { "2D beside 2 of data, ZeRO 3 on 8", 8, { "parallel={data=2,tensor={size=4,mode='2d'}}", "zero=3" }, full = true },
  { "2D whose blocks run again", 4, { two_d, "recompute={sections='1-3'}" } },
  { "2D on 9", 9, { "parallel={tensor={size=9,mode='2d'}}" }, full = true },
}

-- Of all ResNets of these sizes.
local function resnet(width) return recipe:format(models[2][3]:gsub("width = %d", "width = " .. width)) end

describe("models whose ranks share channels #ranks", function()
  for _, model in ipairs(models) do
    it(model[1] .. " trains as on one rank", function()
      local text = model[2]:format(model[3])
      local one, many = job.run(text, 1, { steps = STEPS }), job.run(text, 4, { steps = STEPS, set = { two_d } })
      assert.is_true(one.loss[1] > 0.1)
      assert.is_true(job.largest_difference(one, many, STEPS) <= LIMIT)
      if model[2] == volumes then assert.near(one.metrics.test.mean_iou, many.metrics.test.mean_iou, LIMIT) end
    end)
  end

  for _, way in ipairs(further) do
    if full or not way.full then
      it("ResNet trains as on one rank: " .. way[1], function()
        local one, many = job.run(resnet(4), 1, { steps = STEPS }), job.run(resnet(4), way[2],
          { steps = STEPS, set = way[3] })
        assert.is_true(job.largest_difference(one, many, STEPS) <= LIMIT)
      end)
    end
  end

  it("a DiT trains as on one rank: 3D on 8", function()
    local text
    for _, model in ipairs(models) do text = model[1] == "DiT" and model[2]:format(model[3]) or text end
    local one = job.run(text, 1, { steps = STEPS })
    local many = job.run(text, 8, { steps = STEPS, set = { "parallel={tensor={size=8,mode='3d'}}" } })
    assert.is_true(job.largest_difference(one, many, STEPS) <= LIMIT)
  end)

  for _, norm in ipairs { "batch", "instance" } do
    it("a U-Net of volumes whose depth ranks share, too, trains as on one rank: norms of each " .. norm, function()
      local text, set = volumes:format(models[#models - 1][3]), { "model.norm=" .. norm }
      local one = job.run(text, 1, { steps = STEPS, set = set })
      local many = job.run(text, 8, { steps = STEPS,
        set = { "parallel={sequence=2,tensor={size=4,mode='2d'}}", set[1] } })
      assert.is_true(job.largest_difference(one, many, STEPS) <= LIMIT)
    end)
  end

  it("hold a quarter of the numbers on each of 4 ranks", function()
    local one, many = job.run(resnet(8), 1, { steps = 1 }), job.run(resnet(8), 4, { steps = 1, set = { two_d } })
    for rank = 1, 4 do -- the one channel of the image becomes two blocks, of which one is padding: 9 x 8 numbers
      assert.is_true(many.ranks[rank].parameter_bytes <= 0.26 * one.ranks[1].parameter_bytes)
    end
  end)

  it("go between modes by checkpoints", function()
    equality.recipes.resnet = resnet(16)
    local function stop(name, ranks, parallel, mesh)
      return { name = name, ranks = ranks, parallel = parallel, mesh = mesh }
    end
    local in_2d = stop("2d on 4", 4, "{tensor={size=4,mode='2d'}}", { row = 2, col = 2 })
    chain.run("resnet", { in_2d, stop("one", 1, "{data=1}", {}), in_2d,
      stop("1d on 2", 2, "{tensor={size=2,mode='1d'}}", { tensor = 2 }) }, 2)
  end)
end)
