--- comm.traffic() against a count of every MPI_Isend by MPI's own profiling interface (pmpi_counter.c): equal bytes.
--
-- On one rank this file compiles the counter and runs itself on four with the counter preloaded.
local ffi = require "ffi"
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

ffi.cdef "unsigned long long gm_pmpi_bytes(void); unsigned long long gm_pmpi_messages(void);"

if core.world() == 1 then
  describe("bytes that MPI sends", function()
    it("are those that comm.traffic counts", function()
      local folder = shell.temporary_folder()
      finally(function() shell.remove(folder) end)
      local counter = folder .. "/counter.so"
      local command = "cc -shared -fPIC -O1 -o %s spec/comm/pmpi_counter.c $(pkg-config --cflags --libs ompi-c)"
      local built = shell.run(command:format(shell.quote(counter)))
      assert.equal("", built.err)
      -- The second: a sanitizer that is linked in must not mind that the counter is loaded before it.
      local sanitizer = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0"
      local env = { LD_PRELOAD = counter, ASAN_OPTIONS = sanitizer }
      local run = run_host({ "spec", "-n", "4", "spec/comm/counter_spec.lua" }, { env = env })
      assert.equal(0, run.code, run.out .. run.err)
      assert.truthy(run.out:find("4 passed, 0 failed", 1, true), run.out)
    end)
  end)
  return
end

local function counted()
  local bytes = 0
  for _, e in ipairs(comm.traffic()) do bytes = bytes + e.bytes end
  return bytes
end

-- The bytes of body() by both counts, after everybody's messages are out.
local function compare(body)
  comm.barrier()
  comm.reset_traffic()
  local before = ffi.C.gm_pmpi_bytes()
  body()
  local sent = tonumber(ffi.C.gm_pmpi_bytes() - before)
  assert.equal(sent, counted())
  return sent
end

describe("counted", function()
  setup(function()
    core.comm_share_memory(false) -- all goes through MPI
    core.set_mesh { { "data", 2 }, { "row", 2 } }
  end)

  it("all_reduce", function()
    for _, n in ipairs { 4000, 300000 } do
      assert.equal(2 * 3 / 4 * n * 4, compare(function() comm.all_reduce(gm.zeros { n }) end))
      assert.equal(2 * 1 / 2 * n * 2, compare(function()
        comm.all_reduce(gm.zeros({ n }, { dtype = "bf16" }), "row")
      end))
    end
    compare(function() comm.all_reduce(gm.zeros { 1031 }, "data.row") end)
  end)

  it("blocks", function()
    assert.equal(3 * 700 * 8, compare(function() comm.all_gather(gm.zeros({ 7, 100 }, { dtype = "f64" }), nil, 2) end))
    assert.equal(3 * 700 * 8, compare(function()
      comm.reduce_scatter(gm.zeros({ 7, 400 }, { dtype = "f64" }), nil, 2)
    end))
    assert.equal(3 * 1200, compare(function() comm.all_to_all(gm.zeros { 12, 100 }, nil, 1, 2) end))
  end)

  it("trees and roots", function()
    local n = 50000
    local sent = compare(function() comm.broadcast(gm.zeros { n }, nil, 2) end)
    local all = gm.tensor { sent }
    assert.equal(3 * n * 4, comm.all_reduce(all):item())
    sent = compare(function() comm.reduce(gm.zeros { n }, nil, 1) end)
    assert.equal(3 * n + (core.rank() == 1 and 0 or n), sent)
  end)

  it("messages and strings", function()
    compare(function() comm.ring_forward(gm.zeros { 10000 }) end)
    local messages = ffi.C.gm_pmpi_messages()
    compare(function() comm.exchange(("x"):rep(core.rank() * 100)) end)
    assert.is_true(ffi.C.gm_pmpi_messages() > messages)
  end)
end)
