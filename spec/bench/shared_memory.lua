-- shared_memory.lua - collectives through shared memory against the same over messages of MPI, in turns in one run.
--
--     ganymede run spec/bench/shared_memory.lua -n 8 --threads 1
--
-- f32, 8 bytes to 16 MiB (the whole tensor; all_gather: the result) over all ranks. Printed: the medians of 7 rounds,
-- of the microseconds of a call and of the microseconds that the cores worked for it, all ranks together, by both ways;
-- and the medians of the ratios of each round, above 1 where shared memory is better. The second ratio depends less on
-- what else the machine does.
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

gm.launch { parallel = {} }

local rank, world, rounds = core.rank(), core.world(), 7
if world == 1 then error("shared_memory.lua: start it on several ranks, -n 2", 0) end

local calls = {
  { "all_reduce", function(whole) comm.all_reduce(whole) end },
  { "all_gather", function(_, block) comm.all_gather(block) end },
  { "reduce_scatter", function(whole) comm.reduce_scatter(whole) end },
  { "all_to_all", function(whole) comm.all_to_all(whole, nil, 1, 1) end },
  { "broadcast", function(whole) comm.broadcast(whole) end },
}

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Of all ranks together.
local function total(seconds)
  local sum = 0
  for _, text in ipairs(comm.exchange(tostring(seconds))) do sum = sum + tonumber(text) end
  return sum
end

-- Seconds of a call by the clock, and of all cores.
local function measure(call, whole, block, times)
  comm.barrier()
  local began, worked = core.now(), os.clock()
  for _ = 1, times do gm.scope(function() call(whole, block) end) end
  local seconds, work = core.now() - began, os.clock() - worked
  return seconds / times, total(work) / times
end

if rank == 0 then
  print(("%d ranks; microseconds: shared memory, messages, ratio"):format(world))
  print(("%-15s %10s %28s %28s"):format("", "bytes", "by the clock", "of the cores"))
end

for _, call in ipairs(calls) do
  for _, bytes in ipairs { 8, 2 ^ 14, 2 ^ 18, 2 ^ 20, 2 ^ 22, 2 ^ 24 } do
    local n = math.ceil(bytes / 4 / world) * world
    local whole, block = gm.zeros { n }, gm.zeros { n / world }
    local times = math.max(2, math.min(200, 2 ^ 22 / bytes))
    local all = { {}, {}, {}, {}, {}, {} }
    for round = 0, rounds do -- the first warms up
      core.comm_share_memory(true)
      measure(call[2], whole, block, times) -- the first use of a ring takes its memory
      local clock, work = measure(call[2], whole, block, times)
      core.comm_share_memory(false)
      local clock2, work2 = measure(call[2], whole, block, times)
      local found = { clock, clock2, clock2 / clock, work, work2, work2 / work }
      for i, value in ipairs(found) do all[i][round] = value end
    end
    for i = 1, 6 do all[i] = median(all[i]) end
    if rank == 0 then
      print(("%-15s %10d %10.1f %10.1f %6.2f %10.1f %10.1f %6.2f"):format(call[1], bytes, 1e6 * all[1], 1e6 * all[2],
        all[3], 1e6 * all[4], 1e6 * all[5], all[6]))
    end
  end
end
