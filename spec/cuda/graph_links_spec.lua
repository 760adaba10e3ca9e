--- Operations between devices in graphs (host/comm/recorded.h), on 3 ranks that have one each: it runs itself there,
-- under the emulation. What is recorded does not run and each replay does all of it; what goes wrong in a replay is
-- named and ends the graph, and the ranks go on.
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local graphs = require "spec.kernels.graphs"
local joined_devices = require "spec.cuda.joined_devices"
local run_host = require "spec.support.run_host"
local section = require "spec.support.section"

local rank, world = core.rank(), core.world()

if world < 3 then
  describe("graphs with operations between devices #ranks", function()
    if emulation.lacks(pending, "emulated") then return end
    it("on 3 ranks", function()
      local env = emulation.environment()
      env.GANYMEDE_CUDA_DEVICES = "3"
      local result = run_host({ "spec", "spec/cuda/graph_links_spec.lua", "--device", "cuda", "-n", "3" },
        { cwd = GANYMEDE_ROOT, env = env, timeout = 300 })
      assert.equal(0, result.code, result.out .. result.err)
      assert.is_truthy(result.out:find "\n[1-9]%d* passed, 0 failed", result.out)
    end)
  end)
  return
end

local sum, all_is_well = world * (world + 1) / 2, joined_devices.all_is_well

-- A graph that adds up x over the ranks into y.
local function summing(x, y)
  comm.all_reduce(gm.full({ 4 }, 1), "data")
  return graphs.record(function()
    y:copy_(x)
    comm.all_reduce(y, "data")
  end)
end

describe("a graph with operations between devices", function()
  setup(function()
    joined_devices.join()
    all_is_well()
  end)

  it("runs them when it is replayed, as often, with what tensors then hold", function()
    local x, y = gm.full({ 4 }, rank + 1), gm.zeros { 4 }
    local g = summing(x, y)
    assert.equal(0, y:sum():item())
    for k = 1, 3 do
      x:copy_(gm.full({ 4 }, k * (rank + 1)))
      g:replay()
      assert.equal(4 * k * sum, y:sum():item())
    end
    assert.matches("^%x+:%x+$", g:about().operations)
    g:close()
    all_is_well()
  end)

  it("keeps their order among each other, with work of the device before and after", function()
    local a, b = gm.full({ 6 }, rank + 1), gm.zeros { 2 * world }
    local y
    comm.reduce_scatter(gm.zeros { world * 2 }, "data", 1)
    comm.all_gather(gm.zeros { 2 }, "data", 1)
    local g = graphs.record(function()
      local t = a * 2
      local first = comm.all_reduce(t, "data", "sum", { async = true }) -- beside the work that follows
      local other = a + 1
      first:wait()
      local part = comm.reduce_scatter(t + 1, "data", 1)
      b:copy_(comm.all_gather(part + rank, "data", 1))
      y = (other * 3):keep()
    end)
    for _ = 1, 3 do
      g:replay()
      local each = world * (2 * sum + 1)
      assert.same({ each, each, each + 1, each + 1, each + 2, each + 2 }, b:totable())
      assert.equal(6 * 3 * (rank + 2), y:sum():item())
    end
    g:close()
    all_is_well()
  end)

  it("has the collectives of two communicators in one order, whoever waits for which first", function()
    local other = comm.group_of("the same again", { 0, 1, 2 })
    local x, y = gm.full({ 7 }, 1), gm.full({ 5 }, 2)
    comm.all_reduce(gm.full({ 7 }, 1), "data")
    comm.all_reduce(gm.full({ 5 }, 1), other)
    local g = graphs.record(function()
      local first = comm.all_reduce(x, "data", "sum", { async = true })
      local second = comm.all_reduce(y, other, "sum", { async = true })
      second:wait()
      first:wait()
    end)
    for k = 1, 2 do
      g:replay()
      assert.same({ 7 * world ^ k, 10 * world ^ k }, { x:sum():item(), y:sum():item() })
    end
    assert.matches("^%x+:%x+ %x+:%x+$", g:about().operations)
    g:close()
    all_is_well()
  end)

  it("has messages of two in both directions at once", function()
    local to, from = (rank + 1) % world, (rank + world - 1) % world
    local out, back = gm.full({ 5 }, rank + 1), gm.zeros { 5 }
    local function round()
      local sent = comm.send(out, "data", to, { async = true })
      local came = comm.receive(back, "data", from, { async = true })
      came:wait()
      sent:wait()
    end
    round()
    local g = graphs.record(round)
    back:copy_(gm.zeros { 5 })
    g:replay()
    assert.equal(5 * (from + 1), back:sum():item())
    g:close()
    all_is_well()
  end)

  it("keeps tensors that only they use, whoever else lets them go", function()
    local x = gm.full({ 64 }, rank + 1)
    comm.all_reduce(gm.full({ 64 }, 1), "data")
    local g = graphs.record(function() comm.all_reduce(x, "data") end)
    x:release()
    local others = {}
    for i = 1, 8 do others[i] = gm.full({ 64 }, i) end -- of its size
    g:replay()
    for i = 1, 8 do assert.equal(64 * i, others[i]:sum():item()) end
    g:close()
    all_is_well()
  end)

  it("counts nothing when it is recorded, and its operations at each replay", function()
    local x, y = gm.full({ 4 }, 1), gm.zeros { 4 }
    local function calls()
      local n = 0
      for _, e in ipairs(core.comm_traffic()) do
        if e.op == "all_reduce" then n = n + e.calls end
      end
      return n
    end
    comm.all_reduce(y, "data")
    local before = calls()
    local g = graphs.record(function() comm.all_reduce(y, "data") comm.all_reduce(x, "data") end)
    assert.equal(before, calls())
    g:replay()
    g:replay()
    assert.equal(before + 4, calls())
    g:close()
    all_is_well()
  end)

  it("refuses what cannot be recorded, and all goes on", function()
    local y = gm.full({ 4 }, 1)
    local function refused(fn, pattern)
      assert.error_matches(function() graphs.record(fn) end, pattern)
      core.graph_renew_links()
      assert.equal(world * 4, comm.all_reduce(gm.full({ 4 }, 1), "data"):sum():item())
    end
    refused(function() core.comm_barrier "data" end, "barrier of group data cannot be part of a graph: it goes through")
    refused(function() core.comm_exchange("data", "x") end, "exchange of group data cannot be part of a graph")
    refused(function() return comm.all_reduce(y, "data"):sum():item() end, "reading .* cannot be part of a graph")
    local pending
    refused(function() pending = comm.all_reduce(y, "data", "sum", { async = true }) end,
      "all_reduce f32 %(4%) sum %(call %d+ of data%) was begun in a graph, which must wait for it, too")
    assert.error_matches(function() pending:wait() end, "was abandoned")
    pending = comm.all_reduce(y, "data", "sum", { async = true })
    assert.error_matches(core.graph_begin, "is under way while a graph is to be recorded; wait for it before")
    pending:wait()
    all_is_well()
  end)

  it("needs links that are there", function()
    core.graph_renew_links()
    assert.error_matches(function()
      graphs.record(function() comm.all_reduce(gm.full({ 4 }, 1), "data") end)
    end, "all_reduce of group data cannot be part of a graph yet: the first operation .* run it once before")
    all_is_well()
  end)

  it("ends when its links are closed, and says so", function()
    local g = summing(gm.full({ 4 }, 1), gm.zeros { 4 })
    g:replay()
    assert.is_false(g:has_ended())
    core.comm_section_end(true)
    core.graph_renew_links()
    assert.is_true(g:has_ended())
    assert.error_matches(function() g:replay() end, "this graph has ended")
    g:close()
    all_is_well()
  end)

  it("names a rank that does not replay, where the device is waited for, and the ranks go on", function()
    local x, y = gm.full({ 4 }, rank + 1), gm.zeros { 4 }
    local g = summing(x, y)
    g:replay()
    assert.equal(0, (core.comm_section_end(true)))
    local err, failed = section(function()
      if rank == 1 then -- computes, and hears of the others' failure when it looks
        for _ = 1, 100 do
          os.execute "sleep 0.05"
          core.comm_poll()
        end
      end
      g:replay()
      return y:sum():item()
    end)
    assert.is_true(failed >= 1)
    if rank ~= 1 then
      assert.matches("replay %(call %d+ of world%)", tostring(err))
      assert.matches("rank 1", tostring(err))
    end
    assert.is_true(g:has_ended())
    g:close()
    all_is_well()
    local again = summing(x, y)
    again:replay()
    assert.equal(4 * sum, y:sum():item())
    again:close()
    all_is_well()
  end)

  it("finds another call in place of the replay", function()
    local y = gm.zeros { 4 }
    local g = summing(gm.full({ 4 }, 1), y)
    local err, failed = section(function()
      if rank == 2 then core.comm_exchange(core.comm_group_of("world", { 0, 1, 2 }), "x")
      else g:replay() end
      return y:sum():item()
    end)
    assert.is_true(failed >= 1)
    if rank ~= 2 then assert.matches("rank 2", tostring(err)) end
    g:close()
    all_is_well()
  end)
end)
