-- collectives.lua - our collectives against the best of Open MPI's algorithms, alternating in one run.
--
--     OMPI_MCA_coll_tuned_use_dynamic_rules=1 ganymede run spec/bench/collectives.lua -n 2 --threads 1
--     GANYMEDE_SHARED_MEMORY=none OMPI_MCA_coll_tuned_use_dynamic_rules=1 ganymede run ...     ours over MPI's messages
--
-- f32, 8 bytes to 64 MiB (the whole tensor; all_gather: the result) over all ranks. Open MPI's algorithms (its own
-- choice and up to seven others) are tried once for each size, and the fastest is measured. Printed: microseconds of a
-- call of ours and of MPI's, the number of its algorithm, and the median of the paired ratios: above 1 ours is faster.
-- MPI's ranks spin while they wait: on a machine that does other work, or with more ranks than cores, this says little.
local ffi = require "ffi"
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

gm.launch { parallel = {} }
ffi.cdef "double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times);"

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
  { "all_reduce", 7, function(whole) comm.all_reduce(whole) end },
  { "all_gather", 6, function(_, block) comm.all_gather(block) end },
  { "reduce_scatter", 4, function(whole) comm.reduce_scatter(whole) end },
  { "all_to_all", 5, function(whole) comm.all_to_all(whole, nil, 1, 1) end },
  { "broadcast", 7, function(whole) comm.broadcast(whole) end },
}
local sizes = { 8, 2 ^ 10, 2 ^ 14, 2 ^ 18, 2 ^ 20, 2 ^ 22, 2 ^ 24, 2 ^ 26 }

if rank == 0 then
  print(("%d ranks through %s; microseconds a call"):format(world, core.comm_transport()))
  print(("%-15s %10s %10s %10s %4s %8s"):format("", "bytes", "ours", "MPI", "alg", "ratio"))
end

-- The same on all ranks: rank 0's.
local function agreed(number) return tonumber(comm.exchange(tostring(number))[1]) end

local function best(what, most, input, out, n)
  local least, chosen = math.huge, 0
  for algorithm = 0, most do
    peer.gm_bench_mpi(what - 1, algorithm, input:data(), out:data(), n, 1)
    local seconds = agreed(peer.gm_bench_mpi(what - 1, algorithm, input:data(), out:data(), n, n < 2 ^ 16 and 20 or 2))
    if seconds > 0 and seconds < least then least, chosen = seconds, algorithm end
  end
  return chosen
end

for what, call in ipairs(calls) do
  local name, most, ours = call[1], call[2], call[3]
  for _, bytes in ipairs(sizes) do
    local n = math.ceil(bytes / 4 / world) * world
    local whole, out, block = gm.zeros { n }, gm.zeros { n }, gm.zeros { n / world }
    local times = math.max(2, math.min(300, 2 ^ 22 / bytes))
    local input = name == "all_gather" and block or whole
    local algorithm = best(what, most, input, out, n)
    local mine, theirs, ratios = {}, {}, {}
    for round = 0, rounds do -- the first warms up
      comm.barrier()
      local began = core.now()
      for _ = 1, times do gm.scope(function() ours(whole, block) end) end
      local seconds = (core.now() - began) / times
      local other = peer.gm_bench_mpi(what - 1, algorithm, input:data(), out:data(), n, times)
      if round > 0 then mine[round], theirs[round], ratios[round] = seconds, other, other / seconds end
    end
    if rank == 0 then
      print(("%-15s %10d %10.1f %10.1f %4d %8.2f"):format(name, bytes, 1e6 * median(mine), 1e6 * median(theirs),
        algorithm, median(ratios)))
    end
  end
end
