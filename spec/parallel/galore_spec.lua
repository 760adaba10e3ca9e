--- GaLore on several ranks: the directions of each matrix are those of its global gradient, whatever cuts it.
--
-- The truth is the run on one rank. Only the order of sums differs: in f64 1e-16 of the terms, which the gaps between
-- singular values divide. 1e-9 holds with room over 12 steps, in which the directions are found three times. Batches of
-- 10, sequences of 31 and 3 experts do not divide evenly by the meshes.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4, bias = false,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "GaLore", lr = 0.01, weight_decay = 0.1, rank = 6, update_proj_gap = 5 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]
local STEPS = 12

local function run(ranks, set, steps)
  return job.run(gpt, ranks, { steps = steps or STEPS, set = set, flags = { "--no-eval" } })
end

local serial = {}
local function truth(set)
  local key = table.concat(set or {}, " ")
  serial[key] = serial[key] or run(1, set)
  return serial[key]
end

local experts = { "model.moe={experts=3,every=2,router={type='TopKRouter',k=2,balance=0.1}}" }
local meshes = {
  { "data 3", 3 }, { "ZeRO 1 on 3", 3, "zero=1" }, { "ZeRO 2 on 2", 2, "zero=2" },
  { "ZeRO 3 on 3", 3, "zero={stage=3,whole_below=0}" },
  { "1d on 2, data 2, ZeRO 2", 4, "parallel={data=2,tensor={size=2,mode='1d'}}", more = { "zero=2" } },
  { "2d on 4", 4, "parallel={tensor={size=4,mode='2d'}}" },
  { "2.5d on 8", 8, "parallel={tensor={size=8,mode='2.5d',depth=2}}", tag = " #slow" },
  { "3d on 8", 8, "parallel={tensor={size=8,mode='3d'}}", tag = " #slow" },
  { "ring on 2, data 2", 4, "parallel={data=2,sequence=2}" },
  { "two stages, data 2", 4, "parallel={data=2,pipeline=2}", more = { "num_microbatches=2" } },
  { "3 experts on 2 of data 4", 4, "parallel={data=4,expert=2}", model = experts },
}

describe("GaLore #ranks", function()
  for _, mesh in ipairs(meshes) do
    it("trains as on one rank: " .. mesh[1] .. (mesh.tag or ""), function()
      local set = { mesh[3] }
      for _, word in ipairs(mesh.more or {}) do set[#set + 1] = word end
      for _, word in ipairs(mesh.model or {}) do set[#set + 1] = word end
      local worst, at = job.largest_difference(truth(mesh.model), run(mesh[2], set), STEPS)
      assert.is_true(worst <= 1e-9, ("%g in step %d"):format(worst, at))
    end)
  end

  it("goes on from a checkpoint on other ranks, in another mode and stage", function()
    local folder = shell.temporary_folder()
    local recipe = gpt:gsub("epochs = 2,", "epochs = 2, checkpoint = { interval = 4 },")
    local losses, at = {}, 0
    local tensor = { "parallel={tensor={size=2,mode='1d'}}" }
    for i, leg in ipairs { { 2, { "zero=2" }, 4 }, { 2, tensor, 8 }, { 1, {}, STEPS } } do
      local stats = job.run_in(folder, recipe, leg[1], { steps = leg[3], set = leg[2],
        flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
      for k = 1, leg[3] - at do losses[at + k] = stats.loss[#stats.loss - (leg[3] - at) + k] end
      at = leg[3]
    end
    shell.remove(folder)
    local worst = job.largest_difference(truth(), { loss = losses }, STEPS)
    assert.is_true(worst <= 1e-9, ("%g"):format(worst))
  end)
end)
