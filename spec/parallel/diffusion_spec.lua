--- A small diffusion model on several ranks trains as on one: data, ZeRO, 1D tensor parallelism, stages through the
-- middle of a U-Net, and blocks that run again. Times, noise and left-out classes are those of one rank too. In f64
-- only the order of sums differs; a few steps of SGD make 1e-9 of that.
-- sanitizers: no, numbers of several ranks are compared; spec/golden/layers_spec.lua runs the same code on one
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

local recipe = [[
return {
  name = "diffusion", seed = 5, dtype = "f64",
  model = { type = "Diffusion", drop = 0.3, process = { schedule = "cosine", prediction = "v" }, denoiser = { MODEL } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 8 },
  loss = { type = "DiffusionLoss" },
  schedule = { type = "NonPipelineSchedule", data_process_func = function(x, y) return { x, y }, y end },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9 },
  epochs = 1,
}
]]
local STEPS = job.full and 4 or 2
local models = {
  UNet = [[type = "UNet", channels = 1, width = 4, multipliers = { 1, 2 }, blocks = 1, groups = 2, heads = 2,
    attention = { 2 }, classes = 11, dropout = 0.1]],
  DiT = [[type = "DiT", image_size = 28, patch_size = 7, channels = 1, width = 8, depth = 2, heads = 2, classes = 11]],
}

describe("a diffusion model #ranks", function()
  local home, runs, one
  local function run(kind, ranks, set)
    runs = runs + 1
    local folder = ("%s/%d"):format(home, runs)
    shell.run("mkdir " .. shell.quote(folder))
    return job.run_in(folder, job.changed(recipe, { "MODEL", models[kind] }), ranks,
      { steps = STEPS, set = set, flags = { "--no-eval" } })
  end
  setup(function()
    home, runs = shell.temporary_folder(), 0
    one = { UNet = run("UNet", 1), DiT = run("DiT", 1) }
  end)
  teardown(function() shell.remove(home) end)

  for _, given in ipairs {
    { "UNet", "3 data ranks", 3, {} }, { "UNet", "2 ranks with ZeRO 3 #slow", 2, { "zero=3" } },
    { "UNet", "2 tensor ranks #slow", 2, { "parallel.tensor={size=2,mode='1d'}" } },
    { "UNet", "one rank whose blocks run again", 1, { "recompute={sections='1-4'}" } },
    { "UNet", "8 ranks in 3D", 8, { "parallel.tensor={size=8,mode='3d'}" } },
    { "DiT", "2 tensor ranks", 2, { "parallel.tensor={size=2,mode='1d'}" } },
    -- 4 rows of patches: a rank's share of all patches is no whole number of rows
    { "DiT", "3 ranks that share its patches", 3, { "parallel.sequence=3" } },
  } do
    local kind, what, ranks, set = unpack(given)
    it(("trains a %s as on one on %s"):format(kind, what), function()
      assert.is_true(one[kind].loss[1] > 0.1)
      assert.is_true(job.largest_difference(one[kind], run(kind, ranks, set), STEPS) <= 1e-9)
    end)
  end

  for kind in pairs(models) do
    local slow = kind == "DiT" and " #slow" or ""
    it(("trains a %s in two stages of micro-batches as on one rank%s"):format(kind, slow), function()
      local pieces = "num_microbatches=2"
      local text = job.changed(recipe, { "MODEL", models[kind] },
        { [[type = "NonPipelineSchedule"]], [[type = "PipelineSchedule", order = "1f1b"]] })
      local set = { pieces, "parallel={pipeline=2}" }
      local cut = job.run(text, 2, { steps = STEPS, set = set, flags = { "--no-eval" } })
      assert.is_true(job.largest_difference(one[kind], cut, STEPS) <= 1e-9) -- noise belongs to samples, not to pieces
    end)
  end

  it("sends no image where 2 ranks share its rows of patches", function()
    local cut = run("DiT", 2, { "parallel.sequence=2" })
    assert.is_true(job.traffic(cut, { op = "send", phase = "forward" }) > 0) -- keys and values
    for _, op in ipairs { "all_to_all", "reduce_scatter", "all_gather" } do
      assert.equal(0, job.traffic(cut, { op = op, phase = "forward" }), op)
    end
  end)
end)
