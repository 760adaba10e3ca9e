-- Models whose dense layers multiply floats of 8 bits with scales of blocks train as on one rank on every mesh that
-- cuts tensors between blocks. A rank's rows are whole blocks: 2 samples of 256 tokens of 3 data ranks, 128 tokens of a
-- ring of two. In 1D, a rank's part of 256 inputs, of 768 and of 1,024 outputs is whole blocks.
--
-- Only the order of sums differs: see spec/parallel/float8_spec.lua.
-- sanitizers: no, numbers of several ranks are compared; spec/layout/float8_blocks_spec.lua looks at the same code
local job = require "spec.parallel.job"

local recipe = [[
return {
  name = "float8", seed = 6, dtype = "f64", float8 = { scaling = "blocks" },
  model = { type = "GPT", vocabulary = 261, sequence_length = 256, width = 256, depth = 2, heads = 4, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 256, stride = 64 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]
local STEPS = 3

-- ranks, settings, those of the one rank
local meshes = {
  { "data 3, ZeRO 3, recomputed", 3, { "zero={stage=3,whole_below=0}", "recompute=block" } },
  { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" },
    { "gradient_accumulation=2", "data.batch_size=3" } },
  { "1d on 2, sequence", 2, { "parallel={tensor={size=2,mode='1d',sequence=true}}" } },
  { "ring on 2", 2, { "parallel={sequence=2}" } },
}

describe("floats of 8 bits with scales of blocks #ranks", function()
  local serial = job.serial(recipe, STEPS)

  it("change what is computed", function()
    local current = job.run(recipe, 1, { steps = STEPS, set = { "float8=true" } })
    local apart = job.largest_difference(serial(), current, STEPS)
    assert.is_true(apart > 1e-6 and apart < 0.02, tostring(apart))
  end)

  for _, mesh in ipairs(meshes) do
    it("train as on one rank: " .. mesh[1], function()
      local many = job.run(recipe, mesh[2], { steps = STEPS, set = mesh[3] })
      local apart = job.largest_difference(serial(mesh[4]), many, STEPS)
      assert.is_true(apart <= 1e-12, tostring(apart))
    end)
  end

  it("are refused where rows of a rank are no whole blocks, and say what would be right", function()
    local run = job.run(recipe, 2, { code = 1, steps = 1, set = { "data.batch_size=2", "data.train.sequence_length=64",
      "model.sequence_length=64" } })
    assert.matches("a rank has runs of 64 rows of x, .* needs multiples of 128 rows", run.err)
  end)
end)
