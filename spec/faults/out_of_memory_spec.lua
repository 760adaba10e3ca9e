--- The kernel kills a rank because a control group has no memory left (Linux's own killing, not a signal that a spec
-- sends): the job ends as after any death of a rank, and the message says what signal 9 may mean.
--
-- The rank puts itself into a group below the one that it is in, with a limit of 64 MiB. Where nobody lets this process
-- make such a group (it takes root, or a part of the tree that belongs to this user), there is nothing to run.
-- sanitizers: no, a process that is killed tells them nothing
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local LIMIT = 64 * 2 ^ 20 -- bytes

-- A group for memory -> { path, limit, count: files of the limit and of what was killed }; nil and why there is none.
local function group()
  local of_memory, unified
  for line in io.lines "/proc/self/cgroup" do
    of_memory = of_memory or line:match "^%d+:memory:(.*)$"
    unified = unified or line:match "^0::(.*)$"
  end
  local v1 = of_memory ~= nil
  local base = v1 and "/sys/fs/cgroup/memory" .. of_memory or "/sys/fs/cgroup" .. (unified or "")
  local path = ("%s/ganymede-spec-%d"):format(base:gsub("/$", ""), core.process().pid)
  if os.execute(("mkdir %s 2>/dev/null"):format(shell.quote(path))) ~= 0 then
    return nil, "no control group of memory can be made below " .. base
  end
  local made = { path = path, limit = path .. (v1 and "/memory.limit_in_bytes" or "/memory.max"),
    count = path .. (v1 and "/memory.oom_control" or "/memory.events") }
  local file = io.open(made.limit, "w")
  local written = file and file:write(("%d"):format(LIMIT)) and file:close()
  if written then return made end
  os.execute("rmdir " .. shell.quote(path))
  return nil, "the control groups below " .. base .. " do not limit memory"
end

-- A group can go when nobody is left in it.
local function remove(made)
  assert.equal(0, os.execute(("for i in 1 2 3 4 5 6 7 8 9; do rmdir %s && exit 0; sleep 0.1; done; exit 1"):format(
    shell.quote(made.path))))
end

describe("a rank that the kernel kills for want of memory", function()
  it("ends the job within seconds, and the message says what the signal may mean", function()
    local made, why = group()
    if not made then return pending(why) end
    finally(function() remove(made) end)
    local result = support.run(support.training(([[
      if trainer.step == 5 and rank == 1 then
        local file = assert(io.open("%s/cgroup.procs", "w"))
        assert(file:write(core.process().pid) and file:close())
        fault()
        local held = {}
        for i = 1, 64 do held[i] = gm.uniform({ 2 ^ 20 }, { dtype = "f64" }) end
        error "512 MiB were written in a group of 64"
      end]]):format(made.path)))
    support.check(result, 6, "rank 1: killed by signal 9")
    assert.matches("this machine ran out of memory: see dmesg, lower data%.batch_size", result.err)
    assert.is_true(tonumber(shell.read(made.count):match "oom_kill (%d+)") >= 1, shell.read(made.count))
  end)
end)
