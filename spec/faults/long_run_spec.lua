--- A long run holds no more memory, descriptors and mappings in its last step than after its first thousands.
-- sanitizers: no, what a process holds is measured; leaks of single objects are found by the specs of their parts
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local STEPS, FROM = 8000, 2500 -- behind the growth of the first; neither is near a checkpoint's step

-- Writes what this process holds into a file: descriptors, KiB of resident memory, mappings.
local BODY = support.training(([[
  if trainer.step == %d or trainer.step == %d then
    collectgarbage()
    collectgarbage()
    local n = { fd = 0, maps = 0 }
    for _, kind in ipairs { "fd", "maps" } do
      local list = kind == "fd" and io.popen "ls /proc/$PPID/fd" or io.open "/proc/self/maps"
      for _ in list:lines() do n[kind] = n[kind] + 1 end
      list:close()
    end
    local status = io.open "/proc/self/status"
    local rss = status:read("*a"):match "VmRSS:%%s+(%%d+)"
    status:close()
    local out = io.open(("held-%%d-%%d"):format(rank, trainer.step), "w")
    out:write(n.fd, " ", n.maps, " ", rss)
    out:close()
  end]]):format(FROM, STEPS - 500)):gsub("epochs = 4", "epochs = 10000")
  :gsub('{ type = "Fault" }', '%0, { type = "CheckpointHook", interval = 1000 }, { type = "LossHook" }')

describe("a run of thousands of steps", function()
  it("holds no more at its end, on both ranks, with checkpoints and metrics on the way", function()
    local home = support.home(BODY)
    local result = support.run_in(home, { "--steps", tostring(STEPS), "--out", "run", "-q" }, 2, 600)
    assert.equal(0, result.code, result.err)
    for rank = 0, 1 do
      local held = {}
      for i, step in ipairs { FROM, STEPS - 500 } do
        local fd, maps, rss = support.read(("%s/held-%d-%d"):format(home, rank, step)):match "(%d+) (%d+) (%d+)"
        held[i] = { fd = tonumber(fd), maps = tonumber(maps), rss = tonumber(rss) }
      end
      local text = ("rank %d: %d and %d descriptors, %d and %d mappings, %d and %d KiB"):format(rank, held[1].fd,
        held[2].fd, held[1].maps, held[2].maps, held[1].rss, held[2].rss)
      assert.is_true(held[2].fd <= held[1].fd + 2, text) -- one may just be in use; a checkpoint that left one: 5 more
      assert.is_true(held[2].maps <= held[1].maps + 8, text) -- compiled Lua, the allocator's
      assert.is_true(held[2].rss < held[1].rss + 2048, text) -- a leak of half a KiB a step would be 2.5 MiB
    end
    shell.remove(home)
  end)
end)
