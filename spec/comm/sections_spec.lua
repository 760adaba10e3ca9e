--- What a failed section leaves behind on real ranks: nothing. Mistakes are made on one rank, in the middle of large
-- and small messages; after each, sums are right on all ranks.
--
-- ranks: 3
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"
local section = require "spec.support.section"

local rank, world = core.rank(), core.world()

local function all_is_well()
  local t = comm.all_reduce(gm.full({ 100000 }, rank + 1), "data")
  assert.equal(100000 * world * (world + 1) / 2, t:sum():item())
  assert.equal(0, (core.comm_section_end(true)))
end

setup(function() core.set_mesh { { "data", world } } end)

describe("a failed section", function()
  for _, n in ipairs { 10, 1000000 } do
    it("that one rank leaves while others reduce " .. n .. " elements", function()
      for bad = 0, world - 1 do
        local err, failed, first = section(function()
          local pending = comm.all_reduce(gm.zeros { n }, "data", "sum", { async = true })
          if rank == bad then error("a mistake of rank " .. bad, 0) end
          pending:wait()
          comm.all_reduce(gm.zeros { n }, "data")
          comm.barrier()
        end)
        assert.equal(1, failed)
        assert.equal(bad, first)
        if rank ~= bad then
          assert.is_true(err.peer)
          assert.equal("a mistake of rank " .. bad, err.message)
        end
        all_is_well()
      end
    end)
  end

  it("in which ranks call different things", function()
    local mistakes = {
      function() return comm.all_reduce(gm.zeros { rank == 1 and 70000 or 70001 }) end,
      function() return comm.all_reduce(gm.zeros({ 9 }, { dtype = rank == 2 and "f64" or "i64" })) end,
      function() return comm.broadcast(gm.zeros { 9 }, nil, rank == 1 and 1 or 0) end,
      function() return rank == 0 and comm.barrier() or comm.all_gather(gm.zeros { 300000 }) end,
    }
    for _, mistake in ipairs(mistakes) do
      local err, failed = section(function()
        mistake()
        comm.barrier() -- who noticed nothing does so at the next call
      end)
      assert.is_true(failed >= 1)
      assert.truthy(tostring(err):find "ranks differ: rank %d calls [%w_ %(%),]+ %(call %d+ of data%)")
      all_is_well()
    end
  end)

  it("that leaves messages which nobody received", function()
    local _, failed = section(function()
      for k = 1, 5 do
        if rank == 0 then comm.send(gm.zeros { 10 ^ k }, nil, 1, { async = true }) end
      end
      if rank == 2 then error("no", 0) end
    end)
    assert.equal(1, failed)
    all_is_well()
  end)

  it("abandons nothing that was begun before it and settled", function()
    local t = gm.full({ 1000000 }, rank + 1)
    local pending = comm.all_reduce(t, "data", "sum", { async = true })
    core.comm_settle()
    assert.equal(0, (core.comm_section_end(true)))
    local _, failed = section(function()
      if rank == 1 then error("no", 0) end
    end)
    assert.equal(1, failed)
    pending:wait()
    assert.equal(1000000 * world * (world + 1) / 2, t:sum():item())
    all_is_well()
  end)

  it("refuses calls that one rank makes alone", function()
    core.comm_alone(true)
    assert.error_matches(function() comm.barrier() end, "only this rank runs this")
    comm.all_reduce(gm.zeros { 1 }, "")
    core.comm_alone(false)
    all_is_well()
  end)

  it("stops calls that differ before anything moves, in checked mode", function()
    core.comm_checked(true)
    local t = gm.full({ 5 }, rank)
    local err, failed = section(function() comm.all_reduce(t, nil, rank == 0 and "max" or "sum") end)
    core.comm_checked(false)
    assert.is_true(failed >= 1)
    assert.truthy(tostring(err):find "ranks differ")
    assert.equal(5 * rank, t:sum():item())
    all_is_well()
  end)
end)

-- A batch system suspends jobs for as long as it likes.
describe("ranks that are all stopped for longer than the time limit", function()
  -- Rank 0 sleeps for some seconds; the others wait for it when all are stopped, and when all go on.
  local function stopped(seconds)
    local pids = table.concat(core.comm_exchange(nil, tostring(core.process().pid)), " ")
    local limit = core.comm_timeout()
    finally(function() core.comm_set_timeout(limit) end)
    all_is_well()
    core.comm_set_timeout(2)
    if rank > 0 then return end
    os.execute(("(sleep 0.3; kill -STOP %s; sleep 4; kill -CONT %s) &"):format(pids, pids))
    core.sleep(seconds)
  end

  it("end their section", function()
    stopped(1)
    assert.equal(0, (core.comm_section_end(true)))
    all_is_well()
  end)

  it("do their sums, even if one that computes cannot answer at once", function()
    stopped(5.6)
    all_is_well()
  end)
end)
