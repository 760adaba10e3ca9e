--- Examples for optimizers that treat hidden matrices in their own way (Muon, GaLore): a GPT trains on every mesh as on
-- one rank, and goes on from a checkpoint elsewhere.
--
-- The truth is the run on one rank. Batches of 10, sequences of 31 and 3 experts do not divide evenly by the meshes.
local job = require "spec.parallel.job"
local assert = require "luassert"
local shell = require "spec.support.shell"

local alike = {}

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1, %s },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { %s },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

local experts = { "model.moe={experts=3,every=2,router={type='TopKRouter',k=2,balance=0.1}}" }

-- { name, ranks, settings; model = settings that the run on one rank has, too; tag }
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

--- Returns runs of the GPT. model, optimizer: texts of options; steps: how many are compared. The result has
-- run(ranks, settings, steps) -> the document of --stats; examples(it, more): defines the examples by busted's it,
-- also on the meshes `more`; resumed(interval): trains in three legs of so many steps each, and compares.
function alike.of(model, optimizer, steps)
  local recipe, serial, self = gpt:format(model, optimizer), {}, {}

  function self.run(ranks, set, count)
    return job.run(recipe, ranks, { steps = count or steps, set = set, flags = { "--no-eval" } })
  end

  local function truth(set)
    local key = table.concat(set or {}, " ")
    serial[key] = serial[key] or self.run(1, set)
    return serial[key]
  end

  local function judge(mesh)
    local set = { mesh[3] }
    for _, word in ipairs(mesh.more or {}) do set[#set + 1] = word end
    for _, word in ipairs(mesh.model or {}) do set[#set + 1] = word end
    local worst, at = job.largest_difference(truth(mesh.model), self.run(mesh[2], set), steps)
    assert.is_true(worst <= 1e-9, ("%g in step %d"):format(worst, at))
  end

  function self.examples(it, more)
    for _, list in ipairs { meshes, more or {} } do
      for _, mesh in ipairs(list) do
        it("trains as on one rank: " .. mesh[1] .. (mesh.tag or ""), function() judge(mesh) end)
      end
    end
  end

  function self.resumed(interval)
    local folder = shell.temporary_folder()
    local text = recipe:gsub("epochs = 2,", ("epochs = 2, checkpoint = { interval = %d },"):format(interval))
    local losses, tensor = {}, { "parallel={tensor={size=2,mode='1d'}}" }
    for i, leg in ipairs { { 2, { "zero=2" } }, { 2, tensor }, { 1, {} } } do
      local stats = job.run_in(folder, text, leg[1], { steps = i * interval, set = leg[2],
        flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
      for k = 1, interval do losses[#losses + 1] = stats.loss[#stats.loss - interval + k] end
    end
    shell.remove(folder)
    local worst, at = job.largest_difference(truth(), { loss = losses }, 3 * interval)
    assert.is_true(worst <= 1e-9, ("%g in step %d"):format(worst, at))
  end

  return self
end

return alike
