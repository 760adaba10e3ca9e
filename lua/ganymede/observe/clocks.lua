--- How far the clocks of ranks differ: ranks of several machines have several clocks.
--
--     local list = clocks.offsets(core.executor_clock)    -- list[rank + 1] = { offset, error }, in seconds. COLLECTIVE
--
-- A time t of a rank is t - offset on the clock of rank 0. Rank 0 asks each rank for its time, again and again
-- (Cristian 1989): the answer t came between the moments a and b of rank 0, so the offset is t - (a + b) / 2, and wrong
-- by (b - a) / 2 at most. The round that took least counts. An offset below its error is taken as 0: ranks of one
-- machine share a clock. What clocks drift after the measurement is not in the error; it is some microseconds a second
-- between machines whose clocks are not disciplined. On one rank it costs nothing.
-- @module ganymede.observe.clocks
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local clocks = {}

local ROUNDS = 12

-- Rank 0 asks a rank -> { offset, error }
local function asked(now, rank, group)
  local best
  for _ = 1, ROUNDS do
    local before = now()
    core.comm_send(tensors.zeros({ 1 }, { dtype = "f64" }), group, rank)
    local answer = core.comm_receive(tensors.zeros({ 1 }, { dtype = "f64" }), group, rank):item()
    local after = now()
    local error = (after - before) / 2
    if not best or error < best.error then best = { offset = answer - (before + after) / 2, error = error } end
  end
  if math.abs(best.offset) <= best.error then best.offset = 0 end
  return best
end

local function answer(now, group)
  for _ = 1, ROUNDS do
    core.comm_receive(tensors.zeros({ 1 }, { dtype = "f64" }), group, 0):item()
    core.comm_send(tensors.tensor({ now() }, { dtype = "f64" }), group, 0)
  end
end

local function measured(now)
  local group, list = core.comm_group(), json.array { { offset = 0, error = 0 } }
  for rank = 1, core.world() - 1 do
    if core.rank() == 0 then list[rank + 1] = tensors.scope(tensors.no_grad, asked, now, rank, group) end
    if core.rank() == rank then tensors.scope(tensors.no_grad, answer, now, group) end
  end
  return list
end

--- Measures the clocks of all ranks. now(): seconds on the clock of this rank. COLLECTIVE
function clocks.offsets(now)
  if core.world() == 1 or not core.device().has_data then
    local list = {}
    for rank = 1, core.world() do list[rank] = { offset = 0, error = 0 } end
    return list
  end
  local list = measured(now)
  return json.decode(ranks.from_first(function() return json.encode(list) end), "the clocks of the ranks")
end

return clocks
