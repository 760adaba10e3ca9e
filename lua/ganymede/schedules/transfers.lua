--- The one pass that puts the transfers into the lists of a schedule that says only the order of computing.
--
-- The computing is played with unit costs, transfers taking no time (run.lua). A message stands, in the lists of both
-- its ranks, at the moment when what it carries was made: right behind its maker, and on the other rank before all that
-- begins then or later. So all lists are restrictions of one total order of computings and messages, and therefore run
-- to their end even where a send blocks until its receive is reached: of the events that are left, the first in that
-- order waits for nobody. Messages between two ranks are sent and received in the same order.
-- The trap: places are right for equal costs. An executor whose stages are uneven loses no correctness by them; to hide
-- transfers it may post receives ahead of their place, in the order of the list.
-- @module ganymede.schedules.transfers
jit.off(true, true) -- once a job, over many short lists: traces would cost more than they give

local geometry = require "ganymede.job.geometry"
local run = require "ganymede.schedules.run"

local UNIT = { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0 }

-- All messages: { time, from, to, send = action, receive = action }, in the order of the total order.
local function messages(schedule, finishes)
  local owners, list = geometry.owners(schedule), {}
  local last = schedule.stages * schedule.chunks
  for i, actions in ipairs(schedule.actions) do
    for k, action in ipairs(actions) do
      local thing, micro_batch, chunk = geometry.makes[action[1]], action[2], action[3]
      local reader = thing and geometry.reader(thing, schedule.parts[i][chunk], last)
      local to = reader and owners[reader]
      if to and to.rank ~= i - 1 then
        list[#list + 1] = { time = finishes[i][k], from = i - 1, to = to.rank,
          send = { "send", thing, micro_batch, chunk, to.rank },
          receive = { "receive", thing, micro_batch, to.chunk, i - 1 } }
      end
    end
  end
  -- A rank makes one thing at a time: (time, from) names a message.
  table.sort(list, function(a, b)
    if a.time ~= b.time then return a.time < b.time end
    return a.from < b.from
  end)
  return list
end

-- Computing actions and a rank's transfers in one list; at equal times the transfers come first.
local function merged(actions, begins, own)
  local out, next_one = {}, 1
  for k, action in ipairs(actions) do
    while own[next_one] and own[next_one].time <= begins[k] do
      out[#out + 1], next_one = own[next_one].action, next_one + 1
    end
    out[#out + 1] = action
  end
  for i = next_one, #own do out[#out + 1] = own[i].action end
  return out
end

--- The lists of the schedule with transfers; the computing must be able to run (schedules.check says whether it is).
return function(schedule)
  local played = run(schedule, { sends = "implied", costs = UNIT })
  local own = {}
  for i = 1, schedule.stages do own[i] = {} end
  for _, message in ipairs(messages(schedule, played.finishes)) do
    table.insert(own[message.from + 1], { time = message.time, action = message.send })
    table.insert(own[message.to + 1], { time = message.time, action = message.receive })
  end
  local lists = {}
  for i, actions in ipairs(schedule.actions) do lists[i] = merged(actions, played.begins[i], own[i]) end
  return lists
end
