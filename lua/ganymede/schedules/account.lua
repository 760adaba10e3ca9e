--- Computes totals (bubble, idle time, micro-batches held) from the times of a schedule's actions, which are simulated
-- (ganymede.schedules.simulate) or measured (ganymede.observe.trace).
--
--     local a = account(schedule, begins, finishes)      -- begins[rank + 1][i], finishes[rank + 1][i] of action i
--
-- The fields of the result are those that simulate.lua describes: begins, finishes, ideal, span, time, bubble,
-- bubble_with_barrier, idle, live. Times are in the unit of what was given.
-- @module ganymede.schedules.account
local geometry = require "ganymede.job.geometry"

-- Returns the first begin, the last end and the sum of the times of a rank's computing actions.
local function work(actions, begins, finishes)
  local first, last, busy = math.huge, -math.huge, 0
  for i, action in ipairs(actions) do
    if geometry.is_computing(action) then
      first, last = math.min(first, begins[i]), math.max(last, finishes[i])
      busy = busy + finishes[i] - begins[i]
    end
  end
  return first, last, busy
end

local function live(actions, chunks, forward_only)
  local held, most = 0, 0
  for _, action in ipairs(actions) do
    if action[1] == "forward" then
      held = held + 1
      most = math.max(most, held)
      if forward_only then held = held - 1 end
    elseif action[1] == "backward" or action[1] == "backward_weight" then
      held = held - 1
    end
  end
  return most / chunks
end

return function(schedule, begins, finishes)
  local a = { begins = begins, finishes = finishes, ideal = 0, span = 0, idle = {}, live = {} }
  local first, last = math.huge, -math.huge
  for i, actions in ipairs(schedule.actions) do
    local from, to, busy = work(actions, begins[i], finishes[i])
    first, last = math.min(first, from), math.max(last, to)
    a.ideal, a.span = math.max(a.ideal, busy), math.max(a.span, to - from)
    a.idle[i], a.live[i] = to - from - busy, live(actions, schedule.chunks, schedule.forward_only)
  end
  a.time = last - first
  a.bubble, a.bubble_with_barrier = (a.span - a.ideal) / a.ideal, (a.time - a.ideal) / a.ideal
  return a
end
