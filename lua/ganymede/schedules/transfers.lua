--- Adds the transfers to the lists of a schedule that says only the order of computing. All orders share this pass.
--
-- The computing is played with unit costs, and transfers take no time (run.lua). In the lists of both its ranks, a
-- message stands at the time at which its content was made: right after its maker, and on the other rank before
-- everything that begins then or later. So all lists follow one total order of computings and messages. They run to
-- their end even if a send blocks until its receive is reached, because the first of the remaining events in that order
-- waits for nobody. Messages between two ranks are sent and received in the same order.
-- The trap: the places are best for equal costs. With uneven stages they are still correct; to hide transfers, an
-- executor may post receives earlier, in the order of the list.
-- @module ganymede.schedules.transfers
jit.off(true, true) -- it runs once in a job, over many short lists: compiling would take longer than it saves

local geometry = require "ganymede.job.geometry"
local run = require "ganymede.schedules.run"

local UNIT = { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0 }

-- Returns all messages in the total order: a list of { time, from, to, send = action, receive = action }.
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
  -- A rank makes one thing at a time, so (time, from) identifies a message.
  table.sort(list, function(a, b)
    if a.time ~= b.time then return a.time < b.time end
    return a.from < b.from
  end)
  return list
end

-- Merges the computing actions and the transfers of a rank into one list; at equal times the transfers come first.
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

--- Returns the lists of the schedule with transfers. The computing must have passed schedules.check.
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
