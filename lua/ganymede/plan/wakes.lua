--- What it costs to wake ranks that share cores, measured between the ranks of a job (ganymede.plan.measure).
--
--     local wake, message = wakes.measure(2)  -- on 2 cores -> { work, late, after } of a machine's file; COLLECTIVE
--     local seconds = wakes.of_messages(a, { ... })  -- what is left of a collective's fixed time for its messages
--
-- A rank whose cores are shared yields for a moment when it waits (`after`, host/comm/crowd.h), and sleeps then, until
-- another rank rings for it. Then the system's scheduler has to run it: on an idle core at once, and where all are busy
-- some time later.
--   late   The last rank sleeps. Rank 0 computes, and sends it the time every few milliseconds, and computes on, while
--          more and more of the others compute, too. All read one clock, so the difference is how late it ran. With no
--          other rank at work, rank 0 sleeps itself after each message. Where a core is idle, delays should be alike,
--          and their median counts. Where all are busy, the rank sometimes runs at once and sometimes behind a slice of
--          another one: the mean counts, without the longest tenth, which other programs may have made.
--   work   Bursts of 1 and of 9 messages, for each of which the receiver wakes once: CPU seconds of its process, the
--          least of some rounds, without what the receiver yielded before it slept: a yield gives the core to whoever
--          wants it. What 8 more messages take is the work of a message, which no collective is below.
-- The trap: what else runs on the machine meanwhile is measured, too.
-- @module ganymede.plan.wakes
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local tensors = require "ganymede.tensor"

local wakes = {}

local MOST = 16 -- levels of a machine's file
local SECONDS, PAUSE = 0.4, 2e-3 -- of a level; between two messages
local ROUNDS, BURSTS, LONG = 6, 20, 9

local function f64(list) return tensors.tensor(list, { dtype = "f64" }) end

local function compute_until(time)
  while core.now() < time do end -- without sleeping
end

local function send(value, to) comm.send(f64 { value }, nil, to) end

local function receive(from)
  local t = tensors.zeros({ 1 }, { dtype = "f64" })
  comm.receive(t, nil, from)
  local now = core.now()
  return t:totable()[1], now
end

-- A time a little later on which all ranks agree.
local function agreed() return comm.broadcast(f64 { core.now() + 0.01 }, nil, 0):totable()[1] end

-- ---------------------------------------------------------------- late

--- The middle of a list of delays.
function wakes.median(list)
  table.sort(list)
  return (list[math.ceil(#list / 2)] + list[math.floor(#list / 2) + 1]) / 2
end

--- The mean of a list of delays without its longest tenth.
function wakes.mean(list)
  table.sort(list)
  local n, sum = math.max(1, math.ceil(0.9 * #list)), 0
  for i = 1, n do sum = sum + list[i] end
  return sum / n
end

-- The sender's part of a level; -1 says that it ends.
local function wake_again_and_again(to, finish, alone)
  local pauses = 0
  while core.now() < finish do
    pauses = pauses % 7 + 1 -- of different lengths, so that no timer keeps step with them
    compute_until(core.now() + PAUSE * (1 + pauses / 7))
    tensors.scope(function()
      send(core.now(), to)
      if alone then receive(to) end
    end)
  end
  send(-1, to)
end

local function delays_of(alone)
  local list = {}
  while true do
    local sent, came = tensors.scope(receive, 0)
    if sent < 0 then return list end
    list[#list + 1] = came - sent
    if alone then tensors.scope(send, 0, 0) end
  end
end

-- How late the last rank runs beside so many that compute; on other ranks nil. A core may be idle: is_idle.
local function lateness(others, is_idle)
  local rank, last = core.rank(), core.world() - 1
  local finish, found = tensors.scope(agreed) + SECONDS, nil
  if rank == last then found = (is_idle and wakes.median or wakes.mean)(delays_of(others == 0))
  elseif rank == 0 then wake_again_and_again(last, finish, others == 0)
  elseif rank < others then compute_until(finish) end
  comm.barrier()
  return found
end

-- ---------------------------------------------------------------- work

-- Without yields that gave the core to nobody: who computes meanwhile would have had it.
local function cpu_seconds()
  local p, _, yielded = core.process(), core.comm_yields()
  return p.user_seconds + p.system_seconds - yielded
end

-- CPU seconds of the last rank for a burst of so many messages and an answer; on other ranks nil.
local function burst(n)
  local rank, last, found = core.rank(), core.world() - 1, nil
  comm.barrier()
  local began = cpu_seconds()
  for _ = 1, rank == 0 and BURSTS or 0 do
    compute_until(core.now() + PAUSE / 2)
    tensors.scope(function()
      for i = 1, n do send(i, last) end
      receive(last)
    end)
  end
  for _ = 1, rank == last and BURSTS or 0 do
    tensors.scope(function()
      for _ = 1, n do receive(0) end
      send(0, 0)
    end)
  end
  if rank == last then found = (cpu_seconds() - began) / BURSTS end
  comm.barrier()
  return found
end

--- What a wake-up takes of the CPU seconds of a burst of one message and of one of n: an answer counts as a message.
function wakes.work(one, many, n) return math.max(0, one - 2 * (many - one) / (n - 1)) end

-- ---------------------------------------------------------------- the whole

--- Measures. The ranks share cores, of which so many can compute at once. Returns { work, late, after } on all ranks,
-- and the seconds of a core that a small message takes of its receiver.
function wakes.measure(cores)
  local found, last, one, many = {}, core.world() - 1, math.huge, math.huge
  for others = 0, math.min(last, MOST - 1) do found[#found + 1] = lateness(others, others < cores) or 0 end
  for _ = 1, ROUNDS do one, many = math.min(one, burst(1) or 0), math.min(many, burst(LONG) or 0) end
  found[#found + 1], found[#found + 2] = wakes.work(one, many, LONG), math.max(0, (many - one) / (LONG - 1))
  local all = tensors.scope(function() return comm.broadcast(f64(found), nil, last):totable() end)
  local message = table.remove(all)
  return { work = table.remove(all), late = all, after = (core.comm_yields()) }, message
end

--- Returns the core's seconds of a message of a collective that takes `seconds` with no bytes, where all ranks enter it
-- at once: what a simulation adds for waking (host/plan/cores.c) is taken off. A collective that is over before a rank
-- sleeps wakes nobody. In a longer one all but the last rank to come are woken; the first of them on each idle core
-- runs late, and the others when a core is free. about: ranks, cores (as many ranks compute at once), messages that a
-- rank sends, wake, message (as measured: a busy machine may make wake-ups so late that nothing else is left).
function wakes.of_messages(seconds, about)
  local idle = about.wake.late[2] or about.wake.late[1]
  local left = about.cores * seconds
  if seconds >= (about.wake.after or 0) then
    left = left - (about.ranks - 1) * about.wake.work - (about.cores - 1) * idle
  end
  return math.max(about.message, left / (about.ranks * about.messages))
end

return wakes
