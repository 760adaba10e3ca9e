--- What goes wrong between devices, on 3 ranks that have one each: nccl_spec.lua runs this on them. Nothing elsewhere.
--
-- With NCCL an operation is queued and the host goes on, so that mistakes of other ranks come out where the host waits
-- for the device; and there they must, within the time-out, naming the call and the rank.
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local ffi = require "ffi"
local gm = require "ganymede"
local joined_devices = require "spec.cuda.joined_devices"
local section = require "spec.support.section"

local rank, world = core.rank(), core.world()

if world < 3 or core.comm_use_device "auto" == "" then
  it("between devices: on 3 ranks that have one each", function() pending "nccl_spec.lua runs it there" end)
  return
end

local all_is_well = joined_devices.all_is_well

ffi.cdef [[
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
]]

describe("between devices", function()
  setup(joined_devices.join)

  it("waits for operations wait for nobody: the device does", function()
    local before = core.device_counts().waits
    for _ = 1, 5 do comm.all_reduce(gm.full({ 1000 }, 1), "data") end
    local pending = comm.all_reduce(gm.full({ 1000 }, 1), "data", "sum", { async = true })
    pending:wait()
    assert.equal(before, core.device_counts().waits)
    all_is_well()
  end)

  it("messages cross, whatever the order of calls", function()
    local other = (rank + 1) % world
    local from = (rank + world - 1) % world
    local out, back = gm.full({ 500 }, rank), gm.zeros { 500 }
    local list = {}
    for k = 1, 4 do -- odd ranks receive first
      local sends = (k + rank) % 2 == 0
      if sends then list[#list + 1] = comm.send(out, "data", other, { async = true }) end
      list[#list + 1] = comm.receive(back, "data", from, { async = true })
      if not sends then list[#list + 1] = comm.send(out, "data", other, { async = true }) end
    end
    for _, pending in ipairs(list) do pending:wait() end
    assert.equal(500 * from, back:sum():item())
    all_is_well()
  end)

  it("a rank that does not come is named where the device is waited for", function()
    local err, failed = section(function()
      if rank == 1 then -- computes, and hears of the others' failure when it looks
        for _ = 1, 100 do
          os.execute "sleep 0.05"
          core.comm_poll()
        end
      end
      return comm.all_reduce(gm.full({ 10 }, 1), "data"):sum():item()
    end)
    assert.is_true(failed >= 1)
    if rank ~= 1 then
      assert.matches("all_reduce f32 %(10%) sum %(call %d+ of data%)", tostring(err))
      assert.matches("rank 1", tostring(err))
    end
    all_is_well()
  end)

  it("links stop together, where work of one waits on the device for that of another", function()
    local other = comm.group_of("the same again", { 0, 1, 2 }) -- its link is made last, and stopped first
    for _, group in ipairs { "data", other } do comm.all_reduce(gm.full({ 10 }, 1), group) end
    local err, failed = section(function()
      while rank == 1 do -- until it hears of the others' failure
        os.execute "sleep 0.05"
        core.comm_poll()
      end
      local sum = comm.all_reduce(gm.full({ 10 }, 1), "data")
      return comm.all_reduce(sum, other):sum():item()
    end)
    assert.is_true(failed >= 1)
    if rank ~= 1 then assert.matches("rank 1", tostring(err)) end
    all_is_well()
  end)

  it("what finds its link stopped says why it was", function()
    core.graph_renew_links()
    assert.equal(30, comm.all_reduce(gm.full({ 10 }, 1), "data"):sum():item())
    local fails = rank == 1 and ffi.C.setenv("GANYMEDE_NCCL_FAIL", "1 3", 1)
    local err = section(function()
      while rank ~= 1 do
        os.execute "sleep 0.05"
        core.comm_poll()
      end
      comm.all_reduce(gm.full({ 10 }, 1), "data", "sum", { async = true }) -- begins, and asks NCCL in between
      for _ = 1, 4 do core.comm_poll() end
      comm.all_reduce(gm.full({ 10 }, 1), "data", "sum", { async = true }):wait()
    end)
    if fails then
      ffi.C.unsetenv "GANYMEDE_NCCL_FAIL"
      assert.matches("NCCL failed: remote process exited", tostring(err))
    end
    all_is_well()
  end)

  it("different calls are found where the device is waited for", function()
    local err, failed = section(function()
      return comm.all_reduce(gm.full({ rank == 2 and 70 or 90 }, 1), "data"):sum():item()
    end)
    assert.is_true(failed >= 1)
    assert.matches("ranks differ: rank %d calls all_reduce f32 %(%d0%) sum", tostring(err))
    all_is_well()
  end)

  it("a rank's own mistake reaches those that wait for the device", function()
    local err, failed, first = section(function()
      if rank == 0 then error("a mistake of rank 0", 0) end
      return comm.all_reduce(gm.full({ 10 }, 1), "data"):sum():item()
    end)
    assert.equal(1, failed)
    assert.equal(0, first)
    assert.matches("a mistake of rank 0", tostring(err))
    all_is_well()
  end)
end)
