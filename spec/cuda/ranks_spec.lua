--- Ranks whose tensors are on a GPU: every collective, and training that equals training on the CPU.
--
-- The reference is one rank on the CPU, whose kernels are others and which sends nothing. The order of sums differs: in
-- f64 (1e-16 an addition) a few steps agree to 1e-9, in f32 (6e-8) to 1e-5. Under the emulation what is queued runs
-- when something waits for it, so bytes that are sent before they were computed, or used before they have come, show.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local emulation = require "spec.cuda.emulation"
local job = require "spec.parallel.job"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

if emulation.lacks(pending) then return end

local recipe = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 2051, sequence_length = 7, width = 8, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 7, stride = 7 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]

local steps = 4

local function train(device, ranks, dtype, more)
  local options = { steps = steps, set = { "dtype=" .. dtype }, flags = { "--device", device, "--no-eval" },
    env = device == "cuda" and emulation.environment() or nil }
  for _, set in ipairs(more or {}) do table.insert(options.set, set) end
  return job.run(recipe, ranks, options)
end

-- The reference, made once a dtype.
local references = {}
local function reference(dtype)
  references[dtype] = references[dtype] or train("cpu", 1, dtype)
  return references[dtype]
end

local function check_equal(dtype, got)
  local worst, at = job.largest_difference(reference(dtype), got, steps)
  local bound = dtype == "f64" and 1e-9 or 1e-5
  assert.is_true(worst <= bound, ("differs by %g in step %d, at most %g is allowed"):format(worst, at, bound))
end

describe("ranks on a GPU #ranks", function()
  for _, ranks in ipairs { 1, 3 } do
    it(("pass every spec of collectives on %d"):format(ranks), function()
      local result = run_host({ "spec", "spec/comm/collectives_spec.lua", "--device", "cuda", "-n", ranks },
        { cwd = GANYMEDE_ROOT, env = emulation.environment() })
      assert.equal(0, result.code, result.out .. result.err)
      assert.matches("\n1[0-9] passed, 0 failed\n", result.out)
    end)
  end

  it("send the rows of experts through host memory", function()
    local result = run_host({ "spec", "spec/experts/experts_spec.lua", "spec/experts/traffic_spec.lua", "--device",
      "cuda", "-n", 2 }, { cwd = GANYMEDE_ROOT, env = emulation.environment() })
    assert.equal(0, result.code, result.out .. result.err)
  end)

  for _, case in ipairs {
    { name = "data on 2", ranks = 2, op = "all_reduce" },
    { name = "a pipeline of 2", ranks = 2, set = { "parallel={pipeline=2}", "num_microbatches=3" }, op = "send" },
    { name = "1d on 2, data 2", ranks = 4, set = { 'parallel={tensor={size=2,mode="1d"}}' }, op = "all_reduce" },
  } do
    it("train as the CPU does: " .. case.name, function()
      local got = train("cuda", case.ranks, "f64", case.set)
      check_equal("f64", got)
      assert.equal("cuda", got.device)
      assert.equal(case.ranks, #got.ranks)
      local how = ("ranks talk through host memory: %d ranks share [^\n]+"):format(case.ranks)
      local _, said = got.err:gsub(how, "")
      assert.equal(1, said, got.err)
      local sent, copied = job.traffic(got, { op = case.op }), job.traffic(got, { op = case.op }, "bytes_copied")
      assert.is_true(sent > 0 and copied >= sent / 2, ("%d bytes sent, %d copied"):format(sent, copied))
      for _, rank in ipairs(got.ranks) do assert.is_true(rank.pinned_bytes > 0) end
    end)
  end

  it("train as the CPU does in f32: data on 2", function() check_equal("f32", train("cuda", 2, "f32")) end)

  -- Sums are made in f32 and rounded once on both, in another order: now and then one of 2^-9 goes the other way.
  it("train as the CPU does in bf16: 1d on 2, data 2", function()
    local worst, at = job.largest_difference(reference "bf16", train("cuda", 4, "bf16",
      { 'parallel={data=2,tensor={size=2,mode="1d"}}' }), steps)
    assert.is_true(worst <= 2 ^ -10, ("differs by %g in step %d"):format(worst, at))
  end)

  it("go on from each other's checkpoints", function()
    local folder = shell.temporary_folder()
    local function part(device, ranks, upto)
      local flags = { "--device", device, "--no-eval", "--out", "out" }
      if upto > 1 then flags[#flags + 1], flags[#flags + 2] = "--resume", "auto" end
      return job.run_in(folder, recipe, ranks, { steps = upto, flags = flags,
        env = device == "cuda" and emulation.environment() or nil,
        set = { "dtype=f64", 'hooks={{type="CheckpointHook",interval=1,background=false}}' } })
    end
    local losses = {}
    for step, on in ipairs { { "cuda", 2 }, { "cpu", 1 }, { "cuda", 1 }, { "cpu", 2 } } do
      local got = part(on[1], on[2], step)
      assert.equal(1, #got.loss)
      losses[step] = got.loss[1]
    end
    shell.remove(folder)
    check_equal("f64", { loss = losses })
  end)
end)
