--- `run --memory-checkpoint K` on several machines: ranks over TCP on this one, where SLURMD_NODENAME says on which
-- machine each is, so that each has a memory of its own in /dev/shm. A rank is killed, and memories are lost or
-- damaged; the ranks that come, the same or others, go on from the parts and copies that are left. No checkpoint is on
-- a disk.
--
-- In f64 the losses agree with those of one rank to 1e-9: the order of sums differs, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local json = require "ganymede.base.json"
local memory_file = require "ganymede.job.memory_file"
local plain_ranks = require "spec.support.plain_ranks"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- 24 steps. From step 8 on, as soon as the last step that was saved, 6 or a later one, is whole in memory, and on the
-- disk what the file `disk` says, the rank in the file `dies` is killed, once. (Of a save under way the parts may be
-- whole and their copies not: ranks would go on from there.) A file `full` has no room for copies; with a file
-- `unnoted` nobody can write memory.json again.
local recipe = [[
local dies, full = tonumber(text_of "dies"), text_of "full"
if full and rank == 1 then
  local file = core.apart_file
  core.apart_file = function(path, bytes)
    if bytes then return nil, "no room here" end
    return file(path)
  end
end
local write_whole = core.write_whole
function core.write_whole(path, text)
  if text_of "unnoted" and path == "run/memory.json" and text_of(path) then error("No space left on device", 0) end
  return write_whole(path, text)
end
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer)
  core.sleep(0.01)
  if rank ~= dies or trainer.step < 8 or text_of "done" then return end
  local disk = text_of "disk"
  local step = tonumber((text_of "run/memory.json" or ""):match '"step":(%d+)')
  if step < 6 or step ~= trainer.step - trainer.step % 3 then return end
  if disk and not text_of(("run/checkpoints/step-%08d/index.json"):format(tonumber(disk))) then return end
  local file = io.open("done", "w")
  file:write(step)
  file:close()
  kill(9)
end })
return {
  name = "points", seed = 3, steps = 24, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8, 8 }, classes = 4, dropout = 0.2 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } },
}
]]

describe("checkpoints in the memory of several machines", function()
  local whole, home
  setup(function()
    local alone = support.home(recipe)
    local result = support.run_in(alone, { "--out", "run" }, 1)
    if result.code == 0 then whole = support.losses(alone) end
    shell.remove(alone)
    assert.equal(0, result.code, result.err)
  end)
  before_each(function() home = support.home(recipe) end)
  after_each(function()
    os.execute("rm -rf /dev/shm/ganymede-memory-*-spec" .. home:match "[^-]+$" .. "*")
    shell.remove(home)
  end)

  -- The names of machines end in a way that belongs to this example.
  local function name(machine) return "spec" .. home:match "[^-]+$" .. machine end

  -- Starts the recipe on these machines, a letter for each rank -> results of the ranks.
  local function run(machines, ...)
    os.execute("rm -f " .. home .. "/status*") -- of the ranks before
    return plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", "--out", "run", "--memory-checkpoint", "3",
      ... }, { ranks = #machines, env = function(rank)
        return { SLURMD_NODENAME = name(machines:sub(rank + 1, rank + 1)), LOCAL_RANK = 0, LOCAL_WORLD_SIZE = 1 }
      end }):finish()
  end

  local function known() return json.decode(shell.read(home .. "/run/memory.json"), "memory.json") end
  local function memory_of(machine) return ("/dev/shm/ganymede-memory-%s-%s-*"):format(known().id, name(machine)) end
  local function nothing_left()
    assert.equal("", shell.run(("ls -d /dev/shm/ganymede-memory-%s-* 2>/dev/null"):format(known().id)).out)
  end

  -- What is said of the newest checkpoint on the disk. On a busy machine more steps may pass before the rank dies.
  local function from_disk()
    local newest = 0
    for step in shell.run("ls -d " .. home .. "/run/checkpoints/step-*/index.json").out:gmatch "step%-(%d+)" do
      newest = math.max(newest, tonumber(step))
    end
    return ("resumed from run/checkpoints/step-%08d at step %d"):format(newest, newest)
  end

  -- The first start, of which a rank dies.
  local function lose(rank, machines, ...)
    shell.write(home .. "/dies", tostring(rank))
    local results = run(machines, ...)
    assert.equal(137, results[rank].code, results[rank].err)
    return tonumber(shell.read(home .. "/done"))
  end

  -- The second one, which must go on so and end as a run that nobody disturbed.
  local function go_on(how, machines, ...)
    local results = run(machines, "--resume", "auto", ...)
    assert.equal(0, results[0].code, results[0].err)
    assert.is_truthy(results[0].out:find(how, 1, true), results[0].out .. results[0].err)
    local list = support.losses(home)
    assert.equal(24, #list)
    for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
    nothing_left()
    return results[0]
  end

  it("are found again by the same ranks, and nothing of a disk is read", function()
    local step = lose(1, "aab", "--set", "zero.level=3")
    for _, machine in ipairs { "a", "b" } do
      assert.equal("700", shell.run("stat -c %a " .. memory_of(machine)).out:match "%d+")
    end
    local how = ("resumed from the memory of 2 machines at step %d, saved by 3 ranks; 0 parts came"):format(step)
    local said = go_on(how, "aab", "--set", "zero.level=3")
    assert.is_nil(said.err:find("warning", 1, true), said.err)
    assert.equal("", shell.run("ls -d " .. home .. "/run/checkpoints 2>/dev/null").out)
  end)

  it("outlive a machine, and a damaged part, for fewer ranks on other machines", function()
    local step = lose(2, "aabc", "--set", "zero.level=3")
    os.execute("rm -r " .. memory_of "b") -- rank 2; its copy is on c
    shell.run(("for f in %s/step-%08d/rank-00000.safetensors; do truncate -s -1 $f; printf X >>$f; done"):format(
      memory_of "a", step)) -- that of rank 0 was on b
    local said = go_on(("resumed from the memory of 3 machines at step %d, saved by 4 ranks"):format(step - 3), "dca",
      "--set", "zero.level=3")
    assert.matches("the part of rank 0 of step %d+ in the memory of [^ ]+ is damaged, and is left out: .*: tensor '.*'",
      said.err)
  end)

  it("are read by another mesh, and their files travel", function()
    local step = lose(3, "abcd", "--set", "parallel.tensor.size=2", "--set", "parallel.tensor.mode=1d")
    os.execute("rm -r " .. memory_of "a" .. " " .. memory_of "c") -- no neighbours of each other
    local said = go_on(("resumed from the memory of 3 machines at step %d, saved by 4 ranks"):format(step), "dbe",
      "--set", "zero.level=1")
    assert.is_nil(said.out:find("; 0 parts came", 1, true), said.out)
  end)

  it("give way to the disk where two neighbours are lost, which one line says", function()
    shell.write(home .. "/disk", "5")
    lose(0, "abc", "--set", "checkpoint.interval=5")
    os.execute("rm -r " .. memory_of "a" .. " " .. memory_of "b")
    local said = go_on(from_disk(), "abc", "--set", "checkpoint.interval=50")
    -- a step whose copies were on their way may lack more than the one that was whole
    assert.matches("no step is whole in memory %(step %d+ lacks the parts? of ranks? 0[^%)]*%), and the newest "
      .. "checkpoint on the disk serves", said.err)
  end)

  it("give way to the disk where that is newer", function()
    shell.write(home .. "/disk", "8")
    lose(1, "ab", "--set", "checkpoint.interval=8")
    for _, machine in ipairs { "a", "b" } do
      os.execute("for s in " .. memory_of(machine) .. "/step-*; do [ ${s##*-0} -le 6 ] || rm -r $s; done")
    end
    go_on(from_disk(), "ab")
  end)

  it("go with the run that begins anew in its folder", function()
    lose(1, "ab")
    local old = memory_of "a"
    assert.not_equal("", shell.run("ls -d " .. old).out)
    shell.write(home .. "/dies", "7")
    assert.equal(0, run("ab")[0].code)
    assert.equal("", shell.run("ls -d " .. old .. " 2>/dev/null").out)
    nothing_left()
  end)

  it("are not those of a copy of the run's folder, which goes on for itself", function()
    lose(1, "ab")
    os.execute("cp -r " .. home .. "/run " .. home .. "/copy; rm " .. home .. "/dies")
    local result = run("ab", "--out", "copy", "--resume", "auto")[0]
    assert.equal(0, result.code, result.err)
    assert.is_truthy(result.out:find("there is no checkpoint to resume from", 1, true), result.out)
    go_on("resumed from the memory of 2 machines at step ", "ab")
  end)

  it("are given up with one warning where a machine has no room, and training goes on", function()
    shell.write(home .. "/full", "")
    local result = run("ab")[0]
    assert.equal(0, result.code, result.err)
    local _, times = result.err:gsub("memory does not take the state: rank 1: no room here", "")
    assert.equal(1, times, result.err)
    assert.equal(0, known().step)
    nothing_left()
  end)

  it("are kept where a full disk takes no note of them, which is said once, and training goes on", function()
    shell.write(home .. "/unnoted", "")
    local result = run("ab")[0]
    assert.equal(0, result.code, result.err)
    local _, times = result.err:gsub("that step 3 lies in memory cannot be noted, and training goes on: No space left",
      "")
    assert.equal(1, times, result.err)
    assert.is_nil(result.err:find("step 6 lies", 1, true), result.err)
    assert.equal(0, known().step)
    nothing_left()
  end)

  it("are refused in a folder that others may read", function()
    os.execute("mkdir " .. home .. "/run")
    memory_file.write(home .. "/run", "00000000deadbeef", 0)
    local boot = shell.read("/proc/sys/kernel/random/boot_id"):match "^%x+"
    local folder = ("/dev/shm/ganymede-memory-00000000deadbeef-%s-%s"):format(name "b", boot)
    os.execute("mkdir -m 755 " .. folder)
    local results = run("ab", "--resume", "auto")
    os.execute("rmdir " .. folder)
    os.execute("rmdir " .. memory_of "a")
    assert.equal(1, results[0].code, results[0].err)
    assert.is_truthy(results[0].err:find("rank 1: " .. folder .. " is not a folder of this user alone", 1, true),
      results[0].err)
  end)
end)
