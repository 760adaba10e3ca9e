-- Judges of pipeline schedules that share no code with ganymede.schedules: a clock that ticks, and an executor.
local reference = {}

local function place_of_parts(schedule)
  local place = {}
  for i, held in ipairs(schedule.parts) do
    for _, part in ipairs(held) do place[part] = i end
  end
  return place
end

local function duration(costs, kind)
  return kind == "backward" and costs.backward_input + costs.backward_weight or costs[kind]
end

-- The end of what a computing action needs, as keys "F part micro-batch" or "B part micro-batch".
local function needs(kind, part, micro_batch, last)
  if kind == "forward" then return part > 1 and { { "F", part - 1 } } or {} end
  if kind == "backward_weight" then return { { "B", part } } end
  local list = { { "F", part } }
  if part < last then list[2] = { "B", part + 1 } end
  return list, micro_batch
end

--- Time in whole ticks: at each, every rank that is free begins its next computing action if what it needs is there.
-- Costs are whole numbers. -> begins[rank + 1] of the computing actions alone, in order
function reference.tick(schedule, costs)
  local place, last = place_of_parts(schedule), schedule.stages * schedule.chunks
  local done, todo, begins, free, left = {}, {}, {}, {}, 0
  for i, actions in ipairs(schedule.actions) do
    todo[i], begins[i], free[i] = {}, {}, 0
    for _, a in ipairs(actions) do
      if a[1] ~= "send" and a[1] ~= "receive" then todo[i][#todo[i] + 1], left = a, left + 1 end
    end
  end
  local now = 0
  while left > 0 do
    assert(now < 1e5, "the clock never ends")
    for i, list in ipairs(todo) do
      local a = list[#begins[i] + 1]
      if a and free[i] <= now then
        local part, ready = schedule.parts[i][a[3]], true
        for _, need in ipairs((needs(a[1], part, a[2], last))) do
          local ended = done[need[1] .. " " .. need[2] .. " " .. a[2]]
          local way = place[need[2]] ~= i and costs.transfer or 0
          ready = ready and ended ~= nil and ended + way <= now
        end
        if ready then
          begins[i][#begins[i] + 1], free[i], left = now, now + duration(costs, a[1]), left - 1
          if a[1] ~= "backward_weight" then
            done[(a[1] == "forward" and "F" or "B") .. " " .. part .. " " .. a[2]] = free[i]
          end
        end
      end
    end
    now = now + 1
  end
  return begins
end

-- ---------------------------------------------------------------- the executor

-- A toy model whose numbers depend on everything: part k turns x into forward(x, k), and a gradient into
-- backward(g, x, k), where x is what it saved.
local PRIME = 1000003
local function input(micro_batch) return 1000 + 7 * micro_batch end
local function forward(x, part) return (31 * x + part) % PRIME end
local function seed(y, micro_batch) return (y + 13 * micro_batch) % PRIME end
local function backward(g, x, part) return (17 * g + x + part) % PRIME end
local function weight(g, x) return (g * x) % PRIME end

--- Sums of weight gradients by part, and outputs by micro-batch, computed one micro-batch after the other.
function reference.serial(parts, micro_batches)
  local sums, outputs = {}, {}
  for part = 1, parts do sums[part] = 0 end
  for i = 1, micro_batches do
    local x = { [0] = input(i) }
    for part = 1, parts do x[part] = forward(x[part - 1], part) end
    outputs[i] = x[parts]
    local g = seed(x[parts], i)
    for part = parts, 1, -1 do
      sums[part] = sums[part] + weight(g, x[part - 1])
      g = backward(g, x[part - 1], part)
    end
  end
  return sums, outputs
end

local Rank = {}
Rank.__index = Rank

-- One slot for each thing; a second value, or none, is a fault of the schedule.
local function put(slots, key, value)
  assert(value ~= nil and slots[key] == nil, key)
  slots[key] = value
end

local function channel(net, from, to)
  local key = from .. ">" .. to
  net[key] = net[key] or { sent = {}, taken = 0, posted = 0 }
  return net[key]
end

-- What lies under `key`, waited for if a receive of it was posted.
function Rank:get(key)
  local post = self.posts[key]
  while post and not post.channel.sent[post.number] do coroutine.yield() end
  if post then
    self.has[key], self.posts[key] = post.channel.sent[post.number], nil
    post.channel.taken = post.channel.taken + 1
  end
  return assert(self.has[key], key)
end

function Rank:forward(i, chunk)
  local part = self.parts[chunk]
  local x = part == 1 and input(i) or self:get(("x %d %d"):format(part - 1, i))
  put(self.has, ("saved %d %d"):format(part, i), x)
  put(self.has, ("x %d %d"):format(part, i), forward(x, part))
  if part == self.last then self.outputs[i] = forward(x, part) end
end

function Rank:backward_input(i, chunk)
  local part = self.parts[chunk]
  local x, y = self:get(("saved %d %d"):format(part, i)), self:get(("x %d %d"):format(part, i))
  local g = part == self.last and seed(y, i) or self:get(("g %d %d"):format(part + 1, i))
  put(self.has, ("out %d %d"):format(part, i), g)
  put(self.has, ("g %d %d"):format(part, i), backward(g, x, part))
end

function Rank:backward_weight(i, chunk)
  local part = self.parts[chunk]
  local g, x = self:get(("out %d %d"):format(part, i)), self:get(("saved %d %d"):format(part, i))
  put(self.has, ("weighted %d %d"):format(part, i), true)
  self.sums[part] = self.sums[part] + weight(g, x)
end

function Rank:backward(i, chunk)
  self:backward_input(i, chunk)
  self:backward_weight(i, chunk)
end

function Rank:send(thing, i, chunk, peer)
  local value = self:get(("%s %d %d"):format(thing == "activation" and "x" or "g", self.parts[chunk], i))
  local way = channel(self.net, self.rank, peer)
  local number = #way.sent + 1
  way.sent[number] = value
  while self.blocking and way.posted < number do coroutine.yield() end
end

function Rank:receive(thing, i, chunk, peer)
  local way = channel(self.net, peer, self.rank)
  local key = thing == "activation" and ("x %d %d"):format(self.parts[chunk] - 1, i)
    or ("g %d %d"):format(self.parts[chunk] + 1, i)
  assert(self.has[key] == nil and self.posts[key] == nil, key)
  way.posted = way.posted + 1
  self.posts[key] = { channel = way, number = way.posted }
  if self.blocking then self:get(key) end
end

local function start(schedule, i, net, found, blocking)
  local rank = setmetatable({ rank = i - 1, parts = schedule.parts[i], last = schedule.stages * schedule.chunks,
    has = {}, posts = {}, net = net, sums = found.sums, outputs = found.outputs, blocking = blocking }, Rank)
  return coroutine.create(function()
    for _, action in ipairs(schedule.actions[i]) do rank[action[1]](rank, unpack(action, 2)) end
  end)
end

-- Ranks take turns in an order that changes by `shuffle`. -> whether one is left, the error of one that failed
local function round(ranks, shuffle)
  local left = false
  local order = {}
  for i = 1, #ranks do table.insert(order, shuffle(#order + 1), i) end
  for _, i in ipairs(order) do
    if coroutine.status(ranks[i]) == "suspended" then
      local ok, why = coroutine.resume(ranks[i])
      if not ok then return false, why end
      left = left or coroutine.status(ranks[i]) == "suspended"
    end
  end
  return left
end

local function left_over(net)
  for way, c in pairs(net) do
    if #c.sent ~= c.taken or c.posted ~= c.taken then return "messages are left over on " .. way end
  end
end

--- Runs the lists to the letter, each rank a coroutine, messages without names. blocking: sends wait for their receive.
-- -> true when outputs and weight gradients (not of forward_only) are those of one process, else nil and why not
function reference.execute(schedule, blocking, number)
  local net, found, ranks = {}, { sums = {}, outputs = {} }, {}
  local parts = schedule.stages * schedule.chunks
  for part = 1, parts do found.sums[part] = 0 end
  for i = 1, schedule.stages do ranks[i] = start(schedule, i, net, found, blocking) end
  local function shuffle(n)
    number = (number * 69621) % 2147483647
    return number % n + 1
  end
  local rounds, left, why = 0, true
  while left and rounds < 4 * (schedule.micro_batches * parts + schedule.stages) do -- a round ends a wait, or none can
    left, why = round(ranks, shuffle)
    if why then return nil, why end
    rounds = rounds + 1
  end
  for i, rank in ipairs(ranks) do
    if coroutine.status(rank) ~= "dead" then return nil, ("rank %d waits for ever"):format(i - 1) end
  end
  local sums, outputs = reference.serial(parts, schedule.micro_batches)
  for i = 1, schedule.micro_batches do
    if found.outputs[i] ~= outputs[i] then return nil, ("micro-batch %d has another output"):format(i) end
  end
  for part = 1, schedule.forward_only and 0 or parts do
    if found.sums[part] ~= sums[part] then return nil, ("part %d has other gradients"):format(part) end
  end
  why = left_over(net)
  return not why or nil, why
end

return reference
