--- Optimizer states that rest on the host or on a disk: the same bits as in memory, less memory, and what happens when
-- the disk is full or fails.
-- sanitizers: no, checkpoints of several runs are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- The states of the largest parameter take 57,344 bytes of the disk, all of them some 300 KB, so that a ring of 192 KB
-- is used round and round.
local recipe = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, no_decay = "norm_and_bias" },
  epochs = 2, clip_grad_norm = 1.0, checkpoint = { interval = 3 },
}
]]
local STEPS = 6

-- Runs in the folder -> statistics, and the checksums of what the last checkpoint holds of each rank.
local function run(folder, ranks, set, more)
  more = more or {}
  shell.run("rm -rf " .. folder .. (more.keep and "/nothing" or "/out"))
  local flags = { "--no-eval", "--out", "out" }
  for _, word in ipairs(more.flags or {}) do flags[#flags + 1] = word end
  local stats = job.run_in(folder, recipe, ranks, { steps = more.steps or STEPS, set = set, flags = flags,
    code = more.code })
  stats.checkpoint = more.code and {} or shell.lines(("cd %s/out/checkpoints/step-%08d && cksum *.safetensors"):format(
    folder, more.steps or STEPS))
  return stats
end

local disk = "offload={optimizer='disk',disk='.',ring='192K'}"

describe("offloaded optimizer states", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  for _, case in ipairs {
    { "AdamW", {} },
    { "SGD with momentum", { "optimizer={type='SGD',lr=0.1,momentum=0.9,nesterov=true}" } },
    { "bf16 with masters", { "dtype=bf16" } },
    { "bf16 rounded by chance", { "dtype=bf16", "optimizer.master_weights=false" } },
    { "f16", { "dtype=f16" } },
    { "two batches a step", { "gradient_accumulation=2" } },
  } do
    it("have the same bits on the disk and on the host: " .. case[1], function()
      local function with(...)
        local set = { ... }
        for _, word in ipairs(case[2]) do set[#set + 1] = word end
        return set
      end
      local plain, on_disk = run(folder, 1, with()), run(folder, 1, with(disk))
      local on_host = run(folder, 1, with "offload=host")
      assert.same(plain.loss, on_disk.loss)
      assert.same(plain.checkpoint, on_disk.checkpoint)
      assert.same(plain.loss, on_host.loss)
      assert.same(plain.checkpoint, on_host.checkpoint)
    end)
  end

  for _, stage in ipairs { 0, 1, 2, 3 } do
    it("have the same bits on 2 ranks, ZeRO of stage " .. stage, function()
      local plain = run(folder, 2, { "zero=" .. stage })
      local on_disk = run(folder, 2, { "zero=" .. stage, disk })
      assert.same(plain.loss, on_disk.loss)
      assert.same(plain.checkpoint, on_disk.checkpoint)
    end)
  end

  it("leave memory: what stays is the ring, and a fraction stays if that is asked for", function()
    local plain = run(folder, 1, {}).ranks[1]
    local all = run(folder, 1, { disk }).ranks[1]
    assert.is_nil(plain.offload)
    assert.equal(196608, all.offload.ring_bytes)
    assert.equal(196608, all.optimizer_bytes)
    assert.is_true(all.offload.placed_bytes >= plain.optimizer_bytes)
    assert.is_true(all.offload.resident_peak_bytes <= 196608)
    -- Each step but the first reads and writes all; the first writes what it made, and then what it changed.
    local placed = all.offload.placed_bytes
    assert.is_true(all.offload.written_bytes >= (STEPS + 1) * placed)
    assert.is_true(all.offload.read_bytes >= (STEPS - 1) * placed)
    assert.is_true(all.offload.read_bytes <= (STEPS + 2) * placed) -- two checkpoints read all once more
    local half = run(folder, 1, { "offload={optimizer='disk',disk='.',ring='192K',fraction=0.5}" }).ranks[1]
    assert.is_true(half.offload.placed_bytes >= 0.5 * placed and half.offload.placed_bytes < 0.5 * placed + 57344)
    assert.is_true(half.optimizer_bytes - 196608 < 0.5 * plain.optimizer_bytes)
    local host = run(folder, 1, { "offload=host" })
    assert.equal(plain.optimizer_bytes, host.ranks[1].optimizer_bytes)
    assert.equal(plain.optimizer_bytes, host.ranks[1].offload.placed_bytes)
    assert.truthy(host.err:find("optimizer states on the host save nothing", 1, true), host.err)
  end)

  it("are what `check` says", function()
    job.write(folder, recipe)
    local result = run_host({ "check", "recipe.lua", "--json", "--set", disk }, { cwd = folder })
    assert.equal(0, result.code, result.err)
    local total, rank = json.decode(result.out, "check").totals, run(folder, 1, { disk }).ranks[1]
    assert.equal(rank.optimizer_bytes, total.optimizer_bytes)
    assert.equal(rank.offload.placed_bytes, total.offloaded_bytes)
  end)

  it("leave nothing in the folder, and go on from a checkpoint into memory and back", function()
    local whole = run(folder, 1, {})
    local kept = { keep = true, steps = 3 }
    run(folder, 1, { "checkpoint.interval=3", disk }, { steps = 3 })
    kept.flags, kept.steps = { "--resume", "auto" }, STEPS
    local rest = run(folder, 1, {}, kept)
    assert.same(whole.checkpoint, rest.checkpoint)
    run(folder, 1, {}, { steps = 3 })
    assert.same(whole.checkpoint, run(folder, 1, { disk }, kept).checkpoint)
    assert.same({ "out", "recipe.lua", "stats.json" }, shell.lines("ls -A " .. folder))
  end)

  it("are refused where they cannot be had", function()
    job.write(folder, recipe)
    local function refused(set, text)
      local result = run_host({ "run", "recipe.lua", "--steps", "2", "--set", set }, { cwd = folder })
      assert.are_not.equal(0, result.code)
      assert.truthy(result.err:find(text, 1, true), result.err)
    end
    refused("offload=disk", "needs a folder")
    refused("offload={optimizer='disk',disk='no/such'}", [["no/such" is no folder]])
    refused("offload={optimizer='host',disk='.'}", "nothing is offloaded to a disk")
    refused("offload={fraction=0.5}", "has a fraction of nothing")
    refused("offload={optimizer='disk',disk='.',ring='100K'}", "the states of the largest parameter are 57344")
    refused("offload={optimizer='disk',disk='.',ring='many'}", "is no number of bytes")
    refused("offload=tape", "one of")
  end)
end)

describe("a disk that fails", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- One rank in a process whose system calls fail as `faults` says.
  local function fail(faults)
    job.write(folder, recipe)
    return shell.run(("cd %s && GANYMEDE_ROOT=%s strace -f --seccomp-bpf -o /dev/null "
      .. "-e trace=fallocate,io_uring_setup,pread64,pwrite64 %s %s recipe.lua --threads 1 "
      .. "--no-eval --out out --steps 12 --set %s"):format(folder, shell.quote(GANYMEDE_ROOT), faults,
      shell.program "run", shell.quote(disk)))
  end

  it("is an error at the start where there is no room", function()
    local result = fail "-e inject=fallocate:error=ENOSPC"
    assert.equal(2, result.code, result.err)
    assert.truthy(result.err:find(("the folder %s has no room for"):format(folder), 1, true), result.err)
    assert.truthy(result.err:find("No space left on device", 1, true), result.err)
  end)

  it("is an error that says whether there is a folder", function()
    job.write(folder, recipe)
    for place, words in pairs { ["/proc"] = "no file for offload can be made in the folder /proc: ",
      [folder .. "/none"] = folder .. '/none" is no folder: make it', [folder .. "/recipe.lua"] = "is no folder" } do
      local result = shell.run(("cd %s && GANYMEDE_ROOT=%s %s recipe.lua --threads 1 --steps 1 --set %s"):format(folder,
        shell.quote(GANYMEDE_ROOT), shell.program "run",
        shell.quote(("offload={optimizer='disk',disk='%s'}"):format(place))))
      assert.equal(2, result.code, result.err)
      assert.truthy(result.err:find(words, 1, true), result.err)
    end
  end)

  -- strace counts the calls of each of the two threads: some 56 writes a step, with 56 more in the first.
  it("uses threads where io_uring is refused, says so once, and ends the run when a write fails", function()
    local result = fail "-e inject=io_uring_setup:error=EPERM -e inject=pwrite64:error=EIO:when=250+"
    assert.equal(1, result.code, result.err)
    assert.truthy(result.err:find(("the disk of the folder %s failed to write"):format(folder), 1, true), result.err)
    local _, times = result.err:gsub("the system refuses io_uring", "")
    assert.equal(1, times, result.err)
    local left = require("ganymede.checkpoint").list(folder .. "/out/checkpoints")
    assert.equal(3, left[1].step) -- those that were saved before are whole
    for _, one in ipairs(left) do
      local ok, message = require("ganymede.checkpoint").verify(one.path)
      assert.is_true(ok, message)
    end
  end)
end)
