--- Ranks with GPUs of their own, which talk through NCCL: every collective, training that equals training on the CPU,
-- what goes wrong, and the choice between NCCL and host memory.
--
-- Under the emulation: its driver runs what is queued on a stream when something waits for it, that stream first, and
-- its NCCL (fake_nccl.c) sums in another order than ours, so that what is not ordered by events, and what counts on our
-- order of sums, shows. Bounds are those of ranks_spec.lua.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local job = require "spec.parallel.job"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), ("no '%s' in: %s"):format(part, text)) end

describe("NCCL itself", function()
  it("has every function that is called, and fails in words without a GPU", function()
    local path = core.executable():match "^(.*)/" .. "/emulation/gm_nccl_trial"
    local result = shell.run("test -x " .. shell.quote(path) .. " || exit 3; " .. shell.quote(path))
    if result.code == 3 then return pending "there is no NCCL here" end
    assert.equal(0, result.code, result.out .. result.err)
    assert.matches("^NCCL [%d.]+; ids differ; ", result.out)
    if result.out:find "; made\n" then return end -- a machine with a GPU
    assert.matches("differ; NCCL failed: .* in ncclCommInitRankConfig", result.out)
  end)
end)

if emulation.lacks(pending, "emulated") then return end -- real GPUs: as many as ranks are rarely there

local function environment(devices, more)
  local env = emulation.environment()
  env.GANYMEDE_CUDA_DEVICES = tostring(devices)
  for name, value in pairs(more or {}) do env[name] = value end
  return env
end

local function spec(files, ranks, env)
  local words = { "spec" }
  for _, file in ipairs(files) do words[#words + 1] = file end
  for _, word in ipairs { "--device", "cuda", "-n", tostring(ranks) } do words[#words + 1] = word end
  return run_host(words, { cwd = GANYMEDE_ROOT, env = env })
end

-- The driver's record of these specs, which pass on so many ranks with a GPU each.
local function record_of(files, ranks)
  local path = os.tmpname()
  local result = spec(files, ranks, environment(ranks, { GANYMEDE_CUDA_RECORD = path }))
  local record = shell.read(path)
  os.remove(path)
  assert.equal(0, result.code, result.out .. result.err)
  return record
end

local recipe = job.changed(job.gpt, { "width = 32", "width = 8" }, { "sequence_length = 32", "sequence_length = 7" },
  { "stride = 32", "stride = 7" }, { "batch_size = 22", "batch_size = 6" }, { "vocabulary = 256", "vocabulary = 259" })

local function train(device, ranks, steps, set, more)
  return job.run(recipe, ranks, { steps = steps, set = set, code = more and more.code,
    flags = { "--device", device, "--no-eval" }, env = device == "cuda" and environment(4, more and more.env) or nil })
end

-- Waits of all ranks for the device, from the driver's record. Lines of two ranks may lie side by side in any order.
local function waits_of(ranks, steps)
  local path = os.tmpname()
  train("cuda", ranks, steps, { "dtype=f64", "parallel.data.bucket_mb=0.002" },
    { env = { GANYMEDE_CUDA_RECORD = path } })
  local waits = 0
  for line in shell.read(path):gmatch "[^\n]+" do
    if line == "wait" then waits = waits + 1 end
  end
  os.remove(path)
  return waits
end

describe("ranks with GPUs of their own #ranks", function()
  it("pass every spec of collectives and of failed sections, without host memory", function()
    local record = record_of({ "spec/comm/collectives_spec.lua", "spec/comm/sections_spec.lua" }, 3)
    for _, name in ipairs { "AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Group" } do
      has(record, "\nnccl" .. name .. " ")
    end
  end)

  it("send the rows of experts, each run in a transfer of its own", function()
    has(record_of({ "spec/experts/experts_spec.lua", "spec/experts/traffic_spec.lua" }, 2), "\nncclGroup ")
  end)

  it("fail by name, in time, and go on", function()
    local result = spec({ "spec/cuda/links_spec.lua" }, 3, environment(3))
    assert.equal(0, result.code, result.out .. result.err)
    has(result.out, "7 passed, 0 failed")
  end)

  local reference
  for _, case in ipairs {
    { name = "data on 2", ranks = 2, op = "all_reduce", set = {} },
    { name = "a pipeline of 2", ranks = 2, op = "send", set = { "parallel={pipeline=2}", "num_microbatches=3" } },
    { name = "1d on 2, data 2", ranks = 4, op = "all_reduce", set = { 'parallel={tensor={size=2,mode="1d"}}' } },
    { name = "2d on 4", ranks = 4, op = "broadcast", set = { 'parallel={tensor={size=4,mode="2d"}}' } },
  } do
    it("train as the CPU does: " .. case.name, function()
      if emulation.is_sanitized() then return pending "numbers of training are compared" end
      reference = reference or train("cpu", 1, 4, { "dtype=f64" })
      local set = { "dtype=f64" }
      for _, word in ipairs(case.set) do set[#set + 1] = word end
      local got = train("cuda", case.ranks, 4, set)
      local worst, at = job.largest_difference(reference, got, 4)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
      has(got.err, ("ranks talk through NCCL 2.28.9, %d devices"):format(case.ranks))
      assert.is_true(job.traffic(got, { op = case.op }) > 0)
      assert.equal(0, job.traffic(got, { op = case.op }, "bytes_copied")) -- nothing was staged
    end)
  end

  -- Buckets of gradients are summed on a stream of their own, a dozen a step here; nobody reads what ranks add up.
  it("wait for the device in no step, as one rank does not", function()
    for _, ranks in ipairs { 1, 2 } do
      assert.equal(0, waits_of(ranks, 9) - waits_of(ranks, 3), ("%d ranks waited"):format(ranks))
    end
  end)

  it("end with what NCCL says when it fails, and whose call it was", function()
    local got = train("cuda", 2, 4, { "dtype=f64" }, { env = { GANYMEDE_NCCL_FAIL = "1 6" }, code = 1 })
    has(got.err, "NCCL failed: remote process exited")
    has(got.err, "rank 1")
  end)

  it("choose as they are told, and say why", function()
    local function said(devices, way, env)
      local folder = shell.temporary_folder()
      shell.write(folder .. "/recipe.lua", recipe)
      local words = { "run", "recipe.lua", "--device", "cuda", "--no-eval", "--steps", "1", "-n", "2", "--set",
        "parallel.transport=" .. way }
      local result = run_host(words, { cwd = folder, env = environment(devices, env) })
      shell.remove(folder)
      return result
    end
    local host = said(2, "host")
    assert.equal(0, host.code, host.err)
    has(host.err, "ranks talk through host memory: it was asked for")
    local none = said(2, "auto", { GANYMEDE_CUDA_NCCL = "none" })
    assert.equal(0, none.code, none.err)
    has(none.err, "ranks talk through host memory: rank 0: NCCL was not to be used")
    local shared = said(1, "nccl")
    assert.equal(2, shared.code, shared.err)
    has(shared.err, "these ranks cannot talk through NCCL: 2 ranks share emulated GPU 0")
  end)
end)
