--- Activations that rest on a disk between forward and backward: the same bits as in memory in every parallel mode,
-- less memory, `check` as it runs, and a disk that fails.
-- sanitizers: no, numbers of several ranks are compared; spec/unit/tier_test.c looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 260, sequence_length = 32, width = 24, depth = 4, heads = 4,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 32, stride = 32 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]
local STEPS = job.steps(4)

-- A block keeps some 3 MB of 16 sequences: the ring is used round and round.
local disk = "offload={activations='disk',disk='.',ring='4M',least='4K'}"

local function run(ranks, set, more)
  local all = { unpack(set or {}) }
  all[#all + 1] = more
  return job.run(gpt, ranks, { steps = STEPS, set = all, flags = { "--no-eval" } })
end

local experts = "model.moe={experts=4,every=2,router={type='TopKRouter',k=2,balance=0.1,noise='normal'}}"
local function schedule(order)
  return { "parallel={pipeline=2}", "num_microbatches=4",
    ("schedule={type='PipelineSchedule',order='%s'}"):format(order) }
end
local meshes = {
  { "one rank", 1 }, { "one rank, blocks run again", 1, { "recompute=block" } },
  { "two batches a step", 1, { "gradient_accumulation=2" } }, { "experts", 1, { experts } },
  { "1d on 2", 2, { "parallel={tensor={size=2,mode='1d'}}" } }, { "ring on 2", 2, { "parallel={sequence=2}" } },
  { "experts on 2 of data 2", 2, { "parallel={data=2,expert=2}", experts } },
  { "pipeline 1f1b", 2, schedule "1f1b" }, { "pipeline zb-h1", 2, schedule "zb-h1" },
}

describe("offloaded activations", function()
  for _, mesh in ipairs(meshes) do
    it("have the same bits on the disk: " .. mesh[1] .. (mesh[2] > 1 and " #ranks" or ""), function()
      local plain, on_disk = run(mesh[2], mesh[3]), run(mesh[2], mesh[3], disk)
      assert.equal(0, (job.largest_difference(plain, on_disk, STEPS)))
      for r, rank in ipairs(on_disk.ranks) do
        local tier = rank.offload
        assert.equal("disk", tier.tier)
        assert.is_true(tier.written_bytes > 0)
        assert.equal(0, tier.placed_bytes) -- backward has used all of it
        assert.is_true(rank.activation_peak_bytes < plain.ranks[r].activation_peak_bytes)
      end
    end)
  end

  it("are on the host where they are anyway, which the run says", function()
    local plain, on_host = run(1), run(1, nil, "offload={activations='host'}")
    assert.equal(0, (job.largest_difference(plain, on_host, STEPS)))
    assert.equal(plain.ranks[1].peak_bytes, on_host.ranks[1].peak_bytes)
    assert.truthy(on_host.err:find("activations on the host save nothing", 1, true), on_host.err)
  end)

  it("are rehearsed by check as a run has them", function()
    local folder = shell.temporary_folder()
    job.write(folder, gpt)
    for _, words in ipairs { {}, { "recompute=block" } } do
      local args = { "check", "recipe.lua", "--json", "--set", disk }
      for _, word in ipairs(words) do args[#args + 1], args[#args + 2] = "--set", word end
      local result = run_host(args, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total, rank = json.decode(result.out, "check").totals, run(1, words, disk).ranks[1]
      local more = rank.peak_bytes - total.peak_bytes -- check knows nothing of the scratch of kernels
      assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes, more .. " more")
    end
    shell.remove(folder)
  end)
end)

-- One rank in a process whose system calls fail from the n-th of each thread on; the loader of programs reads, too.
describe("a disk that fails under activations", function()
  for _, case in ipairs { { "write", "pwrite64", 3 }, { "read", "pread64", 20 } } do
    it("ends the run with an error that names the folder: " .. case[1], function()
      local folder = shell.temporary_folder()
      job.write(folder, gpt)
      local result = shell.run(("cd %s && GANYMEDE_ROOT=%s strace -f --seccomp-bpf -o /dev/null "
        .. "-e trace=io_uring_setup,pread64,pwrite64 -e inject=io_uring_setup:error=EPERM "
        .. "-e inject=%s:error=EIO:when=%d+ %s recipe.lua --threads 1 --no-eval --steps 4 --set %s"):format(folder,
        shell.quote(GANYMEDE_ROOT), case[2], case[3], shell.program "run", shell.quote(disk)))
      assert.equal(1, result.code, result.err)
      local text = ("the disk of the folder %s failed to %s"):format(folder, case[1])
      assert.truthy(result.err:find(text, 1, true), result.err)
      shell.remove(folder)
    end)
  end
end)
