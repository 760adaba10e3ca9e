-- collectives.lua - our collectives against those of the MPI below, alternating in one run.
--
--     ganymede run spec/bench/collectives.lua -n 2 --threads 1
--     ganymede run spec/bench/collectives.lua -n 4 --threads 1
--
-- f32 sums and gathers of 4 KiB to 16 MiB (the whole tensor; all_gather: the result) over all ranks. Printed: the
-- microseconds of a call of ours and of MPI's, and the median of the paired ratios of time: above 1 ours is faster.
-- The MPI functions are compiled by this file (cc, pkg-config ompi-c) and called from the same ranks.
local ffi = require "ffi"
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

gm.launch { parallel = {} }
ffi.cdef "double gm_bench_mpi(int what, float *in, float *out, int n, int times);"

local rank, world, rounds = core.rank(), core.world(), 7
if world == 1 then error("collectives.lua: start it on several ranks, -n 2", 0) end

local function load_peer()
  local path = comm.exchange(rank == 0 and os.tmpname() or "")[1]
  if rank == 0 then
    local source = GANYMEDE_ROOT .. "/spec/bench/collectives_mpi.c"
    local command = "cc -shared -fPIC -O2 -o '%s' '%s' $(pkg-config --cflags --libs ompi-c)"
    if os.execute(command:format(path, source)) ~= 0 then error("cannot compile " .. source, 0) end
  end
  comm.barrier()
  local library = ffi.load(path)
  comm.barrier()
  if rank == 0 then os.remove(path) end
  return library
end

local peer = load_peer()

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local calls = {
  { "all_reduce", function(whole) comm.all_reduce(whole) end },
  { "all_gather", function(_, block) comm.all_gather(block) end },
  { "reduce_scatter", function(whole) comm.reduce_scatter(whole) end },
}

if rank == 0 then
  print(("%d ranks; microseconds a call"):format(world))
  print(("%-15s %10s %10s %10s %8s"):format("", "bytes", "ours", "MPI", "ratio"))
end
for what, call in ipairs(calls) do
  local name, ours = call[1], call[2]
  for power = 12, 24, 2 do
    local n = 2 ^ power / 4
    local whole, out, block = gm.zeros { n }, gm.zeros { n }, gm.zeros { n / world }
    local times = math.max(3, math.min(300, 2 ^ 23 / 2 ^ power))
    local mine, theirs, ratios = {}, {}, {}
    for round = 0, rounds do -- the first warms up
      comm.barrier()
      local began = core.now()
      for _ = 1, times do gm.scope(function() ours(whole, block) end) end
      local seconds = (core.now() - began) / times
      local input = what == 2 and block or whole
      local other = peer.gm_bench_mpi(what - 1, input:data(), out:data(), n, times)
      if round > 0 then mine[round], theirs[round], ratios[round] = seconds, other, other / seconds end
    end
    if rank == 0 then
      print(("%-15s %10d %10.1f %10.1f %8.2f"):format(name, 2 ^ power, 1e6 * median(mine), 1e6 * median(theirs),
        median(ratios)))
    end
  end
end
