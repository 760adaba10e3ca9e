--- The clock of the wall is set while a job runs: ten days ahead, ten days back. Nothing stops, nothing is given up too
-- early, no limit becomes longer, and the losses are those of one rank whose clock was left alone.
--
-- wall_clock.c is loaded into every process of the job; the machine's own clock is not touched.
-- sanitizers: no, numbers of training on several ranks are compared
local core = require "ganymede.core"
local ffi = require "ffi"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local DAYS = 10 * 86400
local folder

setup(function()
  folder = shell.temporary_folder()
  local command = ("cc -shared -fPIC -O1 -Wall -Werror -o %s/clock.so spec/faults/wall_clock.c -lm -ldl")
  local built = shell.run(command:format(shell.quote(folder)))
  assert(built.code == 0, built.err)
end)

teardown(function() shell.remove(folder) end)

-- Sets the clock: seconds ahead of the machine's. In place: the processes have mapped the file.
local function set_clock(seconds)
  local file = assert(io.open(folder .. "/clock", "r+b") or io.open(folder .. "/clock", "wb"))
  file:write(ffi.string(ffi.new("double[1]", seconds), 8))
  file:close()
end

-- What each process of the job is started with.
local function environment() return { LD_PRELOAD = folder .. "/clock.so", WALL_CLOCK = folder .. "/clock" } end

-- A job of 3 ranks whose clock can be set.
local function start(words)
  local body = support.training [[
    core.sleep(0.02)
    if trainer.step == 3 and core.rank() == 0 then assert(io.open("ready", "w")):close() end
  ]]
  set_clock(0)
  local job = support.start(body, { "--out", "run", "--set", "epochs=100000", "--set", "dtype=f64",
    unpack(words or {}) }, ("env LD_PRELOAD=%s/clock.so WALL_CLOCK=%s/clock %%s run recipe.lua -n 3"):format(folder,
    folder))
  job:file "ready"
  return job
end

local function verb(job, ...)
  return run_host({ ... }, { cwd = job.home, env = support.environment(job.home, environment()) })
end

local function check_clock(job, ahead)
  local result = verb(job, "attach", "--run", "@0 require 'ganymede.core'.wall()")
  assert.near(core.wall() + ahead, tonumber(result.out:match "(%d+%.?%d*)%s*$"), 3600, result.out .. result.err)
end

describe("a job whose clock is set", function()
  it("goes on, answers, changes its ranks, stops with a checkpoint and goes on from it", function()
    local job = start { "--comm-timeout", "5", "--set", "checkpoint.interval=10" }
    for _, ahead in ipairs { DAYS, -DAYS } do
      set_clock(ahead)
      job:goes_on()
      check_clock(job, ahead)
    end
    local resized = verb(job, "resize", "-n", "2")
    assert.equal(0, resized.code, resized.err)
    set_clock(DAYS)
    job:goes_on()
    assert.equal(0, verb(job, "top", "--once").code)
    set_clock(0)
    job:signal("TERM", job:supervisor())
    assert.equal("75", job:file "status":match "%d+", job:read "err")
    set_clock(-DAYS) -- the checkpoint is of tomorrow
    local last = job:last_step()
    local again = verb(job, "run", "recipe.lua", "-n", "2", "--threads", "1", "--out", "run", "--resume", "auto",
      "--no-eval", "--set", "epochs=100000", "--set", "dtype=f64", "--steps", tostring(last + 5))
    assert.equal(0, again.code, again.err)
    assert.is_truthy(again.out:find("at step " .. last, 1, true), again.out)
    local alone_run = run_host({ "run", "recipe.lua", "--threads", "1", "--out", "alone", "--no-eval", "--set",
      "epochs=100000", "--set", "dtype=f64", "--steps", tostring(last + 5) },
      { cwd = job.home, env = support.environment(job.home) })
    assert.equal(0, alone_run.code, alone_run.err)
    local disturbed, alone = support.losses(job.home), support.losses(job.home, "alone")
    assert.equal(last + 5, #disturbed)
    for step, loss in ipairs(alone) do assert.near(loss, disturbed[step], 1e-9) end -- f64, sums in another order
    job:finish()
  end)

  for _, ahead in ipairs { DAYS, -DAYS } do
    it(("gives a rank that hangs up after --comm-timeout, set %d days %s then"):format(10,
      ahead > 0 and "ahead" or "back"), function()
      local job = start { "--comm-timeout", "3" }
      local rank = shell.lines(("cat /proc/%s/task/*/children"):format(job:keepers()[2]))[1]:match "%d+"
      job:signal("STOP", { rank })
      local began = core.now()
      set_clock(ahead)
      local status = job:file "status"
      assert.equal("7", status:match "%d+", job:read "err")
      assert.is_true(core.now() - began > 2.5, "given up too early")
      set_clock(0) -- of `late`
      local result = job:finish()
      assert.is_true(result.late < 13, ("ended %.1f s after the fault"):format(result.late))
    end)
  end
end)
