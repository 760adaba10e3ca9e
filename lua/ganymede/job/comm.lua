--- Communication between ranks, for code of your own: collectives, messages, groups.
--
--     local comm = require "ganymede.job.comm"
--     comm.all_reduce(counts, "data")                    -- in place: the sum over the ranks of axis data
--     local pending, whole = comm.all_gather(x, "data", 1, { async = true })
--     ...                                                -- compute; leave x and whole alone
--     pending:wait()
--
-- These work on the block that this rank holds (t:local_tensor()), whatever its layout says; gm.redistribute follows
-- layouts, and the engine reduces gradients. Nothing here is recorded for gradients.
--
-- A group is what comm.group makes, or what it would take: axes of the mesh ("data", "data.row", a list), the name of a
-- parallel mode ("DATA", "PIPELINE", ...), nil for all ranks. Axes of size 1 that the mesh lacks stand for this rank
-- alone. Dimensions count from 1 (-1: the last); roots, destinations and sources are places in the group, from 0.
--
-- The trap: every member must make the same calls on a group in the same order. Calls that differ end the run with
-- both named; one that never comes does after --comm-timeout: so does a call made on one rank only (if rank == 0).
--
-- With { async = true } as last argument a pending object comes first among the results: p:test() tells whether it is
-- done, p:wait() waits. Sums are the same bits on every rank; 16-bit types are summed in f32 and rounded once.
local core = require "ganymede.core"
local signature = require "ganymede.base.signature"

local comm = {}

--- The group along axes, of a parallel mode, or of all ranks (nil). Made on first use, without communication.
function comm.group(which)
  if type(which) == "userdata" then return which end
  if type(which) == "string" and which:find "^[A-Z][A-Z0-9_]*$" then
    return require("ganymede.job.context").get_group(which)
  end
  return core.comm_group(which)
end

--- A group of these ranks, in this order; every one of them must make it alike. The name is for reports.
function comm.group_of(name, ranks) return core.comm_group_of(name, ranks) end

--- { name, size, rank = place of this rank, ranks } of a group.
function comm.info(group) return core.comm_group_info(comm.group(group)) end

local asynchronous = {
  async = { type = "boolean", default = false, doc = "give a pending object first, and do not wait?" },
}

-- A function of a tensor and a group: what core makes of them and of the other arguments, by the options.
local function define(name, text, fn)
  comm[name] = signature.declare("comm." .. name, text .. ", options options?", asynchronous, fn)
end

-- t becomes the "sum" (default), "mean", "max" or "min" over the members -> t
define("all_reduce", "t tensor, group any?, op string?", function(t, group, op, opt)
  return core.comm_all_reduce(t, comm.group(group), op, opt.async)
end)

-- The same on the root alone; other members keep what they have -> t
define("reduce", "t tensor, group any?, root integer?, op string?", function(t, group, root, op, opt)
  return core.comm_reduce(t, comm.group(group), root, op, opt.async)
end)

-- t becomes what it is on the root -> t
define("broadcast", "t tensor, group any?, root integer?", function(t, group, root, opt)
  return core.comm_broadcast(t, comm.group(group), root, opt.async)
end)

-- The blocks of all members, of one shape, joined along dim (default 1) -> a new tensor
define("all_gather", "t tensor, group any?, dim integer?", function(t, group, dim, opt)
  return core.comm_all_gather(t, comm.group(group), dim, opt.async)
end)

-- This member's block along dim (default 1) of the sum, mean, max or min -> a new tensor
define("reduce_scatter", "t tensor, group any?, dim integer?, op string?", function(t, group, dim, op, opt)
  return core.comm_reduce_scatter(t, comm.group(group), dim, op, opt.async)
end)

-- The blocks of all members joined along dim (default 1), on the root -> a new tensor, nil elsewhere
define("gather", "t tensor, group any?, root integer?, dim integer?", function(t, group, root, dim, opt)
  return core.comm_gather(t, comm.group(group), root, dim, opt.async)
end)

-- `to` becomes this member's block along dim (default 1) of the root's tensor `whole` (nil elsewhere) -> to
local scattered = "to tensor, group any?, root integer?, dim integer?, whole tensor?"
define("scatter", scattered, function(to, group, root, dim, whole, opt)
  return core.comm_scatter(to, comm.group(group), root, dim, whole, opt.async)
end)

-- Member i's block j along split becomes member j's block i along join -> a new tensor
define("all_to_all", "t tensor, group any?, split integer, join integer", function(t, group, split, join, opt)
  return core.comm_all_to_all(t, comm.group(group), split, join, opt.async)
end)

-- Rows of dimension 1, uneven: send[j + 1] of t's go to place j, receive[i + 1] come from place i -> a new tensor
define("all_to_all_rows", "t tensor, group any?, send table, receive table", function(t, group, send, receive, opt)
  return core.comm_all_to_all_rows(t, comm.group(group), send, receive, opt.async)
end)

-- A message to one member, matched in order by its comm.receive -> t
define("send", "t tensor, group any?, to integer", function(t, group, to, opt)
  return core.comm_send(t, comm.group(group), to, opt.async)
end)

-- t becomes the message of one member, which must be of its shape and dtype -> t
define("receive", "t tensor, group any?, from integer", function(t, group, from, opt)
  return core.comm_receive(t, comm.group(group), from, opt.async)
end)

--- To the next member of the ring, from the one before -> what came; t in a group of one
function comm.ring_forward(t, group)
  group = comm.group(group)
  local info = core.comm_group_info(group)
  if info.size == 1 then return t end
  local came = core.empty(t:local_tensor():shape(), t:dtype())
  local sent = core.comm_send(t, group, (info.rank + 1) % info.size, true)
  core.comm_receive(came, group, (info.rank - 1) % info.size)
  sent:wait()
  return came
end

--- Returns when every member has come.
function comm.barrier(group) core.comm_barrier(comm.group(group)) end

--- The texts (any strings) of all members, by place. Not for the data path.
function comm.exchange(text, group) return core.comm_exchange(comm.group(group), text) end

--- What this rank has sent: list of { group, op, phase, calls, bytes, copied, seconds, exposed }. bytes: as the
-- algorithms demand; copied: moved inside this rank besides; exposed: seconds in which nothing was computed.
function comm.traffic() return core.comm_traffic() end
function comm.reset_traffic() core.comm_reset_traffic() end

--- The last calls on groups, one a line, the newest last.
function comm.flight(lines) return core.comm_flight(lines) end

return signature.export("comm", comm)
