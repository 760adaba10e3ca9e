--- Communication between ranks, for code of your own: collectives, messages, groups.
--
--     local comm = require "ganymede.job.comm"
--     comm.all_reduce(counts, "data")                    -- in place: the sum over the ranks of axis data
--     local pending, whole = comm.all_gather(x, "data", 1, { async = true })
--     ...                                                -- compute; leave x and whole alone
--     pending:wait()
--
-- These functions work on the block that this rank holds (t:local_tensor()), whatever its layout says. gm.redistribute
-- follows layouts, and the engine reduces gradients. Nothing here is recorded for gradients.
--
-- A group is what comm.group returns, or what it takes: axes of the mesh ("data", "data.row", a list), the name of a
-- parallel mode ("DATA", "PIPELINE", ...), nil for all ranks. Axes that the mesh does not have, because their size is
-- 1, stand for this rank alone. Dimensions count from 1 (-1: the last); roots, destinations and sources are places in
-- the group, from 0.
--
-- The trap: every member must make the same calls on a group in the same order. If calls differ, the run ends, and the
-- message names both. If a call never comes, the run ends after --comm-timeout; this happens if only one rank makes a
-- call (if rank == 0).
--
-- With { async = true } as last argument, the first result is a pending object: p:test() says whether it is done, and
-- p:wait() waits. Sums have the same bits on every rank; 16-bit types are summed in f32 and rounded once.
local core = require "ganymede.core"
local missing = require "ganymede.base.missing"
local signature = require "ganymede.base.signature"

local comm = {}

-- What functions of C take: modes are names of axes.
local function axes_of(which)
  if type(which) == "string" and which:find "^[A-Z][A-Z0-9_]*$" then
    return require("ganymede.job.context").get_group(which)
  end
  return which
end

--- Returns the group along axes, of a parallel mode, or of all ranks (nil). It is made on first use, without
-- communication.
function comm.group(which)
  if type(which) == "userdata" then return which end
  return core.comm_group(axes_of(which))
end

--- Returns a group of these ranks, in this order. Each of them must call it with the same list. The name is for
-- reports.
function comm.group_of(name, ranks) return core.comm_group_of(name, ranks) end

--- Returns { name, size, rank = place of this rank, ranks } of a group.
function comm.info(group) return core.comm_group_info(comm.group(group)) end

local asynchronous = {
  async = { type = "boolean", default = false,
    doc = "whether the call returns at once, with a pending object as its first result" },
}

-- Defines a function of a tensor and a group; fn receives the other arguments and the options.
local function define(name, text, fn)
  comm[name] = signature.declare("comm." .. name, text .. ", options options?", asynchronous, fn)
end

-- t becomes the "sum" (default), "mean", "max" or "min" over the members. Returns t.
define("all_reduce", "t tensor, group any?, op string?", function(t, group, op, opt)
  return core.comm_all_reduce(t, axes_of(group), op, opt.async)
end)

-- Does the same on the root alone; other members keep what they have. Returns t.
define("reduce", "t tensor, group any?, root integer?, op string?", function(t, group, root, op, opt)
  return core.comm_reduce(t, axes_of(group), root, op, opt.async)
end)

-- t becomes what it is on the root. Returns t.
define("broadcast", "t tensor, group any?, root integer?", function(t, group, root, opt)
  return core.comm_broadcast(t, axes_of(group), root, opt.async)
end)

-- Returns a new tensor: the blocks of all members, of one shape, joined along dim (default 1).
define("all_gather", "t tensor, group any?, dim integer?", function(t, group, dim, opt)
  return core.comm_all_gather(t, axes_of(group), dim, opt.async)
end)

-- Returns a new tensor: this member's block along dim (default 1) of the sum, mean, max or min.
define("reduce_scatter", "t tensor, group any?, dim integer?, op string?", function(t, group, dim, op, opt)
  return core.comm_reduce_scatter(t, axes_of(group), dim, op, opt.async)
end)

-- Returns a new tensor on the root: the blocks of all members, joined along dim (default 1); nil elsewhere.
define("gather", "t tensor, group any?, root integer?, dim integer?", function(t, group, root, dim, opt)
  return core.comm_gather(t, axes_of(group), root, dim, opt.async)
end)

-- `to` becomes this member's block along dim (default 1) of the root's tensor `whole` (nil elsewhere). Returns to.
local scattered = "to tensor, group any?, root integer?, dim integer?, whole tensor?"
define("scatter", scattered, function(to, group, root, dim, whole, opt)
  return core.comm_scatter(to, axes_of(group), root, dim, whole, opt.async)
end)

-- Returns a new tensor: block j along split of member i becomes block i along join of member j.
define("all_to_all", "t tensor, group any?, split integer, join integer", function(t, group, split, join, opt)
  return core.comm_all_to_all(t, axes_of(group), split, join, opt.async)
end)

-- Exchanges uneven numbers of rows (dimension 1): send[j + 1] rows of t go to place j, and receive[i + 1] rows come
-- from place i. Returns a new tensor.
define("all_to_all_rows", "t tensor, group any?, send table, receive table", function(t, group, send, receive, opt)
  return core.comm_all_to_all_rows(t, axes_of(group), send, receive, opt.async)
end)

-- Sends a message to one member, whose comm.receive calls match in order. Returns t.
define("send", "t tensor, group any?, to integer", function(t, group, to, opt)
  return core.comm_send(t, axes_of(group), to, opt.async)
end)

-- t becomes the message of one member, which must have its shape and dtype. Returns t.
define("receive", "t tensor, group any?, from integer", function(t, group, from, opt)
  return core.comm_receive(t, axes_of(group), from, opt.async)
end)

--- Sends t to the next member of the ring and returns what the member before has sent; in a group of one it returns t.
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

--- Returns when every member has called it.
function comm.barrier(group) core.comm_barrier(axes_of(group)) end

--- Returns the texts (any strings) of all members, by place. It is slow and not meant for every step.
function comm.exchange(text, group) return core.comm_exchange(axes_of(group), text) end

--- Returns what this rank has sent: a list of { group, op, phase, calls, bytes, copied, seconds, exposed }. bytes: as
-- the algorithms require; copied: bytes moved inside this rank; exposed: seconds in which nothing was computed.
function comm.traffic() return core.comm_traffic() end
function comm.reset_traffic() core.comm_reset_traffic() end

--- Returns the last calls on groups as text, one on each line, the newest last.
function comm.flight(lines) return core.comm_flight(lines) end

return missing.guard("comm", signature.export("comm", comm))
