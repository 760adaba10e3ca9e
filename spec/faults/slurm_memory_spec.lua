--- `ganymede slurm --max-restarts ... -- --memory-checkpoint K` on Slurm itself: three slurmd on this machine
-- (spec/faults/slurm_cluster.lua), each of which counts as a machine of its own. A rank dies, and the memory of its
-- machine with it, without and with ranks that stand by; a machine dies. The run goes on from the copies at the
-- neighbours, and no checkpoint is on a disk.
--
-- In f64 the losses agree with those of one rank to 1e-9: the order of sums differs, 1e-16 an addition.
-- sanitizers: no, numbers of training on several ranks are compared
local cluster = require "spec.faults.slurm_cluster"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

describe("a run on Slurm with checkpoints in memory", function()
  local missing = cluster.missing()
  if missing then
    pending(missing)
    return
  end

  local c, home
  setup(function() c = cluster.start() end)
  teardown(function() c:stop() end)
  after_each(function() shell.remove(home) end)

  -- From step 20 on, as soon as step 16 is whole in memory: what `fault` says, once, on rank 1.
  local function body(fault)
    return (support.training(([[
      core.sleep(0.02)
      local file = rank == 1 and trainer.step >= 20 and not io.open "done" and io.open "run/memory.json"
      local step = file and tonumber(file:read "*a":match '"step":(%%d+)') or 0
      if file then file:close() end
      if step >= 16 then
        local done = io.open("done", "w")
        done:write(step)
        done:close()
        %s
      end]]):format(fault)):gsub('name = "points"', '%0, dtype = "f64"'))
  end

  local function submit(words, options, text)
    home = support.home(text)
    local result = c:run(("cd %s && %s slurm recipe.lua --out run %s -- --threads 1 %s"):format(shell.quote(home),
      shell.quote(shell.executable()), words, options))
    assert.equal(0, result.code, result.err)
    return result.out:match "^(%d+)\n$"
  end

  local function log(job) return shell.run(("cat %s/run/slurm-%s.log"):format(home, job)).out end

  local function like_undisturbed(count)
    local alone = run_host({ "run", "recipe.lua", "--threads", "1", "--out", "alone" }, { cwd = home })
    assert.equal(0, alone.code, alone.err)
    local want, got = support.losses(home, "alone"), support.losses(home)
    assert.same({ count, count }, { #want, #got })
    for i, loss in ipairs(want) do assert.near(loss, got[i], 1e-9) end
  end

  -- Of a machine, or of all.
  local function in_memory(name)
    local id = json.decode(shell.read(home .. "/run/memory.json"), "memory.json").id
    return ("/dev/shm/ganymede-memory-%s-%s*"):format(id, name or "")
  end

  local function nothing_in_memory() assert.equal("", shell.run("ls -d " .. in_memory() .. " 2>/dev/null").out) end

  -- Which steps were made again, at most 4 and those that were made while the newest one was written.
  local function check_resumed(said, how)
    local step = tonumber(said:match(how))
    assert.is_truthy(step, said)
    assert.is_true(step >= tonumber(shell.read(home .. "/done")), said)
    assert.equal("", shell.run("ls -d " .. home .. "/run/checkpoints 2>/dev/null").out)
  end

  it("goes on from the copies after a rank has died, with the memory of its machine", function()
    local job = submit("-N 3 --max-restarts 2 --restart-delay 0.1", "--memory-checkpoint 4 --set zero.level=3",
      body [[
        os.execute "rm -r /dev/shm/ganymede-memory-$(sed 's/.*id\":\"//; s/\".*//' run/memory.json)-$SLURMD_NODENAME-*"
        kill(9)]])
    c:wait(job, "^COMPLETED")
    local said = log(job)
    check_resumed(said, "resumed from the memory of 3 machines at step (%d+), saved by 3 ranks; %d")
    like_undisturbed(64)
    nothing_in_memory()
  end)

  it("goes on in ranks that stand by, in the same step of Slurm", function()
    local job = submit("-N 3 --max-restarts 2", "--memory-checkpoint 4 --standby", [[
      local spares = require "ganymede.job.spares"
      local await = spares.await
      function spares.await()
        io.open("waits", "w"):close()
        return await()
      end
    ]] .. body [[
        while not io.open "waits" do core.sleep(0.02) end
        os.execute "rm -r /dev/shm/ganymede-memory-$(sed 's/.*id\":\"//; s/\".*//' run/memory.json)-$SLURMD_NODENAME-*"
        kill(9)]])
    c:wait(job, "^COMPLETED")
    local said = log(job)
    check_resumed(said, "resumed from the memory of 3 machines at step (%d+), saved by 3 ranks; %d")
    assert.matches("rank 1 was ended by signal 9; the ranks that stand by go on", said)
    assert.is_nil(said:find("they are started again", 1, true), said)
    like_undisturbed(64)
    nothing_in_memory()
  end)

  it("goes on without a machine that has died", function()
    local job = submit("-N 3 --max-restarts 2 --restart-delay 0.1 --min-ranks 2", "--memory-checkpoint 4", body [[
        while not io.open "go" do core.sleep(0.02) end]])
    c:wait_until("step 20", function() return io.open(home .. "/done") end)
    os.execute("rm -r " .. in_memory "n3-") -- it goes with the machine; the ranks wait
    c:kill_machine "n3"
    shell.write(home .. "/go", "")
    c:wait(job, "^COMPLETED")
    c:mend_machine "n3"
    local said = log(job)
    check_resumed(said, "resumed from the memory of 2 machines at step (%d+), saved by 3 ranks; ")
    like_undisturbed(64)
    nothing_in_memory()
  end)
end)
