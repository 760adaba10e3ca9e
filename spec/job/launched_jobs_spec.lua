--- Jobs whose ranks others have started: what `ganymede resize` says of them, and what `top` shows of ranks on other
-- machines, from the copies of their pages.
local core = require "ganymede.core"
local device = require "spec.support.device"
local live = require "ganymede.job.live"
local plain_ranks = require "spec.support.plain_ranks"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"
local top = require "ganymede.observe.top"

local home
before_each(function()
  home = support.home(support.training [[
    if trainer.step == 3 and rank == 0 then io.open("ready", "w"):close() end
    if trainer.step == 3 then
      while not io.open "go" do os.execute "sleep 0.02" end
    end]])
end)
after_each(function() shell.remove(home) end)

local function resize() return run_host({ "resize", "-n", "3" }, { cwd = home, env = support.environment(home) }) end
local function go() shell.write(home .. "/go", "") end

describe("ganymede resize", function()
  it("names who has started the ranks, where it cannot start others", function()
    local job = plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", "--out", "run" }, { ranks = 2 })
    job:wait_for "ready"
    local result = resize()
    go()
    assert.equal(1, result.code)
    assert.matches("the environment started its ranks; stop it with SIGTERM", result.err)
    assert.equal(0, job:finish()[0].code)
  end)

  it("says for ranks of srun what scancel and a new job can do", function()
    local lines = { "cd " .. shell.quote(home) }
    for rank = 0, 1 do
      local words = support.environment_words(home, { SLURM_JOB_ID = 4711, SLURM_STEP_ID = 0, SLURM_STEP_NUM_TASKS = 2,
        SLURM_PROCID = rank, SLURM_LOCALID = rank, SLURM_STEP_TASKS_PER_NODE = 2, SLURM_STEP_NODELIST = "n1",
        MASTER_ADDR = "127.0.0.1", MASTER_PORT = 20000 + core.process().pid % 900 })
      lines[#lines + 1] = ("(env %s timeout -k 5 60 %s run recipe.lua --threads 1 --device %s --out run >out%d "
        .. "2>err%d; echo $? >status%d) &"):format(words, shell.quote(shell.executable()), device.name(), rank, rank,
        rank)
    end
    shell.write(home .. "/start.sh", table.concat(lines, "\n") .. "\n")
    assert(os.execute(("setsid sh %s/start.sh </dev/null >/dev/null 2>&1"):format(shell.quote(home))) == 0)
    local function wait_for(name)
      local deadline = core.now() + shell.PATIENCE
      while not io.open(home .. "/" .. name) do
        assert(core.now() < deadline, shell.run("cat " .. home .. "/err*").out)
        core.sleep(0.02)
      end
    end
    wait_for "ready"
    os.execute(("(sleep 0.5; touch %s/go) &"):format(shell.quote(home))) -- rank 0 hears at the border of a step
    local result = resize()
    assert.equal(1, result.code)
    assert.matches("srun started its ranks, in job 4711 of Slurm", result.err)
    assert.matches("scancel %-%-signal=TERM 4711\n", result.err)
    assert.matches("ganymede slurm recipe.lua %-N MACHINES %-%-out %S+/run", result.err)
    for rank = 0, 1 do wait_for("status" .. rank) end
  end)
end)

describe("the copy of a page", function()
  it("is made anew each second, without the rank, and goes with it", function()
    os.execute("mkdir " .. shell.quote(home .. "/run"))
    local path = live.copy_path(home .. "/run", 0)
    local page = core.page_make()
    page:copy(path)
    local function read(test)
      local deadline = core.now() + shell.PATIENCE
      repeat
        local found = core.page_read(path)
        if found and test(found) then return found end
        core.sleep(0.02)
      until core.now() > deadline
      error "no such copy came"
    end
    local first = read(function() return true end)
    assert.is_nil(first.step)
    page:step(7, 70, 0)
    local found = read(function(copy) return copy.step == 7 end)
    assert.equal(core.process().host, found.host)
    assert.is_true(found.silent >= 0 and found.silent < 5)
    page:close()
    assert.is_nil((core.page_read(path)))
    assert.equal("", shell.run("ls " .. shell.quote(home .. "/run")).out)
  end)
end)

describe("a rank on another machine", function()
  local function said(silent, more)
    local page = { rank = 0, world = 1, pid = 1, phase = "forward", age = 9, step = 4, since_step = 1, live = 1,
      peak = 2, reserved = 2, host = "n2", silent = silent, waiting = more }
    local rows = top.rows({ world = 1 }, { [0] = page })
    return rows[1], top.lines({ name = "x", world = 1 }, rows)[3]
  end

  it("is shown with its machine, and as gone where it tells nothing", function()
    local row, line = said(0.8)
    assert.is_true(row.alive)
    assert.matches("on n2: runs$", line)
    line = select(2, said(1, { text = "all_reduce", seconds = 3, group = "g", number = 1, peer = 5 }))
    assert.matches("on n2: waits 3%.0 s for rank 5 in all_reduce$", line)
    row, line = said(60)
    assert.is_false(row.alive)
    assert.matches("on n2: has told nothing for 60 s", line)
  end)
end)
