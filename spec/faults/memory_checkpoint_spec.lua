--- `run --memory-checkpoint`: a job whose rank was killed goes on from memory, in every mode, and no file of a disk is
-- read. The losses are those of one rank, f64, to 1e-9: only the order of sums differs.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- 12 steps. Rank 1 is killed before step 9, once, when the checkpoint of step 6 is whole; where the file `disk` is,
-- when that of step 8 is on the disk, and any in memory. The one of step 6 may have been put off there. Elsewhere rank
-- 1 waits for the one before it, since a checkpoint is put off while another one is written.
local recipe = [[
local memory = io.open("/proc/self/cmdline"):read("*a"):match "%-%-memory%-folder%z(%Z+)"
local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end
local function wait_for(...)
  local deadline = core.now() + 240
  while true do
    for _, path in ipairs { ... } do
      if exists(path) then return end
    end
    core.sleep(0.005)
    assert(core.now() < deadline, (...) .. " does not come")
  end
end
local function in_memory(step) return ("%s/step-%08d/index.json"):format(memory, step) end
local first = not exists "before"
-- The ranks that stand by say when they wait.
local came = io.open("/proc/self/cmdline"):read("*a"):find "%-%-takes%-over"
local ready, asked = core.link_ready, 0
core.link_ready = function(...)
  if came then assert(io.open("waits-" .. rank, "w")):close() end
  asked = asked + 1
  -- the second time they have the state, and wait for the word to go on
  if came and asked == 2 and rank == 0 and exists "term" then
    os.execute "kill -TERM $GANYMEDE_SUPERVISOR_PROCESS"
  end
  return ready(...)
end
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer)
  if came and exists "term" then return core.sleep(0.1) end
  if not memory or not first or rank ~= 1 then return end
  if trainer.step == 5 and not exists "disk" then wait_for(in_memory(3)) end
  if trainer.step ~= 8 then return end
  if exists "standby" or exists "term" then
    wait_for "waits-0"
    wait_for "waits-1"
    core.sleep(1) -- the supervisor looks ten times
  end
  if exists "disk" then
    wait_for "run/checkpoints/step-00000008/index.json"
    wait_for(in_memory(7), in_memory(6), in_memory(3))
  else
    wait_for(in_memory(6))
  end
  local file = assert(io.open("before", "w"))
  file:write(memory)
  file:close()
  kill(9)
end, before_train = function()
  if came and exists "term" then core.sleep(1) end -- the stop comes before the first step
end })
return {
  name = "points", seed = 3, steps = 12, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8, 8 }, classes = 4, dropout = 0.2 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } },
}
]]

local losses = support.losses

describe("a job with --memory-checkpoint", function()
  local whole
  setup(function()
    local home = support.home(recipe)
    local result = support.run_in(home, { "--out", "run" }, 1)
    if result.code == 0 then whole = losses(home) end
    shell.remove(home)
    assert.equal(0, result.code, result.err)
    assert.equal(12, #whole)
  end)

  -- A run of 2 ranks -> { code, out, err }; the losses are compared, and the memory is looked at.
  local function run(sets, from, prepare, standby)
    local home = support.home(recipe)
    finally(function() shell.remove(home) end)
    if prepare then shell.write(home .. "/" .. prepare, "") end
    local words = { "--out", "run", "--max-restarts", "1", "--restart-delay", "0.01", "--memory-checkpoint", "3",
      standby }
    for _, text in ipairs(sets) do
      words[#words + 1] = "--set"
      words[#words + 1] = text
    end
    local result = support.run_in(home, words, 2)
    assert.equal(0, result.code, result.err)
    assert.matches("ganymede: rank 1: killed by signal 9", result.err)
    local how = standby and "the ranks that stood by go on, from the checkpoint of step "
      or "attempt 2 begins in 0.01 s: 2 ranks, from the checkpoint of step "
    assert.is_truthy(result.err:find(how .. from .. "\n", 1, true), result.err)
    assert.equal(standby == nil, result.err:find("attempt 2", 1, true) ~= nil)
    local list = losses(home)
    assert.equal(12, #list)
    for step, loss in ipairs(list) do assert.near(whole[step], loss, 1e-9) end
    local memory = shell.read(home .. "/before")
    assert.matches("^/dev/shm/ganymede%-%w+/checkpoints$", memory)
    assert.is_false(core.is_own_folder((memory:gsub("/checkpoints$", ""))))
    assert.same({}, support.left(home))
    support.check_folder(home)
    return result, memory
  end

  for name, sets in pairs {
    ["with ZeRO 3"] = { "zero.level=3" },
    ["with a tensor axis"] = { "parallel.tensor.size=2", "parallel.tensor.mode=1d" },
  } do
    it("goes on from memory " .. name, function()
      local result, memory = run(sets, "6 in memory")
      assert.is_truthy(result.out:find("resumed from " .. memory .. "/step-00000006 at step 6", 1, true), result.out)
      assert.is_nil(result.err:find("saves no checkpoints", 1, true))
    end)
  end

  it("goes on from the disk where that is newer", function()
    run({ "checkpoint.interval=4" }, "8", "disk")
  end)

  it("goes on in ranks that stand by", function()
    local result = run({ "parallel.pipeline.size=2", "num_microbatches=2" }, "6 in memory", "standby", "--standby")
    assert.matches("2 ranks took over from 2 at step 6", result.out)
  end)

  it("saves and ends with status 75 at a SIGTERM that comes while ranks that stood by take over", function()
    local home = support.home(recipe)
    finally(function() shell.remove(home) end)
    shell.write(home .. "/term", "")
    local result = support.run_in(home, { "--out", "run", "--max-restarts", "1", "--restart-delay", "0.01",
      "--memory-checkpoint", "3", "--standby" }, 2)
    assert.equal(75, result.code, result.err)
    assert.matches("the ranks that stood by go on, from the checkpoint of step 6 in memory", result.err)
    local step = result.err:match "stopped after step (%d+); saved run/checkpoints/step%-%d+ %(continue with"
    assert.is_true(tonumber(step) >= 6, result.err)
    local again = support.run_in(home, { "--out", "run", "--resume", "auto" }, 1)
    assert.equal(0, again.code, again.err)
    for i, loss in ipairs(losses(home)) do assert.near(whole[i], loss, 1e-9) end
    assert.same({}, support.left(home))
  end)

  it("is refused without --max-restarts", function()
    local home = support.home(recipe)
    finally(function() shell.remove(home) end)
    for _, case in ipairs {
      { "--memory-checkpoint belongs to --max-restarts", "--memory-checkpoint", "3" },
      { "--standby belongs to --max-restarts", "--standby" },
      { "give --memory-checkpoint K", "--max-restarts", "1", "--standby" },
      { "--takes-over is for ranks that a supervisor has started", "--takes-over" },
      { "--memory-folder is for ranks", "--memory-folder", "/dev/shm" },
    } do
      local result = support.run_in(home, { unpack(case, 2) }, 2)
      assert.equal(2, result.code)
      assert.is_truthy(result.err:find(case[1], 1, true), result.err)
    end
  end)
end)
