--- No time limit follows the clock of the wall, which jumps when it is set (NTP, a user): programs that wait read
-- CLOCK_MONOTONIC. Who asks for the time of day only writes it down; these places are listed here.
-- sanitizers: no, it reads source
local tree = require "spec.support.tree"

-- The places in files (patterns of their paths) whose code has one of some words -> list of "path: word".
local function places(paths, words, code)
  local found = {}
  for _, path in ipairs(tree.files(unpack(paths))) do
    local text = code(tree.read(path))
    for _, word in ipairs(words) do
      if text:find(word) then found[#found + 1] = path .. ": " .. word end
    end
  end
  return found
end

describe("the clock of the wall", function()
  it("is read by C for core.wall, and for how old a copy from another machine is", function()
    local found = places({ "^host/.*%.[ch]$", "^kernels/.*%.[ch]$", "^kernels/.*%.cuh?$", "^bindings/.*%.[ch]$" },
      { "CLOCK_REALTIME", "gettimeofday", "[^%w_]time%(NULL%)", "timespec_get" }, tree.c_code)
    assert.same({
      "bindings/lua_live.c: CLOCK_REALTIME", -- how long ago a page of another machine was copied, which top shows
      "bindings/lua_rank.c: CLOCK_REALTIME", -- core.wall
      "host/comm/page.c: CLOCK_REALTIME",    -- when it was copied
    }, found)
  end)

  it("is what Lua writes down, and waits for nothing by it", function()
    local found = places({ "^lua/.*%.lua$" }, { "core%.wall", "os%.time", "os%.clock" }, tree.lua_code)
    assert.same({
      "lua/ganymede/base/machine.lua: os%.time",               -- in the name of a file
      "lua/ganymede/checkpoint/neighbours.lua: core%.wall",    -- tells saves of one start of the ranks from others
      "lua/ganymede/cli/cluster/record.lua: core%.wall",       -- when something happened to a job
      "lua/ganymede/hooks/prometheus.lua: core%.wall",         -- when a file was written
      "lua/ganymede/observe/rundir.lua: core%.wall",           -- in the name of a run
      "lua/ganymede/observe/tensorboard.lua: os%.time",        -- when a file was begun
      "lua/ganymede/train/neighbour_memory.lua: core%.wall",   -- tells a run from others
    }, found)
  end)

  it("is not that of a wait for a thread: every condition with a limit is made for CLOCK_MONOTONIC", function()
    local waiting = 0
    for _, path in ipairs(tree.files("^host/.*%.c$", "^kernels/.*%.c$")) do
      local text = tree.c_code(tree.read(path))
      if text:find "pthread_cond_timedwait" then
        waiting = waiting + 1
        assert.is_truthy(text:find "pthread_condattr_setclock%([^;]*CLOCK_MONOTONIC%)", path)
      end
    end
    assert.is_true(waiting > 0)
  end)
end)
