-- collectives.lua - our collectives against the best of Open MPI's algorithms, alternating in one run.
--
--     OMPI_MCA_coll_tuned_use_dynamic_rules=1 ganymede run spec/bench/collectives.lua -n 2 --threads 1
--     GANYMEDE_SHARED_MEMORY=none OMPI_MCA_coll_tuned_use_dynamic_rules=1 ganymede run ...     ours over MPI's messages
--
-- f32, 8 bytes to 64 MiB (the whole tensor; all_gather: the result) over all ranks. Open MPI's algorithms (its own
-- choice and up to seven others) are tried once for each size, and the fastest of those that give the right result is
-- measured (some make nothing but with two ranks). Printed: microseconds of a
-- call of ours on tensors that lie as all do, of ours on tensors in memory that the ranks share (shared = true), and of
-- MPI's, the number of its algorithm, and for both of ours the median of the paired ratios by the clock, and by the
-- time that the cores worked, all ranks together: above 1 ours is better.
-- COLLECTIVES="all_reduce,all_gather" SIZES="262144,16777216" ROUNDS=15 choose what is measured. With WRITES=1 what a
-- rank sends is written anew before each call, as the op before a collective does; this is part of the time of both.
-- MPI's ranks spin while they wait: on a machine that does other work this says little. With more ranks than cores, set
-- OMPI_MCA_mpi_yield_when_idle=1, so that they give up their core while they spin.
local ffi = require "ffi"
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

gm.launch { parallel = {} }
ffi.cdef [[
  double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times);
  void gm_bench_mpi_write(int on);
]]

local rank, world, rounds = core.rank(), core.world(), tonumber(os.getenv "ROUNDS" or 7)
local writes = os.getenv "WRITES" == "1"
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
peer.gm_bench_mpi_write(writes and 1 or 0)

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

-- Is x in the list of the environment's variable? It names all where it is not set.
local function is_asked(variable, x)
  local list = os.getenv(variable)
  return not list or ("," .. list .. ","):find((",%s,"):format(x), 1, true) ~= nil
end

if rank == 0 then
  print(("%d ranks through %s; microseconds a call, ratios by the clock and of the cores"):format(world,
    core.comm_transport()))
  print(("%-15s %10s %10s %10s %10s %4s %8s %8s %8s %8s"):format("", "bytes", "ours", "shared", "MPI", "alg", "ratio",
    "cores", "shared", "cores"))
end

-- The largest of all ranks' numbers.
local function largest(number)
  local most = -math.huge
  for _, text in ipairs(comm.exchange(tostring(number))) do most = math.max(most, tonumber(text)) end
  return most
end

local function best(what, most, input, out, n)
  local least, chosen = math.huge, 0
  for algorithm = 0, most do
    local function seconds_of(times)
      return largest(peer.gm_bench_mpi(what - 1, algorithm, input:data(), out:data(), n, times))
    end
    if seconds_of(0) > 0 then -- it makes the collective on so many ranks; this also warms up
      local seconds = seconds_of(n < 2 ^ 16 and 20 or 2)
      if seconds < least then least, chosen = seconds, algorithm end
    end
  end
  return chosen
end

-- Seconds of a call by the clock, until the last rank has done it (the root of a broadcast may be done long before),
-- and of all cores together. call(): makes it `times` times. The clock is that of the machine, so ranks can compare it.
local function measure(call, times)
  comm.barrier()
  local began, worked = core.now(), os.clock()
  call()
  local last, work = 0, 0
  for _, text in ipairs(comm.exchange(("%.17g %.17g"):format(core.now(), os.clock() - worked))) do
    local now, seconds = text:match "(%S+) (%S+)"
    last, work = math.max(last, tonumber(now)), work + tonumber(seconds)
  end
  return (last - began) / times, work / times
end

local function tensors(n, shared)
  local opt = { shared = shared }
  return { whole = gm.zeros({ n }, opt), out = gm.zeros({ n }, opt), block = gm.zeros({ n / world }, opt) }
end

-- A line of the table.
local function compare(what, call, bytes)
  local n = math.ceil(bytes / 4 / world) * world
  local apart, shared = tensors(n, false), tensors(n, true)
  local times = math.max(2, math.min(300, 2 ^ 22 / bytes))
  local input = call[1] == "all_gather" and apart.block or apart.whole
  local algorithm = best(what, call[2], input, apart.out, n)
  local all = { {}, {}, {}, {}, {}, {}, {} }
  local function ours(on)
    local sent = call[1] == "all_gather" and on.block or on.whole
    return measure(function()
      for _ = 1, times do
        if writes then ffi.fill(sent:data(), sent:numel() * 4) end
        gm.scope(function() call[3](on.whole, on.block) end)
      end
    end, times)
  end
  for round = 0, rounds do -- the first warms up
    local clock, work = ours(apart)
    local clock2, work2 = ours(shared)
    local theirs, work3 = measure(function()
      peer.gm_bench_mpi(what - 1, algorithm, input:data(), apart.out:data(), n, times)
    end, times)
    local found = { clock, clock2, theirs, theirs / clock, work3 / work, theirs / clock2, work3 / work2 }
    for i, x in ipairs(found) do all[i][#all[i] + 1] = round > 0 and x or nil end
  end
  for i, list in ipairs(all) do all[i] = median(list) end
  if rank > 0 then return end
  print(("%-15s %10d %10.1f %10.1f %10.1f %4d %8.2f %8.2f %8.2f %8.2f"):format(call[1], bytes, 1e6 * all[1],
    1e6 * all[2], 1e6 * all[3], algorithm, all[4], all[5], all[6], all[7]))
end

for what, call in ipairs(calls) do
  for _, bytes in ipairs(sizes) do
    if is_asked("COLLECTIVES", call[1]) and is_asked("SIZES", bytes) then compare(what, call, bytes) end
  end
end
