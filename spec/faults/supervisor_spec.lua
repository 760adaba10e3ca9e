--- What happens to a job as a whole: Ctrl-C, SIGTERM, a time limit, the death of the supervisor or of mpirun.
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local check = support.check

-- A training run of very many steps, with checkpoints; `ready` appears after 20 of them.
local long = support.training "if rank == 0 and trainer.step == 20 then ready() end"
  :gsub("epochs = 4", "epochs = 100000")

-- Ranks that loop for ever by themselves.
local busy = "if rank == 0 then ready() end local i = 0 while true do i = i + 1 end"

describe("a job of several ranks", function()
  it("is stopped by Ctrl-C, compiled loops included", function() support.check_interrupt(busy) end)

  it("ends at its time limit", function()
    local result = support.run("fault() while true do end", { "--timeout", "1" })
    check(result, 7, "ganymede: the run did not end within")
  end)

  it("saves a checkpoint on SIGTERM, ends with status 75, and can resume", function()
    support.check_terminated(long)
  end)

  it("leaves no process when its supervisor is killed", function()
    local job = support.start(busy)
    job:file "ready"
    job:signal("KILL", job:supervisor())
    local result = job:finish()
    assert.equal(137, result.code)
    assert.is_true(result.late < 10)
  end)

  it("ends with status 6 when mpirun is killed", function()
    local job = support.start(busy)
    job:file "ready"
    job:signal("KILL", job:pids "^mpirun ")
    check(job:finish(), 6, "ganymede: mpirun was killed by signal 9")
  end)

  it("ends with status 6 when a keeper is killed", function()
    local job = support.start(busy)
    job:file "ready"
    local keepers = job:keepers()
    assert.equal(3, #keepers)
    job:signal("KILL", { keepers[2] })
    local result = job:finish()
    check(result, 6, "killed")
  end)

  it("ends without a rank whose end cannot be seen, because its keeper was stopped", function()
    local job = support.start(busy)
    job:file "ready"
    job:signal("STOP", { job:keepers()[2] })
    job:signal("INT", job:supervisor())
    os.execute "sleep 1"
    job:signal("INT", job:supervisor()) -- kills
    local result = job:finish()
    assert.equal(130, result.code, result.err)
    assert.matches("ganymede: warning: rank 1 was killed %d+ s ago and has not ended; the job ends without it: process "
      .. "%d+ ", result.err)
    assert.is_nil(result.err:find "rank [02] was killed", result.err)
  end)

  it("passes on what ranks write in whole lines, one stream a stream", function()
    local result = support.run [[
      for i = 1, 200 do
        io.stdout:write("rank ", rank, " line ") io.stdout:flush()
        io.stdout:write(i, " of 200\n")
        if i % 100 == 0 then io.stderr:write("half of ", rank, "\n") end
      end
      io.stdout:write "no end"]]
    assert.equal(0, result.code, result.err)
    local count, ends = 0, 0
    for line in result.out:gmatch "[^\n]+" do
      if line:find "^rank %d line %d+ of 200$" then count = count + 1 end
      if line == "no end" then ends = ends + 1 end
    end
    assert.same({ 600, 3 }, { count, ends })
    assert.equal(6, select(2, result.err:gsub("half of %d\n", "")))
  end)
end)

describe("ranks that the user's own mpirun started", function()
  local mpirun = "mpirun -n 2 --oversubscribe --allow-run-as-root %s run recipe.lua"

  it("are one job", function()
    local job = support.start("local t = sum(gm.ones { 1 }) if rank == 0 then print(t:item()) end", {}, mpirun)
    local result = job:finish()
    check(result, 0, "")
    assert.is_truthy(result.out:find "^2\n", result.out)
  end)

  it("share the cores that nobody bound them to", function()
    local home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", "print(require('ganymede.core').device().threads)")
    local line = "cd %s && GANYMEDE_ROOT=%s mpirun -n 2 --bind-to none --oversubscribe --allow-run-as-root "
      .. "%s run recipe.lua"
    local root, program = shell.quote(GANYMEDE_ROOT), shell.quote(shell.executable())
    local result = shell.run(line:format(home, root, program))
    shell.remove(home)
    local share = math.max(1, math.floor(require("ganymede.base.machine").cores() / 2))
    assert.equal(("%d\n"):rep(2):format(share, share), result.out, result.err)
  end)

  it("end together when one fails, whose message is said once", function()
    local job = support.start("if rank == 1 then error 'broken' end sum(gm.ones { 4 })", {}, mpirun)
    local result = job:finish()
    assert.is_true(result.code ~= 0)
    assert.equal(1, select(2, result.err:gsub("ganymede: rank 1: recipe.lua:%d+: broken", "")), result.err)
    assert.is_nil(result.err:find("ganymede: rank 0", 1, true), result.err)
  end)
end)
