--- Offload below a GPU: states of the optimizer rest in page-locked memory or on a disk, and the host makes their
-- updates.
--
-- The truths: the CPU's own training, bit for bit, where gradients are the same numbers; and the same run without
-- offload. There the GPU's kernels make the updates: they and the CPU's compute in f32 what one formula says, and round
-- some of its steps differently (contracted products), so that numbers differ by some 1e-7 of their size in an update.
-- Losses of 4 steps then agree to 1e-6; a wrong learning rate, a missing step or stale gradients change them by 1e-3.
-- sanitizers: no, kernels of the emulation are compiled without sanitizers
local emulation = require "spec.cuda.emulation"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

if emulation.lacks(pending) then return end

local recipe = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 128, sequence_length = 15, width = 16, depth = 1, heads = 2, dropout = 0.1 },
  data = { train = { type = "Text", path = "text", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-2, no_decay = "norm_and_bias" },
  epochs = 2, clip_grad_norm = 0.5, checkpoint = { interval = 2 },
}
]]

local text = {}
for i = 1, 40 * 15 + 1 do text[i] = string.char(97 + i * i % 23) end

local HOST = "offload={optimizer='host',ring='4K'}" -- many small lots: some come, some are updated, some go
local DISK = "offload={optimizer='disk',disk='.',ring='least',fraction=0.6}"
local STEPS = 4

local folder

local function prepare()
  before_each(function()
    folder = shell.temporary_folder()
    shell.write(folder .. "/text", table.concat(text))
  end)
  after_each(function() shell.remove(folder) end)
end

-- Runs in the folder -> statistics. set: list of "key=value"; more: ranks, steps, resume, device, code, recipe, gpus
-- (how many the emulation shows)
local function run(set, more)
  more = more or {}
  local env = emulation.environment()
  env.GANYMEDE_CUDA_DEVICES = more.gpus and tostring(more.gpus) or nil
  if not more.resume then shell.run("rm -rf " .. folder .. "/out") end
  local flags = { "--no-eval", "--out", "out", "--device", more.device or "cuda" }
  if more.resume then flags[#flags + 1], flags[#flags + 2] = "--resume", "auto" end
  return job.run_in(folder, more.recipe or recipe, more.ranks or 1,
    { steps = more.steps or STEPS, set = set, flags = flags, env = env, code = more.code })
end

local function agree(want, got, tolerance)
  assert.equal(#want, #got)
  for i = 1, #want do
    assert.is_true(math.abs(want[i] - got[i]) <= tolerance * math.abs(want[i]),
      ("step %d: %.9g and %.9g"):format(i, want[i], got[i]))
  end
end

local function with(word, more)
  local set = { word }
  for _, other in ipairs(more) do set[#set + 1] = other end
  return set
end

describe("states below a GPU", function()
  prepare()

  -- Updates in 16 bits round a number now and then to the other side: 2^-8 of one weight in thousands.
  for _, case in ipairs {
    { "AdamW", {}, 1e-6, HOST },
    { "LAMB, which measures first", { "optimizer={type='LAMB',lr=1e-2}" }, 1e-6, DISK },
    { "moments of 8 bits", { "optimizer={type='AdamW',lr=1e-2,state_dtype='8bit'}" }, 1e-5, HOST },
    { "bf16 with masters, gradients of f32", { "dtype=bf16", "gradient_dtype=f32" }, 1e-4, DISK },
    { "bf16 rounded by chance", { "dtype=bf16", "gradient_dtype=f32", "optimizer.master_weights=false" }, 1e-4, HOST },
  } do
    it("train as in the GPU's memory: " .. case[1], function()
      local plain = run(case[2])
      assert.is_nil(plain.ranks[1].offload)
      agree(plain.loss, run(with(case[4], case[2])).loss, case[3])
    end)
  end

  it("are updated to the bits of the CPU, clipped and with a scheduled rate", function()
    -- The gradient of the sum of w x is x, whose numbers are small and whole: its norm has the same bits everywhere.
    local code = [[
      local gm = require "ganymede"
      local model = gm.nn.Linear { inputs = 48, outputs = 40, bias = true }
      local engine = gm.initialize { model = model, optimizer = { type = "%s", lr = 0.03, weight_decay = 0.1 },
        criterion = function(y) return y end, clip_grad_norm = 3, offload = %s }
      local rows = {}
      for i = 1, 40 do
        rows[i] = {}
        for k = 1, 48 do rows[i][k] = (i * 48 + k) %% 7 - 3 end
      end
      local whole = gm.tensor(rows)
      for step = 1, 5 do
        gm.scope(function()
          engine:zero_grad()
          engine.optimizer.lr = 0.03 / step
          engine:backward((model.weight * whole):sum() + (model.bias * step):sum())
          engine:step()
        end)
      end
      for _, t in ipairs { model.weight, model.bias } do
        for _, row in ipairs(t:reshape { -1 }:totable()) do print(("%%.9g"):format(row)) end
      end
    ]]
    local function numbers(optimizer, device, offload)
      shell.write(folder .. "/code.lua", code:format(optimizer, offload))
      local result = run_host({ "run", "code.lua", "--device", device, "--threads", "1" },
        { cwd = folder, env = emulation.environment() })
      assert.equal(0, result.code, result.err)
      local _, n = result.out:gsub("\n", "")
      assert.equal(48 * 40 + 40, n)
      return result.out
    end
    for _, optimizer in ipairs { "AdamW", "Lion" } do
      local truth = numbers(optimizer, "cpu", "nil")
      assert.equal(truth, numbers(optimizer, "cuda", "{ optimizer = 'host', ring = '1K' }"))
      assert.equal(truth, numbers(optimizer, "cuda", "{ optimizer = 'disk', disk = '.', ring = 'least' }"))
    end
  end)

  it("take no memory of the GPU; `check --device cuda` counts both memories", function()
    -- What a kernel takes for itself is unknown to a rehearsal, and the peak need not be where most of it is taken.
    local function within(peak, scratch, said) assert.is_true(said <= peak and peak - scratch <= said) end
    local plain = run({ "checkpoint.interval=9" }).ranks[1]
    for _, word in ipairs { HOST, DISK } do
      local rank = run({ word, "checkpoint.interval=9" }).ranks[1]
      local result = run_host({ "check", "recipe.lua", "--device", "cuda", "--json", "--set", word }, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total = json.decode(result.out, "check").totals
      assert.equal(rank.optimizer_bytes, total.optimizer_bytes)
      assert.equal(rank.offload.placed_bytes, total.offloaded_bytes)
      within(rank.host_peak_bytes, rank.host_scratch_peak_bytes, total.host_peak_bytes)
      within(rank.peak_bytes, rank.scratch_peak_bytes, total.peak_bytes)
      if word == HOST then
        assert.equal(0, rank.optimizer_bytes)
        assert.equal(plain.optimizer_bytes, rank.offload.placed_bytes)
        -- Three lots of 1 KiB, or of the largest parameter, beside the states, the control and a count.
        local largest = 2 * 4 * 128 * 16
        assert.is_true(rank.host_peak_bytes > plain.optimizer_bytes + largest)
        assert.is_true(rank.host_peak_bytes <= plain.optimizer_bytes + 3 * largest + 128)
      else
        assert.is_true(rank.optimizer_bytes < 0.4 * plain.optimizer_bytes)
      end
    end
  end)

  it("stay as they are in a step that is skipped because f16 overflows", function()
    local set = { "dtype=f16", "fp16.initial_scale=1e9" }
    local plain, host = run(set), run(with(HOST, set))
    assert.is_true(plain.loss_scaling.overflows >= 2)
    assert.same(plain.loss_scaling, host.loss_scaling)
    assert.equal(plain.loss[1], plain.loss[2] and host.loss[1])
    agree(plain.loss, host.loss, 1e-4)
  end)

  it("are divided by ZeRO, and go on from checkpoints into the GPU's memory and back", function()
    local whole = run({ "zero=3" }, { ranks = 2 })
    agree(whole.loss, run({ "zero=3", HOST }, { ranks = 2 }).loss, 1e-6)
    run({ HOST }, { steps = 2 })
    local rest = run({}, { resume = true })
    run({}, { steps = 2 })
    local back = run({ DISK }, { resume = true })
    agree({ whole.loss[3], whole.loss[4] }, rest.loss, 1e-6)
    agree(rest.loss, back.loss, 1e-6)
  end)

  it("keep steps out of graphs, which is said, or refused where graphs are asked for", function()
    local said = run({ HOST }, { steps = 1 }).err
    assert.truthy(said:find("the host takes part in steps with offload", 1, true), said)
    assert.truthy(said:find("page-locked memory of the host; the host makes their updates", 1, true), said)
    local refused = run({ HOST, "graph=true" }, { code = 2 }).err
    assert.truthy(refused:find("graph = true: steps cannot be", 1, true), refused)
    said = run({ "offload={optimizer='disk',disk='no/such'}" }, { code = 2 }).err
    assert.truthy(said:find([["no/such" is no folder]], 1, true), said)
  end)
end)

-- The bytes of the last checkpoint.
local function saved()
  return shell.lines(("cd %s/out/checkpoints/step-%08d && cksum *.safetensors"):format(folder, STEPS))
end

describe("tensors below a GPU", function()
  prepare()

  local ALL = "gradients='%s',parameters='%s',activations='%s',disk=%s,ring='100K',least=1"
  local host = ALL:gsub("disk=%%s,", ""):gsub("%%s", "host")
  local disk = ALL:gsub("disk=%%s", "disk='.'"):gsub("%%s", "disk")

  -- The same kernels run, so that the bits are the same. The ring is a part of what passes through it, so that bytes
  -- come and go all the time.
  for _, case in ipairs {
    { "gradients", { "offload={gradients='host',least=1,ring='40K'}" } },
    { "parameters", { "offload={parameters='host',least=1,ring='40K'}" } },
    { "activations", { "offload={activations='host',least=1,ring='80K'}" } },
    { "all three on the host", { "offload={" .. host .. "}" } },
    { "all three on a disk", { "offload={" .. disk .. "}" } },
    { "all three, bf16, two batches a step, blocks run again", { "offload={" .. disk .. "}" }, { "dtype=bf16",
      "gradient_accumulation=2", "recompute=block" } },
    { "all three, on 2 ranks with ZeRO 3", { "offload={" .. disk .. "}" }, { "zero={stage=3,whole_below=1}" }, 2 },
    { "all three, between 2 GPUs with ZeRO 3", { "offload={" .. host .. "}" }, { "zero={stage=3,whole_below=1}" }, 2,
      2 },
  } do
    it("train with the same bits: " .. case[1], function()
      local plain = run(case[3] or {}, { ranks = case[4], gpus = case[5] })
      local bytes = saved()
      local rests = run(with(case[2][1], case[3] or {}), { ranks = case[4], gpus = case[5] })
      if case[5] and emulation.is_on() then assert.truthy(rests.err:find("talk through NCCL", 1, true), rests.err) end
      assert.same(plain.loss, rests.loss)
      assert.same(bytes, saved())
      local o = rests.ranks[1].offload
      assert.is_true(o.fetched >= STEPS and o.stored >= STEPS and o.resident_peak_bytes <= o.ring_bytes)
    end)
  end

  it("leave the memory of the GPU, with states beside them; `check` counts it", function()
    local plain = run({ "checkpoint.interval=9" }).ranks[1]
    for _, tiers in ipairs { "optimizer='host'," .. host, "optimizer='disk'," .. disk } do
      local word = "offload={" .. tiers .. "}"
      local stats = run { word, "checkpoint.interval=9" }
      local rank = stats.ranks[1]
      local result = run_host({ "check", "recipe.lua", "--device", "cuda", "--json", "--set", word }, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total = json.decode(result.out, "check").totals
      assert.is_true(rank.peak_bytes < plain.peak_bytes)
      assert.equal(0, rank.gradient_bytes + rank.parameter_bytes)
      assert.equal(100 * 1024, rank.optimizer_bytes) -- the ring
      assert.equal(100 * 1024, total.optimizer_bytes)
      assert.equal(rank.offload.placed_bytes, total.offloaded_bytes)
      -- A rehearsal does not know what kernels take for themselves; the gradient of attention takes two pieces.
      assert.is_true(total.peak_bytes <= rank.peak_bytes)
      assert.is_true(rank.peak_bytes - 2 * rank.scratch_peak_bytes <= total.peak_bytes)
      assert.truthy(stats.err:find("gradients, parameters, activations rest", 1, true), stats.err)
    end
  end)

  it("end the run with the disk's error where it fails, and the checkpoints before are whole", function()
    local can_inject = shell.run("strace -o /dev/null -e trace=none -e inject=getppid:error=EIO true").code == 0
    if not can_inject then return pending "strace cannot inject faults here" end
    job.write(folder, recipe)
    local env = {}
    for name, path in pairs(emulation.environment()) do env[#env + 1] = name .. "=" .. shell.quote(path) end
    -- Threads make the calls that strace counts: some 60 writes a step and thread.
    local result = shell.run(("cd %s && GANYMEDE_ROOT=%s %s strace -f --seccomp-bpf -o /dev/null "
      .. "-e trace=io_uring_setup,pwrite64 -e inject=io_uring_setup:error=EPERM "
      .. "-e inject=pwrite64:error=EIO:when=150+ %s recipe.lua --threads 1 --device cuda --no-eval --out out "
      .. "--steps 12 --set %s"):format(folder, shell.quote(GANYMEDE_ROOT),
      table.concat(env, " "), shell.program "run",
      shell.quote "offload={optimizer='disk',gradients='disk',disk='.',ring='80K',least=1}"))
    assert.equal(1, result.code, result.err)
    assert.truthy(result.err:find(("the disk of the folder %s failed to write"):format(folder), 1, true), result.err)
    local left = require("ganymede.checkpoint").list(folder .. "/out/checkpoints")
    assert.is_true(#left > 0)
    for _, one in ipairs(left) do assert.is_true(require("ganymede.checkpoint").verify(one.path)) end
  end)

  it("are chosen within a limit of the GPU's memory, and the run keeps to it", function()
    local wide = recipe:gsub("vocabulary = 128", "vocabulary = 4096"):gsub("width = 16", "width = 64")
    local stats = run({ "offload={memory='21M'}", "checkpoint.interval=9" }, { recipe = wide, steps = 2 })
    local rank = stats.ranks[1]
    local chosen = "of the optimizer states rest in page-locked memory of the host (offload={fraction="
    assert.truthy(stats.err:find(chosen, 1, true), stats.err)
    local needs = tonumber(stats.err:match "a step needs ([%d.]+) MiB of 21.0 MiB of the GPU")
    assert.is_true(needs <= 21 and rank.peak_bytes <= needs * 2 ^ 20)
    assert.is_true(rank.offload.placed_bytes > 0 and rank.optimizer_bytes > 0) -- a part of the states
    local said = run({ "offload={memory='21M'}" }, { code = 2, device = "cpu", recipe = wide }).err
    assert.truthy(said:find("needs a folder", 1, true), said)
  end)

  it("are refused where they cannot be had", function()
    local said = run({ "offload={gradients='host',activations='disk',disk='.'}" }, { code = 2 }).err
    assert.truthy(said:find("rest in one place", 1, true), said)
    said = run({ "offload={gradients='host'}" }, { code = 2, ranks = 2 }).err
    assert.truthy(said:find("needs zero = 2 or 3", 1, true), said)
    said = run({ "offload={optimizer='host',ring='1M'}" }, { code = 2, device = "cpu" }).err
    assert.truthy(said:find("offload.ring: on a CPU nothing passes", 1, true), said)
  end)
end)
