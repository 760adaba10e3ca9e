--- Trust ratios and means are those of global tensors: LAMB, LARS, Adafactor and CAME train on several ranks as on
-- one, in every layout.
--
-- The truth is one rank. Sums of gradients and squares are added up in another order, which is all that may differ:
-- 1e-9 in f64. In the mesh of two stages the table of embeddings is tied: it lives on both, and both must have its
-- ratio.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local zero = require "spec.parallel.zero_runs"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 15, width = 24, depth = 2, heads = 2, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 15, stride = 15 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "LAMB", lr = 0.02, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]
local STEPS = job.steps(50)

local optimizers = {
  LAMB = "optimizer={type='LAMB',lr=0.02,weight_decay=0.1,groups={{match='bias$',trust=false}}}",
  LARS = "optimizer={type='LARS',lr=1,trust_coefficient=0.02,weight_decay=0.01,nesterov=true}",
  Adafactor = "optimizer={type='Adafactor',lr=0.02,weight_decay=0.1}",
  CAME = "optimizer={type='CAME',lr=0.003,weight_decay=0.1}",
  RMSprop = "optimizer={type='RMSprop',lr=1e-3,centered=true,momentum=0.5}",
}

local meshes = {
  { "data 3, ZeRO 1", 3, { "zero=1" } }, { "data 2, ZeRO 2", 2, { "zero=2" } },
  { "data 2, ZeRO 3", 2, { zero.setting(3) } },
  { "1d on 2", 2, { "parallel={tensor={size=2,mode='1d'}}" } },
  { "2d on 4", 4, { "parallel={tensor={size=4,mode='2d'}}" } },
  { "2.5d on 8", 8, { "parallel={tensor={size=8,mode='2.5d',depth=2}}" }, "slow" },
  { "3d on 8", 8, { "parallel={tensor={size=8,mode='3d'}}" }, "slow" },
  { "1d on 2, data 2, ZeRO 3", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}", zero.setting(3) } },
  { "2d on 4, data 2, ZeRO 3", 8, { "parallel={data=2,tensor={size=4,mode='2d'}}", zero.setting(3) }, "slow" },
  { "data 4 in halves, ZeRO 3", 4, { "parallel={data={size=4,shard=2}}", zero.setting(3) }, "slow" },
  { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" } },
  { "two stages, 1d on 2, data 2, ZeRO 2", 8,
    { "parallel={pipeline=2,data=2,tensor={size=2,mode='1d'}}", "num_microbatches=2", "zero=2" }, "slow" },
}

local serial = {}
local function run(name, ranks, set)
  local all = { optimizers[name] }
  for _, word in ipairs(set or {}) do all[#all + 1] = word end
  return job.run(gpt, ranks, { steps = STEPS, set = all, flags = { "--no-eval" } })
end

local function judge(name, mesh)
  serial[name] = serial[name] or run(name, 1)
  local difference = job.largest_difference(serial[name], run(name, mesh[2], mesh[3]), STEPS)
  if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then print(("  %-10s %-36s %.2g"):format(name, mesh[1], difference)) end
  assert.is_true(difference <= 1e-9, tostring(difference))
end

-- LARS takes its ratios as LAMB does: the first mesh, a grid and two stages tell whether it asks for them.
local of_lars = { ["data 3, ZeRO 1"] = true, ["2d on 4"] = true, ["two stages"] = true }

describe("Optimizers #ranks", function()
  for _, mesh in ipairs(meshes) do
    for _, name in ipairs { "LAMB", "LARS" } do
      local slow = mesh[4] or (name == "LARS" and not of_lars[mesh[1]])
      it(("%s has the ratios of one rank: %s%s"):format(name, mesh[1], slow and " #slow" or ""),
        function() judge(name, mesh) end)
    end
  end

  it("without ratios are those of one rank too: ZeRO 2", function()
    judge("RMSprop", meshes[2])
  end)

  for _, mesh in ipairs(meshes) do
    local tag = mesh[4] and " #" .. mesh[4] or ""
    it("take Adafactor's means over the whole tensor: " .. mesh[1] .. tag, function() judge("Adafactor", mesh) end)
    -- CAME takes its means as Adafactor does: the same three meshes tell whether it asks for them
    tag = of_lars[mesh[1]] and tag or " #slow"
    it("take CAME's means over the whole tensor: " .. mesh[1] .. tag, function() judge("CAME", mesh) end)
  end

  for _, name in ipairs { "LAMB", "Adafactor" } do
    it("go on from a checkpoint of another layout: " .. name, function()
      local folder, losses, at = shell.temporary_folder(), {}, 0
      local recipe = gpt:gsub("epochs = 2,", "epochs = 2, checkpoint = { interval = 3 },")
      serial[name] = serial[name] or run(name, 1)
      for i, leg in ipairs { { 3, 3, "zero=2" }, { 2, 6, "parallel={tensor={size=2,mode='1d'}}" } } do
        local stats = job.run_in(folder, recipe, leg[1], { steps = leg[2], set = { optimizers[name], leg[3] },
          flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
        for k = 1, leg[2] - at do losses[at + k] = stats.loss[#stats.loss - (leg[2] - at) + k] end
        at = leg[2]
      end
      shell.remove(folder)
      assert.is_true(job.largest_difference(serial[name], { loss = losses }, at) <= 1e-9)
    end)
  end

  it("sum the squares of all parameters in one small collective a step", function()
    local plain = job.run(gpt, 2, { steps = STEPS, flags = { "--no-eval" },
      set = { "optimizer={type='AdamW',lr=0.02}", "zero=2" } })
    local with = run("LAMB", 2, { "zero=2" })
    local function calls(stats) return job.traffic(stats, { op = "all_reduce", phase = "update" }, "calls") end
    local function bytes(stats) return job.traffic(stats, { op = "all_reduce", phase = "update" }) end
    assert.equal(STEPS * 2, calls(with) - calls(plain)) -- a call of each rank
    local parameters = 16 * 28 -- two f64 numbers of each parameter: 2 x 12 of blocks, 2 tables, 2 of the last norm
    assert.equal(STEPS * 2 * parameters, bytes(with) - bytes(plain))
  end)
end)
