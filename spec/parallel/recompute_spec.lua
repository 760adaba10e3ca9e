--- Recomputation: modules that run again in backward, in every parallel mode.
--
-- The truth is the same run that keeps everything. A region draws the random numbers of its first run, and adds its
-- terms where they would have been added. So losses, weights and moments are equal to the bit.
-- sanitizers: no, numbers of several ranks are compared; spec/autograd/region_spec.lua looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 260, sequence_length = 32, width = 24, depth = 4, heads = 4,
            dropout = 0.1, attention_dropout = 0.1, window = { 7, 0 }, attention_softcap = 2 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 32, stride = 32 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]
local STEPS = job.steps(6)

local function run(ranks, recompute, more, folder)
  local set = recompute and { "recompute=" .. recompute } or {}
  for _, word in ipairs(more or {}) do set[#set + 1] = word end
  if not folder then return job.run(gpt, ranks, { steps = STEPS, set = set, flags = { "--no-eval" } }) end
  set[#set + 1] = "checkpoint={interval=" .. STEPS .. "}"
  shell.run("mkdir " .. shell.quote(folder))
  local stats = job.run_in(folder, gpt, ranks, { steps = STEPS, set = set, flags = { "--no-eval", "--out", "run" } })
  stats.weights = ("%s/run/checkpoints/step-%08d"):format(folder, STEPS)
  return stats
end

local experts = "model.moe={experts=4,every=2,router={type='TopKRouter',k=2,balance=0.1,noise='normal'}}"
local function schedule(order, chunks)
  return { ("parallel={pipeline={size=2,chunks=%d}}"):format(chunks or 1), "num_microbatches=4",
    ("schedule={type='PipelineSchedule',order='%s'}"):format(order) }
end
local nested = "{'^blocks.%d$','mlp$'}"
local spans = "{sections='2-5, 2-4, 2, 4'}" -- of 6: the embeddings, 4 blocks, the head
local meshes = {
  { "one rank", 1 }, { "one rank, regions in regions", 1, nil, nested }, { "one rank, attention", 1, nil, "attention" },
  { "one rank, a region of all blocks", 1, nil, "{sections='2-5'}" },
  { "one rank, regions of sections in regions", 1, nil, spans },
  { "one rank, the embeddings and blocks", 1, nil, "{sections='1-3'}" },
  { "1d on 2 with the sequence cut, sections", 2, { "parallel={tensor={size=2,mode='1d',sequence=true}}" }, spans },
  { "2d on 4, sections", 4, { "parallel={tensor={size=4,mode='2d'}}" }, spans, "slow" },
  { "experts on 2 of data 2, sections", 2, { "parallel={data=2,expert=2}", experts }, spans },
  { "pipeline 1f1b, sections", 2, schedule "1f1b", "{sections='2-3, 5-6, 5'}" },
  { "pipeline zb-h1, sections", 2, schedule "zb-h1", "{sections='2-3, 5-6, 5'}" },
  { "zero 3 on data 2, sections", 2, { "zero={stage=3,whole_below=0}" }, spans },
  { "bf16, sections", 2, { "dtype=bf16" }, spans },
  { "data 2", 2 }, { "1d on 2", 2, { "parallel={tensor={size=2,mode='1d'}}" } },
  { "1d on 2 with the sequence cut", 2, { "parallel={tensor={size=2,mode='1d',sequence=true}}" } },
  { "2d on 4", 4, { "parallel={tensor={size=4,mode='2d'}}" } },
  { "2.5d on 8", 8, { "parallel={tensor={size=8,mode='2.5d',depth=2}}" }, nil, "slow" },
  { "3d on 8", 8, { "parallel={tensor={size=8,mode='3d'}}" }, nil, "slow" },
  { "ring on 2, data 2", 4, { "parallel={data=2,sequence=2}" } },
  { "ulysses on 2", 2, { "parallel={sequence={size=2,mode='ulysses'}}" } },
  { "experts", 1, { experts } }, { "experts on 2 of data 2", 2, { "parallel={data=2,expert=2}", experts } },
  { "pipeline 1f1b", 2, schedule "1f1b" }, { "pipeline interleaved", 2, schedule("interleaved", 2) },
  { "pipeline zb-h1", 2, schedule "zb-h1" }, { "pipeline zb-h2", 2, schedule "zb-h2", nil, "slow" },
  { "pipeline zb-v", 2, schedule("zb-v", 2) },
  { "pipeline zb-h1, attention", 2, schedule "zb-h1", "attention", "slow" },
  { "pipeline zb-v, regions in regions", 2, schedule("zb-v", 2), nested, "slow" },
  { "pipeline zb-h1, zero 3 on data 2", 4, { "parallel={pipeline=2,data=2}", "num_microbatches=4",
    "schedule={type='PipelineSchedule',order='zb-h1'}", "zero={stage=3,whole_below=0,keep=0,ahead=0}" }, nil, "slow" },
  { "pipeline 2, data 2, experts", 4, { "parallel={data=2,pipeline=2,expert=2}", "num_microbatches=2", experts } },
  { "zero 2 on data 2", 2, { "zero=2" } }, { "zero 3 on data 3", 3, { "zero={stage=3,whole_below=0,keep=0,ahead=0}" } },
  { "zero 3 on data 2, ahead", 2, { "zero={stage=3,whole_below=0}" } },
  { "two batches a step", 2, { "gradient_accumulation=2" } },
  { "bf16", 2, { "dtype=bf16" } }, { "f16", 1, { "dtype=f16" } },
}

-- Runs that keep everything, once for each mesh: key -> statistics. Their weights stay in `home`.
local home, kept
local function run_plain(ranks, more)
  local key = ranks .. "|" .. table.concat(more or {}, "|")
  if not kept[key] then
    kept.n = kept.n + 1
    kept[key] = run(ranks, nil, more, ("%s/plain-%d"):format(home, kept.n))
  end
  return kept[key]
end

describe("recomputation #ranks", function()
  setup(function() home, kept = shell.temporary_folder(), { n = 0 } end)
  teardown(function() shell.remove(home) end)

  for _, mesh in ipairs(meshes) do
    it("trains to the same bits: " .. mesh[1] .. (mesh[5] and " #" .. mesh[5] or ""), function()
      local folder = shell.temporary_folder()
      finally(function() shell.remove(folder) end)
      local plain = run_plain(mesh[2], mesh[3])
      local again = run(mesh[2], mesh[4] or "block", mesh[3], folder .. "/again")
      assert.equal(0, (job.largest_difference(plain, again, STEPS)))
      assert.equal(0, (stored.difference(again.weights, plain.weights)))
      assert.is_true(again.ranks[1].flops > 1.1 * plain.ranks[1].flops)
      assert.is_true(again.ranks[1].activation_peak_bytes < plain.ranks[1].activation_peak_bytes)
    end)
  end

  it("is rehearsed by check as it runs", function()
    local folder = shell.temporary_folder()
    job.write(folder, gpt)
    for _, kind in ipairs { "block", "attention", nested } do
      local words = { "check", "recipe.lua", "-n", "2", "--json", "--set", "recompute=" .. kind }
      local result = run_host(words, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total, rank = json.decode(result.out, "check").totals, run(2, kind).ranks[1]
      local more = rank.peak_bytes - total.peak_bytes -- check knows nothing of the scratch of kernels
      assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes, ("%s: %d more"):format(kind, more))
      assert.equal(rank.gradient_bytes, total.gradient_bytes)
    end
    shell.remove(folder)
  end)

  it("refuses sections that the model does not have, and a region over the border of a stage", function()
    local result = job.run(gpt, 1, { steps = 1, set = { "recompute={sections='2-7'}" }, code = 2 })
    assert.truthy(result.err:find("the model has 6 sections", 1, true), result.err)
    local sets = schedule "1f1b"
    sets[#sets + 1] = "recompute={sections='2-4'}"
    result = job.run(gpt, 2, { steps = 1, set = sets, code = 2 })
    assert.truthy(result.err:find("a part of the pipeline ends with section 3, inside of 2-4", 1, true), result.err)
  end)

  it("refuses a list that names no module", function()
    local result = job.run(gpt, 1, { steps = 1, set = { "recompute={'layer.%d'}" }, code = 2 })
    assert.truthy(result.err:find("the model has no such module; paths look like 'tokens'", 1, true), result.err)
  end)
end)
