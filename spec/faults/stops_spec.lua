--- Stops that come at an awkward moment: before anything runs, while things are put back, while a file is being loaded.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- os.execute would not do: it ignores SIGINT while it runs.
local interrupt = "local ffi = require 'ffi' ffi.cdef 'int raise(int);' ffi.C.raise(2) "

local one_rank = support.one_rank

-- A recipe on one rank that ends by itself -> { code, out, err, home }; the caller removes the folder.
local function run_alone(body, words)
  local home = support.home(body)
  local line = { "run", "recipe.lua", "--threads", "1", unpack(words or {}) }
  local result = run_host(line, { cwd = home, env = support.environment(home) })
  result.home = home
  return result
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

describe("stops at random moments of the first second", function()
  local function campaign(words)
    local line = { "run", "spec/faults/interrupts.lua", unpack(words) }
    local result = run_host(line, { env = { GANYMEDE_ROOT = GANYMEDE_ROOT } })
    assert.equal(0, result.code, result.out .. result.err)
    assert.matches("%d+ stops by SIG%u+ on %d ranks?, 0 wrong", result.out)
  end

  it("on one rank", function() campaign { "--set", "count=10" } end)
  it("on four", function() campaign { "--set", "count=5", "--set", "ranks=4" } end)
  it("on four, by SIGTERM", function()
    campaign { "--set", "count=3", "--set", "ranks=4", "--set", "signal=TERM", "--set", "within=0.2" }
  end)
end)

describe("a stop", function()
  it("that comes before stops raise is raised then", function()
    local errors = { failure.new(130, "early"), failure.new(143, "early"), failure.new(7, "early") }
    core.signals_open(errors, true, false)
    local ok, err = failure.protect(core.signals_close, function()
      assert(loadstring(interrupt))()
      return pcall(core.signals_arm, true)
    end)
    assert.is_false(ok)
    assert.equal(130, failure.code(err))
  end)

  it("that comes when all is done is over with it: the next is no second one, which would kill", function()
    local errors = { failure.new(130, "late"), failure.new(143, "late"), failure.new(7, "late") }
    core.signals_open(errors, true, false)
    local waits = failure.protect(core.signals_close, function()
      assert(loadstring(interrupt))()
      core.signals_arm(false)
      return core.signals_take()
    end)
    assert.is_nil(waits)
  end)

  it("that comes between two lines of the repl ends the next one, not the repl", function()
    local errors = { failure.new(130, "early"), failure.new(143, "early"), failure.new(7, "early") }
    core.signals_open(errors, true, false)
    local ok, err = failure.protect(core.signals_close, function()
      assert(loadstring(interrupt))()
      return require("ganymede.repl").protected(function() end)
    end)
    assert.is_false(ok)
    assert.equal(130, failure.code(err))
  end)

  it("that comes when a run has ended and is being wound up changes nothing", function()
    local result = run_alone("local function stop() " .. interrupt .. [[ end
      local arm = core.signals_arm
      core.signals_arm = function(on)
        core.signals_arm = arm
        stop()
        for _ = 1, 100 do rank = rank + 0 end
        return arm(on)
      end]], { "--stats", "stats.json" })
    local stats = json.decode(shell.read(result.home .. "/stats.json"), "stats.json")
    shell.remove(result.home)
    assert.equal(0, result.code, result.err)
    assert.equal(0, stats.exit_code)
  end)

  it("does not cut short what puts things back", function()
    local result = run_alone("local function stop() " .. interrupt .. [[ end
      require("ganymede.base.failure").protect(function()
        stop()
        for _ = 1, 100 do rank = rank + 0 end
        assert(io.open("put back", "w")):close()
      end, function() end)
      while true do core.sleep(0.01) end]])
    local back = exists(result.home .. "/put back")
    shell.remove(result.home)
    assert.equal(130, result.code, result.err)
    assert.is_true(back)
  end)

  it("in the handler of an error waits until that is through", function()
    local result = run_alone("local function stop() " .. interrupt .. [[ end
      local traceback = debug.traceback
      debug.traceback = function(...)
        debug.traceback = traceback
        stop()
        for _ = 1, 100 do rank = rank + 0 end
        return traceback(...)
      end
      require("ganymede.base.failure").protect(function() end, error, "the first")]], { "--stats", "stats.json" })
    local stats = json.decode(shell.read(result.home .. "/stats.json"), "stats.json")
    shell.remove(result.home)
    assert.is_nil(result.err:find("error in error handling", 1, true), result.err)
    assert.is_true(stats.exit_code == 1 or stats.exit_code == 130)
    assert.equal(result.code, stats.exit_code)
  end)

  it("before a save has begun leaves nothing to wait for, and no folder", function()
    local result = run_alone [[
      local save = core.checkpoint_new { folder = "steps", step = 3, names = { "a" }, tensors = { gm.ones { 2 } },
        meta = "{}" }
      assert(core.checkpoint_prepare(save))
      assert(io.open "steps/step-00000003.tmp")
      save = nil
      collectgarbage()
      collectgarbage()
      print((io.open "steps/step-00000003.tmp"))]]
    shell.remove(result.home)
    assert.equal(0, result.code, result.err)
    assert.equal("nil\n", result.out)
  end)
end)

-- Trains; at step 20 every rank waits for a second stop.
local patient = support.training [[
  if trainer.step == 20 then
    if rank == 0 then assert(io.open('ready', 'w')):close() end
    while true do core.sleep(0.01) end
  end]]:gsub("epochs = 4", "epochs = 100000")

describe("SIGTERM that comes twice", function()
  local function twice(command)
    local job = support.start(patient, { "--stats", "stats.json" }, command)
    job:file "ready"
    job:signal("TERM", job:supervisor())
    os.execute "sleep 0.5"
    job:signal("TERM", job:supervisor())
    local stats = json.decode(job:file "stats.json", "stats.json")
    support.check(job:finish(), 143, "ganymede: stopped by SIGTERM")
    assert.equal(143, stats.exit_code)
  end

  it("ends one rank with status 143", function() twice(one_rank) end)
  it("ends three with status 143", function() twice() end)
end)

describe("SIGHUP", function()
  local function check_hangup(command)
    local body = support.training "if rank == 0 and trainer.step == 20 then ready() end"
    local job = support.start(body:gsub("epochs = 4", "epochs = 100000"), { "--out", "run" }, command)
    job:file "ready"
    job:signal("HUP", job:supervisor())
    support.check(job:finish(), 75, "stopped after step")
  end

  it("saves a checkpoint, as SIGTERM does, on one rank", function() check_hangup(one_rank) end)
  it("and on three", function() check_hangup() end)
end)

-- As nohup starts a program, and a shell that puts it in the background.
describe("a signal that was ignored before the run", function()
  for _, name in ipairs { "HUP", "INT" } do
    it("stays so: SIG" .. name, function()
      local job = support.start(support.training [[
        if trainer.step == 20 then
          ready()
          repeat local go = io.open "go" until go
        end]], {}, "env --ignore-signal=" .. name .. " %s run recipe.lua")
      job:file "ready"
      job:signal(name, job:supervisor())
      shell.write(job.home .. "/go", "")
      local result = job:finish()
      assert.equal(0, result.code, result.err)
    end)
  end
end)

describe("os.exit in a hook", function()
  it("is an error, also on one rank, and --stats says so", function()
    local result = run_alone(support.training "if trainer.step == 3 then os.exit(0) end", { "--stats", "stats.json" })
    local stats = json.decode(shell.read(result.home .. "/stats.json"), "stats.json")
    shell.remove(result.home)
    assert.equal(1, result.code)
    assert.matches("recipe.lua:%d+: os.exit%(0%) in the middle of a run", result.err)
    assert.equal(1, stats.exit_code)
  end)
end)
