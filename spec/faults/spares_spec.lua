--- `run --memory-checkpoint K --standby` on several machines: ranks over TCP on this one, where SLURMD_NODENAME says
-- on which machine each is. A rank is killed, hangs or is asked to stop, and the ranks that stand by go on in its job,
-- from memory; no checkpoint is on a disk. Once each rank is on a host of its own, a network namespace.
--
-- With the same mesh the losses have the same bits as those of a run that nobody disturbed.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local hosts = require "spec.faults.hosts"
local json = require "ganymede.base.json"
local plain_ranks = require "spec.support.plain_ranks"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- 40 steps. Behind each step that a line "STEP RANK COMMAND" of the file `plan` names, or a later one, as soon as a
-- step is in memory and the ranks that stand by wait, the rank does that once: kill, stop (it hangs), fail (a Lua
-- error), term (SIGTERM to the guard of rank 0, and SIGKILL to itself). What has happened is in the folder `done`.
local recipe = [[
local spares = require "ganymede.job.spares"
local await = spares.await
-- A word that a rank is writing as it takes over stays where it is.
function spares.await()
  local set = os.getenv "GANYMEDE_STANDBY_SET"
  local word = ("%s/guard-wanted-%d.0.tmp"):format(spares.folder(), set)
  io.open(word, "w"):close()
  core.write_whole(("waits-%d-%d"):format(rank, set), tostring(core.process().pid))
  local taken = await()
  if taken then assert(text_of(word), "the guard has removed what its rank was writing") end
  return taken
end
local function all_wait()
  local set = tonumber(os.getenv "GANYMEDE_STANDBY_SET" or "") or -1
  for r = 0, core.world() - 1 do
    if not text_of(("waits-%d-%d"):format(r, set + 1)) then return false end
  end
  return true
end
-- A save goes on a little in each step, and small steps may be faster than it: they are slower until one is whole.
local function is_in_memory()
  local step = (text_of "run/memory.json" or ""):match '"step": *(%d+)'
  if tonumber(step or 0) > 0 then return true end
  core.sleep(0.3)
  return false
end
local function wait_until(fn) -- so that nothing stays where a spec fails
  local ends = core.now() + 50
  while not fn() do
    assert(core.now() < ends, "it did not come")
    core.sleep(0.02)
  end
end
local acts = {
  kill = function() kill(9) end,
  stop = function() kill "STOP" end,
  fail = function() error "as planned" end,
  term = function()
    wait_until(function() return (text_of "guard" or "") ~= "" end)
    os.execute("kill -TERM $(cat guard)")
    kill(9)
  end,
}
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer)
  for step, who, what in (text_of "plan" or ""):gmatch "(%d+) (%d+) (%a+)" do
    local done = ("done/%s-%s"):format(step, who)
    if trainer.step >= tonumber(step) and rank == tonumber(who) and not text_of(done) and is_in_memory() then
      wait_until(all_wait)
      local file = io.open(done, "w")
      file:write(trainer.step)
      file:close()
      acts[what]()
    end
  end
end })
return {
  name = "points", seed = 3, steps = 40, dtype = "f64",
  model = { type = "MLP", inputs = 6, hidden = { 8, 8 }, classes = 4, dropout = 0.2 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } },
}
]]

describe("ranks that stand by on several machines", function()
  local home, net
  before_each(function()
    home = support.home(recipe)
    assert(os.execute("mkdir " .. shell.quote(home .. "/done")) == 0)
  end)
  after_each(function()
    os.execute("rm -rf /dev/shm/ganymede-memory-*-spec" .. home:match "[^-]+$" .. "*")
    shell.remove(home)
  end)

  -- Starts the recipe on these machines, a letter for each rank.
  local function start(machines, out, ...)
    os.execute("rm -f " .. home .. "/status* " .. home .. "/waits-*")
    return plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", "--out", out, ... }, { ranks = #machines,
      address = net and hosts.addresses[0], prefix = net and function(rank) return net:inside(rank) end,
      env = function(rank)
        return { SLURMD_NODENAME = "spec" .. home:match "[^-]+$" .. machines:sub(rank + 1, rank + 1), LOCAL_RANK = 0,
          LOCAL_WORLD_SIZE = 1 }
      end })
  end

  local function nothing_left()
    local id = json.decode(shell.read(home .. "/run/memory.json"), "memory.json").id
    assert.equal("", shell.run(("ls -d /dev/shm/ganymede-memory-%s-* 2>/dev/null"):format(id)).out)
    support.check_folder(home)
  end

  -- The run with this plan, whose losses must be those of the same mesh without a fault -> results of the ranks.
  local function undisturbed(machines, plan, ...)
    local whole = start(machines, "whole", ...):finish()
    assert.equal(0, whole[0].code, whole[0].err)
    shell.write(home .. "/plan", plan)
    local results = start(machines, "run", "--memory-checkpoint", "3", "--standby", "--comm-timeout", "20",
      ...):finish()
    for rank = 0, #machines - 1 do assert.equal(0, results[rank].code, results[rank].err) end
    assert.same(support.losses(home, "whole"), support.losses(home, "run"))
    assert.equal("", shell.run("ls -d " .. home .. "/run/checkpoints 2>/dev/null").out)
    nothing_left()
    return results
  end

  local function times(text, pattern) return select(2, text:gsub(pattern, "")) end

  it("go on in place of ranks that are killed, twice, and the losses have the same bits", function()
    local results = undisturbed("aab", "10 1 kill 25 0 kill", "--set", "zero.level=3")
    assert.equal(2, times(results[0].out, "resumed from the memory of 2 machines at step %d+, saved by 3 ranks"),
      results[0].out)
    assert.matches("rank 1 was ended by signal 9; the ranks that stand by go on", results[1].err)
    assert.equal(2, times(shell.read(home .. "/run/events.jsonl"), '"event":"restart"'))
  end)

  it("go on in a mesh of tensors on two machines after a Lua error", function()
    local results = undisturbed("ab", "10 1 fail", "--set", "parallel.tensor.size=2",
      "--set", "parallel.tensor.mode=1d")
    assert.matches("as planned", results[1].err)
    assert.equal(1, times(results[0].out, "resumed from the memory of 2 machines"), results[0].out)
  end)

  local missing = hosts.missing()
  if missing then pending(missing) end
  local on_hosts = missing and function() end or it
  on_hosts("go on where each rank is on a host of its own", function()
    net = hosts.new(2)
    local ok, err = pcall(undisturbed, "ab", "10 1 kill 25 0 kill")
    net:remove()
    net = nil
    assert.is_true(ok, err)
  end)

  -- Within the time-out a healthy rank must answer on a busy machine, too, or it is taken for the one that hangs.
  it("have a rank killed that hangs", function()
    shell.write(home .. "/plan", "10 1 stop")
    local results = start("ab", "run", "--memory-checkpoint", "3", "--standby", "--comm-timeout", "15"):finish()
    assert.equal(0, results[0].code, results[0].err)
    assert.equal(0, results[1].code, results[1].err)
    assert.equal(1, times(results[0].out, "resumed from the memory of 2 machines"), results[0].out)
    assert.equal(40, #support.losses(home))
    nothing_left()
  end)

  it("save and end with status 75 where SIGTERM comes while they take over", function()
    shell.write(home .. "/plan", "10 1 term")
    local job = start("ab", "run", "--memory-checkpoint", "3", "--standby")
    job:wait_for "waits-0-1"
    for _, pid in ipairs(job:pids(0)) do -- the guard is the parent of its ranks, and has started a sweeper, too
      local env = shell.run(("tr '\\0' '\\n' </proc/%s/environ"):format(pid)).out
      if env:find "GANYMEDE_STANDBY=" then
        shell.write(home .. "/guard", shell.read("/proc/" .. pid .. "/status"):match "PPid:%s*(%d+)")
      end
    end
    local results = job:finish()
    assert.equal(75, results[0].code, results[0].err)
    assert.equal(75, results[1].code, results[1].err)
    assert.matches("saved run/checkpoints/step%-%d+", results[0].err)
    nothing_left()
  end)

  it("leave nothing where a guard is killed", function()
    shell.write(home .. "/plan", "10 1 guard")
    local text = shell.read(home .. "/recipe.lua"):gsub("local acts = {", [[%0
      guard = function()
        os.execute("kill -KILL $(sed -n 's/^PPid:[^0-9]*//p' /proc/" .. core.process().pid .. "/status)")
        core.sleep(0.1)
      end,]])
    shell.write(home .. "/recipe.lua", text)
    local results = start("ab", "run", "--memory-checkpoint", "3", "--standby"):finish() -- no process is left
    assert.equal(137, results[1].code, results[1].err)
    assert.equal(75, results[0].code, results[0].err)
    -- the sweeper of the guard removes its folder when nobody can know it any more
    local deadline = core.now() + shell.PATIENCE
    while shell.run("ls -d " .. home .. "/ganymede-*").code == 0 and core.now() < deadline do core.sleep(0.1) end
    nothing_left()
  end)

  it("that are lost are missed in one line, and the run ends in order without them", function()
    shell.write(home .. "/plan", "10 0 lose")
    local text = shell.read(home .. "/recipe.lua"):gsub("local acts = {", [[%0
      lose = function()
        wait_until(function() return text_of "waits-1-1" end)
        os.execute("kill -KILL $(cat waits-1-1)")
        wait_until(function() return text_of "err0":find "stood by are gone" end)
        assert(not io.open "stats.json", "those that are lost have written --stats")
      end,]])
    shell.write(home .. "/recipe.lua", text)
    local results = start("ab", "run", "--memory-checkpoint", "3", "--standby", "--stats", "stats.json"):finish()
    assert.equal(0, results[0].code, results[0].err)
    assert.equal(0, results[1].code, results[1].err)
    assert.equal(1, times(results[0].err, "the ranks that stood by are gone"))
    assert.is_nil(results[0].err:find("connection", 1, true), results[0].err)
    assert.equal(0, json.decode(shell.read(home .. "/stats.json"), "stats.json").exit_code)
    nothing_left()
  end)

  it("do not go on for ever where no newer step comes into memory", function()
    shell.write(home .. "/plan", "20 1 fail")
    os.execute("rmdir " .. home .. "/done") -- so that nothing is noted as done: it fails each time
    local text = shell.read(home .. "/recipe.lua"):gsub("file:write%(trainer.step%)%s+file:close%(%)", "")
    shell.write(home .. "/recipe.lua", text)
    local results = start("ab", "run", "--memory-checkpoint", "4", "--standby"):finish()
    assert.equal(1, results[0].code, results[0].err)
    assert.matches("3 times in a row no newer step was in memory than step %d+", results[0].err)
    assert.matches("as planned", results[1].err)
  end)

  it("are refused where they cannot be", function()
    for _, case in ipairs {
      { "give %-%-memory%-checkpoint K, too", "--out", "run", "--standby" },
      { "give %-%-out DIR", "--memory-checkpoint", "3", "--standby" },
      { "leave %-%-timeout out", "--out", "run", "--memory-checkpoint", "3", "--standby", "--timeout", "60" },
    } do
      local results = plain_ranks.start(home, { "run", "recipe.lua", unpack(case, 2) }, { ranks = 2 }):finish()
      os.execute("rm -f " .. home .. "/status*")
      for rank = 0, 1 do
        assert.equal(2, results[rank].code, results[rank].err)
        assert.matches(case[1], results[rank].err)
      end
    end
  end)
end)
