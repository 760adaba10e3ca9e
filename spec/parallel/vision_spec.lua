--- Small models of images on several ranks train as on one: data, ZeRO 3, 1D tensor parallelism, stages, regions that
-- run again. In f64 only the order of sums differs; 2 steps of SGD make 1e-9 of that.
-- sanitizers: no, numbers of several ranks are compared; spec/golden/layers_spec.lua runs the same code on one
local gm = require "ganymede"
local job = require "spec.parallel.job"
local full = require "spec.support.full"
local shell = require "spec.support.shell"

local recipe = [[
return {
  name = "vision", seed = 5, dtype = "f64",
  model = { %s, channels = 1, classes = 10 },
  data = { train = { type = "FashionMNIST", root = "images", split = "train"%s }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]
local STEPS = 2

local one_d, stages = "parallel.tensor={size=2,mode='1d'}", { "num_microbatches=2",
  "schedule={type='PipelineSchedule',order='1f1b'}" }

-- Model, options; in 1D; whether two ranks share its sequence.
local models = {
  { "Swin", "blocks = { 2, 1 }, heads = { 2, 2 }, width = 4, patch_size = 4, window = 2, drop_path = 0.2" },
  { "ConvNeXt", "blocks = { 1, 1 }, width = 4, layer_scale = 0.5, kernel = 3, drop_path = 0.2" },
  { "MLPMixer", "image_size = 28, patch_size = 7, width = 6, depth = 2, token_hidden = 4, dropout = 0.1" },
  { "VGG", "blocks = { 1, 1 }, width = 4, hidden = 8, pool = 2, batch_norm = true, dropout = 0.2" },
}

describe("models of images #ranks", function()
  local home, runs
  setup(function() home, runs = shell.temporary_folder(), 0 end)
  teardown(function() shell.remove(home) end)

  local function run(model, ranks, set, data)
    runs = runs + 1
    local folder = ("%s/%d"):format(home, runs)
    shell.run("mkdir " .. shell.quote(folder))
    local text = recipe:format(('type = "%s", %s'):format(unpack(model)), data or "")
    return job.run_in(folder, text, ranks, { steps = STEPS, set = set, flags = { "--no-eval" } })
  end

  for i, model in ipairs(models) do
    it(model[1] .. " trains on several ranks as on one", function()
      local one = run(model, 1)
      local ways = { ["data"] = { 3, {} }, ["1d"] = { 2, { one_d } }, ["again"] = { 1, { "recompute=block" } },
                     ["zero 3"] = { 2, { "zero=3" } } }
      if model[1] == "VGG" then ways.again = { 1, { "recompute={sections='1-2'}" } } end
      for what, given in pairs(ways) do
        local in_turn = what == "1d" or what == (({ "data", "zero 3", "again", "data" })[i])
        if full or in_turn then
          assert.is_true(job.largest_difference(one, run(model, unpack(given)), STEPS) <= 1e-9, what)
        end
      end
    end)
  end

  for _, given in ipairs {
    { "Swin in 3D", 1, 8, "{size=8,mode='3d'}" }, { "ConvNeXt in 3D", 2, 8, "{size=8,mode='3d'}" },
    { "Swin in 1D with cut sequences", 1, 2, "{size=2,mode='1d',sequence=true}" },
  } do
    local what, model, ranks, tensor = unpack(given)
    it(what .. ", whose stages come after a layer that stands alone, trains as on one rank", function()
      local one, cut = run(models[model], 1), run(models[model], ranks, { "parallel.tensor=" .. tensor })
      assert.is_true(job.largest_difference(one, cut, STEPS) <= 1e-9)
    end)
  end

  it("a transformer on volumes trains on ranks that share its patches as on one", function()
    local text = [[return { name = "volumes", seed = 3, dtype = "f64",
      model = { type = "VisionTransformer", image_size = { 4, 4, 6 }, patch_size = 2, channels = 1, classes = 3,
                width = 8, depth = 2, heads = 2, dropout = 0.1 },
      data = { train = { type = "Synthetic", length = 12, shape = { 1, 4, 4, 6 }, classes = 3 }, batch_size = 6 },
      loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.05 }, epochs = 1 }]]
    local function on(ranks, set)
      return job.run_in(home, text, ranks, { steps = STEPS, set = set, flags = { "--no-eval" } })
    end
    local one = on(1)
    for _, given in ipairs { { 3, "ring" }, { 2, "ulysses" } } do
      local many = on(given[1], { ("parallel.sequence={size=%d,mode='%s'}"):format(unpack(given)) })
      assert.is_true(job.largest_difference(one, many, STEPS) <= 1e-9, given[2])
    end
  end)

  it("a mixer trains on ranks that share its patches as on one", function()
    local one = run(models[3], 1)
    local many = run(models[3], 3, { "parallel.sequence=3" })
    assert.is_true(job.largest_difference(one, many, STEPS) <= 1e-9)
  end)

  it("train on batches that data ranks share unevenly, and on a single sample", function()
    local text = [[return { name = "last", seed = 3, dtype = "f64",
      model = { type = "Swin", blocks = { 2 }, heads = { 2 }, width = 4, patch_size = 2, window = 4, channels = 1,
                classes = 3 },
      data = { train = { type = "Synthetic", length = 3, shape = { 1, 16, 16 }, classes = 3 }, batch_size = 2 },
      loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.05 }, epochs = 1 }]]
    local function on(ranks) return job.run_in(home, text, ranks, { flags = { "--no-eval" } }) end
    assert.is_true(job.largest_difference(on(1), on(2), 2) <= 1e-9)
    -- three samples on two data ranks, whose windows go through layers that each rank has a half of
    text = job.changed(text, { "length = 3", "length = 5" }, { "batch_size = 2", "batch_size = 3" })
    local many = job.run_in(home, text, 4, { set = { "parallel={data=2,tensor={size=2,mode='1d'}}" },
      flags = { "--no-eval" } })
    assert.is_true(job.largest_difference(on(1), many, 2) <= 1e-9)
  end)

  it("train in two stages as on one rank, with the same micro-batches", function()
    for i, model in ipairs(models) do
      if full or i == 1 then
        local one = run(model, 1, stages)
        local two = run(model, 2, { "parallel={pipeline=2}", unpack(stages) })
        assert.is_true(job.largest_difference(one, two, STEPS) <= 1e-9, model[1])
      end
    end
  end)
end)

describe("models of images", function()
  -- torchvision 0.29 and timm 1.0. Nothing is allocated.
  it("have as many parameters as those of torchvision and timm", function()
    local all = {
      { "Swin", { size = "tiny" }, 28288354 }, { "Swin", { size = "small" }, 49606258 },
      { "Swin", { size = "base" }, 87768224 }, { "Swin", { size = "large" }, 196532476 },
      { "ConvNeXt", { size = "tiny" }, 28589128 }, { "ConvNeXt", { size = "small" }, 50223688 },
      { "ConvNeXt", { size = "base" }, 88591464 }, { "ConvNeXt", { size = "large" }, 197767336 },
      { "MLPMixer", {}, 59880472 }, { "MLPMixer", { width = 512, depth = 8 }, 18528264 },
      { "VGG", { depth = 11 }, 132863336 }, { "VGG", { depth = 13 }, 133047848 }, { "VGG", {}, 138357544 },
      { "VGG", { depth = 19 }, 143667240 }, { "VGG", { depth = 19, batch_norm = true }, 143678248 },
    }
    for _, case in ipairs(all) do assert.equal(case[3], gm.models[case[1]](case[2]):count(), case[1]) end
  end)

  it("refuse what cannot be meant", function()
    local function refused(name, options, text)
      assert.error_matches(function() gm.models[name](options) end, text, 1, true)
    end
    refused("VGG", { blocks = {} }, "VGG: blocks needs at least one stage")
    refused("ConvNeXt", { blocks = { 1, 1.5 } }, "ConvNeXt: blocks[2] must be a whole number from 1; got 1.5")
    refused("Swin", { blocks = { 1, 1 }, heads = { 1 } }, "Swin: heads has 1 stages, and blocks has 2")
    refused("Swin", { width = 5, blocks = { 1 }, heads = { 2 } }, "heads = 2 must divide width = 5")
    refused("ConvNeXt", { kernel = 2 }, "kernel = 2 must be odd")
  end)
end)
