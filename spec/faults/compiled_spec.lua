--- Code that LuaJIT compiled ignores debug hooks. It stops at a time limit all the same, and nothing disturbs it
-- before: a tick that comes while the VM begins or ends to record can leave it with traces that end when entered.
local faults = require "spec.faults.support"
local support = require "spec.cli.support"

-- A recipe of Lua code under --timeout -> { code, out, err }.
local function run(recipe, seconds)
  local home = support.home(recipe)
  local result = support.run(home, { "run", "recipe.lua", "--timeout", tostring(seconds) })
  support.shell.remove(home)
  return result
end

local function check_stops(recipe)
  local result = run(recipe, 0.3)
  assert.equal(7, result.code, result.err)
  -- its own error, not the end by force 10 seconds later
  assert.is_truthy(result.err:find("the run did not end within 0.3 seconds", 1, true), result.err)
end

-- One that counts: spec/cli/run_spec.lua.
describe("a loop that never ends stops at --timeout", function()
  it("over pairs", function()
    check_stops [[
      local t, sum = {}, 0
      for i = 1, 30 do t[i] = i end
      while true do for _, v in pairs(t) do sum = sum + v end end]]
  end)

  it("that is compiled anew again and again", function()
    check_stops [[
      while true do
        local f = loadstring "local t, sum = ..., 0 for i = 1, 60 do for _, v in pairs(t) do sum = sum + v end end"
        f { 1, 2, 3 }
      end]]
  end)

  it("that is nearly always inside C functions", function()
    check_stops [[
      local ffi = require "ffi"
      ffi.cdef "void *memset(void *to, int byte, size_t n);"
      local bytes, n = ffi.new "char[10000000]", 0
      while true do
        n = math.min(n + 20000, 10000000) -- compiled before it is slow
        ffi.C.memset(bytes, 1, n)
      end]]
  end)
end)

describe("a loop that never ends, on one rank", function()
  local recipe = "ready() local i = 0 while true do i = i + 1 end"

  local function check(signal, code, text)
    local job = faults.start(recipe, nil, faults.one_rank)
    job:file "ready"
    os.execute "sleep 0.2" -- so that it is compiled
    job:signal(signal, job:supervisor())
    faults.check(job:finish(), code, text)
  end

  it("stops at Ctrl-C", function() check("INT", 130, "stopped by Ctrl-C") end)
  it("stops at SIGTERM", function() check("TERM", 143, "stopped by SIGTERM") end)
end)

-- Much that begins and ends to record, and loops over pairs; prints "whole" at its end.
local records = [[
  local function work(rounds)
    for _ = 1, rounds do
      local f = loadstring [=[
        local t, sum = ..., 0
        for i = 1, 60 do for _, v in pairs(t) do sum = sum + v end end
        return sum]=]
      local t = {}
      for i = 1, 30 do t[i] = i end
      assert(f(t) == 60 * 465)
    end
  end
]]

describe("while nothing asks for a stop", function()
  it("no timer interrupts the code", function()
    local result = run(records .. [[
      local ffi = require "ffi"
      ffi.cdef "int getitimer(int which, long *interval_and_value);"
      local profiling, t = 2, ffi.new("long[4]", { 1, 1, 1, 1 })
      for _ = 1, 3 do
        work(100)
        assert(ffi.C.getitimer(profiling, t) == 0)
        for i = 0, 3 do assert(t[i] == 0, "a timer runs") end
      end
      print "whole"]], 60)
    assert.is_truthy(result.out:find("whole", 1, true), result.err)
  end)

  it("a storm of the timer's signal changes nothing", function()
    local result = run(records .. [[
      local pid = require("ganymede.core").process().pid
      os.execute(("bash -c 'while kill -PROF %d; do :; done' 2>/dev/null &"):format(pid))
      work(4000)
      print "whole"]], 60)
    assert.is_truthy(result.out:find("whole", 1, true), result.err)
  end)
end)
