--- Parameters and gradients that rest on a disk: the same bits as in memory, in every mode.
--
-- The truth is the same run without offload, in f64. Every parameter and gradient goes to the disk, however small, and
-- passes through a ring of 256 KB, so that all of them come and go many times in a step.
-- sanitizers: no, checkpoints of several runs are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- The table is the largest parameter: 261 x 24 numbers, 50,112 bytes, with gradient and two states 200 KB.
local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2, dropout = 0.1,
            attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, no_decay = "norm_and_bias" },
  epochs = 2, clip_grad_norm = 1.0, checkpoint = { interval = 3 },
}
]]
local STEPS = 6

local function resting(what, ring) return ("offload={%s,disk='.',ring='%s',least=1}"):format(what, ring) end

local parameters, gradients = resting("parameters='disk'", "128K"), resting("gradients='disk'", "128K")
local all = resting("parameters='disk',gradients='disk',optimizer='disk'", "256K")

-- Runs in the folder -> statistics, and the checksums of what the last checkpoint holds of each rank.
local function run(folder, ranks, set, offload, more)
  more = more or {}
  shell.run("rm -rf " .. folder .. (more.keep and "/nothing" or "/out"))
  local words, flags = { offload }, { "--no-eval", "--out", "out", unpack(more.flags or {}) }
  for _, word in ipairs(set) do words[#words + 1] = word end
  local stats = job.run_in(folder, more.recipe or gpt, ranks, { steps = more.steps or STEPS, set = words, flags = flags,
    code = more.code })
  stats.checkpoint = more.code and {} or shell.lines(("cd %s/out/checkpoints/step-%08d && cksum *.safetensors"):format(
    folder, more.steps or STEPS))
  return stats
end

describe("parameters and gradients on a disk #ranks", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  for _, case in ipairs {
    { "AdamW", 1, {} },
    { "SGD with momentum", 1, { "optimizer={type='SGD',lr=0.1,momentum=0.9,nesterov=true}" } },
    { "no clipping, small buckets", 1, { "clip_grad_norm=0" } },
    { "LAMB", 1, { "optimizer={type='LAMB',lr=1e-3}" } },
    { "two batches a step", 1, { "gradient_accumulation=2" } },
    { "blocks run again", 1, { "recompute=block" } },
    { "bf16 with masters", 1, { "dtype=bf16" } },
    { "f16", 1, { "dtype=f16" } },
    { "data 2, ZeRO 2", 2, { "zero=2" } },
    { "data 2, ZeRO 2, two batches a step", 2, { "zero=2", "gradient_accumulation=2" } },
    { "data 2, ZeRO 3", 2, { "zero={stage=3,whole_below=0}" } },
    { "data 2, ZeRO 3, blocks run again", 2, { "zero={stage=3,whole_below=0,keep=0,ahead=0}", "recompute=block" } },
    { "1D on 2", 2, { "parallel={tensor={size=2,mode='1d'}}", "zero=2" } },
    { "1D on 2, data 2, ZeRO 3", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}", "zero={stage=3,whole_below=0}" } },
    { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" } },
    { "two stages, data 2, ZeRO 2", 4, { "parallel={data=2,pipeline=2}", "num_microbatches=2", "zero=2" } },
  } do
    it("have the same bits: " .. case[1], function()
      local plain = run(folder, case[2], case[3], "offload=none")
      for _, offload in ipairs { parameters, gradients, all } do
        local on_disk = run(folder, case[2], case[3], offload)
        assert.same(plain.loss, on_disk.loss, offload)
        assert.same(plain.checkpoint, on_disk.checkpoint, offload)
        assert.is_true(on_disk.ranks[1].offload.read_bytes > 0, offload)
      end
    end)
  end
end)
