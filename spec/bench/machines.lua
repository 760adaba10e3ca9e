--- Collectives of ranks on several machines: hosts that are network namespaces of this machine, each with a link of
-- limited speed (a token bucket), and several ranks on each.
--
--     build/ganymede run spec/bench/machines.lua
--     RATE=10gbit HOSTS=2 RANKS=4 OTHER/build/ganymede run spec/bench/machines.lua      another build
--
-- f32, 16 MiB (the whole tensor; all_gather: the result). Printed: milliseconds of a call, the least of 6, and the
-- bytes that the link of host 0 has received meanwhile, in whole tensors. Needs the right to make network namespaces
-- (root), ip and tc (Debian package iproute2).
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local hosts = require "spec.faults.hosts"
local plain_ranks = require "spec.support.plain_ranks"
local shell = require "spec.support.shell"

local rate = os.getenv "RATE" or "1gbit"
local n, each = tonumber(os.getenv "HOSTS" or 2), tonumber(os.getenv "RANKS" or 2)

local RECIPE = hosts.received .. [[
local comm, core, gm = require "ganymede.job.comm", require "ganymede.core", require "ganymede"
gm.launch { parallel = {} }
local whole = gm.full({ 2 ^ 22 }, 1)
local block = gm.full({ 2 ^ 22 / core.world() }, 1)
local calls = {
  { "all_reduce", function() comm.all_reduce(whole) end },
  { "all_gather", function() comm.all_gather(block) end },
  { "reduce_scatter", function() comm.reduce_scatter(whole) end },
  { "broadcast", function() comm.broadcast(whole) end },
}
for _, entry in ipairs(calls) do
  local least, moved = math.huge, math.huge
  for _ = 1, 6 do
    comm.barrier()
    local before, began = received(), core.now()
    gm.scope(entry[2])
    comm.barrier()
    least, moved = math.min(least, core.now() - began), math.min(moved, received() - before)
  end
  if core.rank() == 0 then print(("%-15s %8.1f ms %8.2f"):format(entry[1], 1e3 * least, moved / 2 ^ 24)) end
end
]]

local missing = hosts.missing()
if missing then error("machines.lua: " .. missing, 0) end
local net, home = hosts.new(n), shell.temporary_folder()

local function measure()
  shell.write(home .. "/recipe.lua", RECIPE)
  local results = plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", "--interface", "eth0" }, {
    ranks = n * each, address = hosts.addresses[0],
    prefix = function(rank) return net:inside(math.floor(rank / each)) end,
    env = function(rank) return { LOCAL_RANK = rank % each, LOCAL_WORLD_SIZE = each } end }):finish()
  for rank = 0, n * each - 1 do
    if results[rank].code ~= 0 then error(results[rank].err, 0) end
  end
  return results[0].out
end

local ok, why = pcall(function()
  for host = 0, n - 1 do
    local limit = ("tc qdisc add dev eth0 root tbf rate %s burst 256kb latency 100ms"):format(rate)
    local result = shell.run(net:inside(host) .. " " .. limit)
    if result.code ~= 0 then error(result.err, 0) end
  end
  print(("%d hosts of %d ranks, %s; milliseconds, tensors received by host 0"):format(n, each, rate))
  io.write(measure())
end)
net:remove()
shell.remove(home)
if not ok then error(why, 0) end
