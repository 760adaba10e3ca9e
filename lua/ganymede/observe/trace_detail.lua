--- One step of a trace in full: every op, every operation between ranks, and memory, by module.
--
--     detail.begin()                       -- what this rank does is recorded from here on
--     local found = detail.take()          -- plain data, times of core.executor_clock; nil: another record ended it
--     detail.lines(found, rank, first)     -- Chrome's events: a list of texts
--
-- found: { ops = list of { name, about, path, begin, finish, flops, bytes, again }, messages = list of { name, about,
-- path, phase, group, begin, finish (nil: nobody waited), sent, key (of a message between two ranks) }, memory = list
-- of { time, live } }. Thread 3 shows modules, one inside the other, as long as ops of theirs follow each other; thread
-- 4 the ops; asynchronous events the operations between ranks. A send and its receive have the same key: "0>1 #3" is
-- the third message from rank 0 to rank 1 in that step. The trap: on a GPU these are times of the host, which queues.
-- @module ganymede.observe.trace_detail
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local detail = {}

local MODULES, OPS = 3, 4 -- threads

--- Begins to record what this rank does.
function detail.begin() core.record_start() end

-- ---------------------------------------------------------------- from the record

-- The number of the rank at a place of a group: of axes ("row.col"), or of some of their places ("pipeline@0+3").
-- mesh: axes from the slowest on, each { name, size, coordinate }.
function detail.rank_at(mesh, group, place)
  local axes, places = group:match "^([^@]*)@?(.*)$"
  if places ~= "" then
    local at = 0
    for word in places:gmatch "%d+" do
      if at == place then
        place = tonumber(word)
        break
      end
      at = at + 1
    end
  end
  local within = {}
  for name in axes:gmatch "[^.]+" do within[name] = true end
  local rank, stride = 0, 1
  for i = #mesh, 1, -1 do
    local axis, coordinate = mesh[i], mesh[i].coordinate
    if within[axis.name] then coordinate, place = place % axis.size, math.floor(place / axis.size) end
    rank, stride = rank + coordinate * stride, stride * axis.size
  end
  return rank
end

-- Numbers messages between two ranks in the order in which this rank began them.
local function numbered(mesh, own)
  local count = {}
  return function(event)
    if event.name ~= "send" and event.name ~= "receive" then return nil end
    local peer = detail.rank_at(mesh, event.group or "", event.peer)
    local pair = event.name == "send" and ("%d>%d"):format(own, peer) or ("%d>%d"):format(peer, own)
    count[pair] = (count[pair] or 0) + 1
    return ("%s #%d"):format(pair, count[pair])
  end
end

local convert = {}

function convert.op(out, event, begin)
  table.insert(out.ops, { name = event.name, about = event.about, path = event.path, begin = begin + event.seconds,
    finish = begin + event.seconds + event.took, flops = event.flops, bytes = event.bytes, again = event.again or nil })
end

function convert.begin(out, event, begin)
  local message = { name = event.name, about = event.about, path = event.path, phase = event.phase,
    group = event.group, sent = event.sent, begin = begin + event.seconds, key = out.key(event) }
  table.insert(out.messages, message)
  out.by_id[event.id] = message
end

function convert.wait(out, event, begin)
  local message = out.by_id[event.id]
  if message then message.finish = begin + event.seconds + event.took end
end

local function memory(sign)
  return function(out, event, begin)
    out.live = out.live + sign * event.bytes
    table.insert(out.memory, { begin + event.seconds, out.live })
  end
end
convert.alloc, convert.free = memory(1), memory(-1)

--- Turns a record (core.record_take) into what lines() shows. mesh: core.mesh().
function detail.of_record(record, mesh)
  local out = { ops = json.array(), messages = json.array(), memory = json.array(), live = record.live, by_id = {},
    key = numbered(mesh, record.rank) }
  table.insert(out.memory, { record.begin, record.live })
  for _, event in ipairs(record.events) do convert[event.kind](out, event, record.begin) end
  return { ops = out.ops, messages = out.messages, memory = out.memory }
end

--- Ends the record -> what was done; nil: there is none, or another one has ended it.
function detail.take()
  local record = core.record_take()
  return record and detail.of_record(record, core.mesh())
end

--- Moves all times by so many seconds.
function detail.move(found, seconds)
  for _, list in ipairs { found.ops, found.messages } do
    for _, e in ipairs(list) do e.begin, e.finish = e.begin + seconds, e.finish and e.finish + seconds end
  end
  for _, e in ipairs(found.memory) do e[1] = e[1] + seconds end
end

-- ---------------------------------------------------------------- Chrome's events

local function microseconds(seconds) return ("%.1f"):format(1e6 * seconds) end

local function event(rank, thread, cat, name, begin, finish, args)
  return ('{"name":%s,"cat":"%s","ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":%s}'):format(json.encode(name), cat,
    rank, thread, microseconds(begin), microseconds(finish - begin), json.encode(args))
end

local function parts_of(path)
  local list = {}
  for part in (path or ""):gmatch "[^.]+" do list[#list + 1] = part end
  return list
end

--- Modules as they follow each other in a list of ops -> list of { path, depth, begin, finish, ops, seconds (of its ops
-- and those of its parts) }, those around others after them.
function detail.modules(ops)
  local open, done = {}, {}
  local function close(depth)
    while #open > depth do done[#done + 1] = table.remove(open) end
  end
  for _, op in ipairs(ops) do
    local parts, same = parts_of(op.path), 0
    while parts[same + 1] and open[same + 1] and open[same + 1].part == parts[same + 1] do same = same + 1 end
    close(same)
    for depth = same + 1, #parts do
      open[depth] = { part = parts[depth], path = table.concat(parts, ".", 1, depth), depth = depth, begin = op.begin,
        ops = 0, seconds = 0 }
    end
    for _, m in ipairs(open) do
      m.finish, m.ops, m.seconds = op.finish, m.ops + 1, m.seconds + op.finish - op.begin
    end
  end
  close(0)
  return done
end

local function message_lines(add, e, rank, id, first)
  local head = ('{"name":%s,"cat":"ranks","id":"d%d.%d","pid":%d,"tid":%d'):format(
    json.encode(e.group and e.group ~= "" and e.name .. " over " .. e.group or e.name), rank, id, rank, OPS)
  add(('%s,"ph":"b","ts":%s,"args":%s}'):format(head, microseconds(e.begin - first), json.encode { about = e.about,
    module = e.path, phase = e.phase, sent = e.sent, key = e.key }))
  add(('%s,"ph":"e","ts":%s}'):format(head, microseconds((e.finish or e.begin) - first)))
end

--- Returns Chrome's events of a rank. first: the time at which the file begins.
function detail.lines(found, rank, first)
  local out = {}
  local function add(line) out[#out + 1] = line end
  for thread, name in pairs { [MODULES] = "modules", [OPS] = "ops and operations between ranks" } do
    add(('{"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}}'):format(rank, thread, name))
  end
  for _, m in ipairs(detail.modules(found.ops)) do
    add(event(rank, MODULES, "module", m.path, m.begin - first, m.finish - first, { ops = m.ops,
      microseconds = math.floor(1e7 * m.seconds + 0.5) / 10 }))
  end
  for _, op in ipairs(found.ops) do
    add(event(rank, OPS, "op", op.name, op.begin - first, op.finish - first, { about = op.about, module = op.path,
      flops = op.flops, bytes = op.bytes, again = op.again }))
  end
  for id, e in ipairs(found.messages) do message_lines(add, e, rank, id, first) end
  for _, e in ipairs(found.memory) do
    add(('{"name":"memory","ph":"C","pid":%d,"ts":%s,"args":{"bytes":%d}}'):format(rank, microseconds(e[1] - first),
      e[2]))
  end
  return out
end

return detail
