--- Simulates a schedule for given costs and computes the begin and end of each action, idle time, and micro-batches
-- held.
--
--     local s = simulate(schedule, { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0.1 })
--     s.begins[rank + 1][i], s.finishes[rank + 1][i]      the times of action i, transfers included; a receive ends
-- when
--                                                         the message is there, a send when it has arrived
--     s.ideal      the time that the busiest rank computes
--     s.span       the longest time from a rank's first computing to its last; s.bubble = (span - ideal) / ideal: what
-- a
--                  step loses if steps follow each other without a barrier
--     s.time       the time from the first computing of all ranks to the last; s.bubble_with_barrier = (time - ideal) /
--                  ideal: what a step loses if ranks wait for each other between steps. Only for ZB-H2 and ZB-V is it
--                  more than s.bubble
--     s.idle[rank + 1]             the time without work between a rank's first computing and its last
--     s.live[rank + 1]             the largest number of micro-batches whose activations the rank holds, in units of
-- all
--                                  its chunks: from the begin of forward until weight gradients are done, or, in a
--                                  forward_only schedule, until its end
--
-- Costs are the times of one micro-batch in one part, in any unit. Each is a number; those of computing may be lists by
-- part. By default transfers cost 0 and all others 1, so that a fused backward costs 2. With blocking = true, sends
-- wait for their receives. launch = { from = 0, forward = , backward_input = , backward_weight = }: the times of the
-- host that launches what a rank computes (run.lua); by default it takes none.
-- @module ganymede.schedules.simulate
jit.off(true, true) -- it runs once in a job, over many short lists: compiling would take longer than it saves

local account = require "ganymede.schedules.account"
local geometry = require "ganymede.job.geometry"
local run = require "ganymede.schedules.run"

local DEFAULT = { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0 }

local function is_time(value, zero)
  return type(value) == "number" and value < math.huge and (value > 0 or zero and value == 0)
end

-- zero: whether a time may be 0.
local function check_cost(name, value, last, zero)
  local list = type(value) == "table"
  if list and name == "transfer" then error("simulate: transfer must be one number, equal for all ranks", 4) end
  for part = 1, list and last or 1 do
    local one = value
    if list then one = value[part] end
    if not is_time(one, zero) then
      error(("simulate: %s must be %s%s; got %s"):format(list and ("%s[%d]"):format(name, part) or name,
        zero and "a time, 0 or more" or "a time above 0", name ~= "transfer" and ", or a list of them by part" or "",
        tostring(one)), 4)
    end
  end
end

local function complete_launch(given, last)
  local out = { from = given.from or 0 }
  for _, name in ipairs { "forward", "backward_input", "backward_weight" } do
    local value = given[name] or 0
    check_cost("launch." .. name, value, last, true)
    out[name] = value
  end
  return out
end

local function complete(given, last)
  local costs = {}
  for name in pairs(given) do
    if DEFAULT[name] == nil and name ~= "blocking" and name ~= "launch" then
      error(("simulate: there is no cost '%s'; there are forward, backward_input, backward_weight, transfer, launch"):
        format(tostring(name)), 3)
    end
  end
  for _, name in ipairs { "forward", "backward_input", "backward_weight", "transfer" } do
    local value = given[name]
    if value == nil then value = DEFAULT[name] end
    check_cost(name, value, last, name == "transfer")
    costs[name] = value
  end
  return costs
end

local function has_transfers(schedule)
  for _, actions in ipairs(schedule.actions) do
    for _, action in ipairs(actions) do
      if geometry.is_transfer(action) then return true end
    end
  end
  return false
end

--- Simulates a schedule that has passed schedules.check. A schedule that cannot end is an error.
return function(schedule, given)
  local last = schedule.stages * schedule.chunks
  local costs = complete(given or {}, last)
  costs.launch = given and given.launch and complete_launch(given.launch, last) or nil
  local sends = not has_transfers(schedule) and "implied" or given and given.blocking and "blocking" or "non-blocking"
  local played = run(schedule, { sends = sends, costs = costs })
  if played.stuck then
    error(("simulate: %s does not end; schedules.check says where"):format(geometry.title(schedule)), 2)
  end
  local s = account(schedule, played.begins, played.finishes)
  s.costs = costs
  return s
end
