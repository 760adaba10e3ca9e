--- Plays the lists of a schedule against each other, without a model: when each action happens, who waits for whom.
--
--     local played = run(schedule, { sends = "non-blocking", costs = { forward = 1, ..., transfer = 0 } })
--
-- sends: "non-blocking": a send takes its sender no time, the message arrives `transfer` later; a receive is posted and
--        waited for by the computing that reads it. "blocking": sender and receiver meet (rendezvous) and both are busy
--        for `transfer`. "implied": the lists hold computing only, and what crosses ranks is there `transfer` after it
--        was made.
-- costs: of one micro-batch in one part: forward, backward_input, backward_weight, transfer; numbers, or for computing
--        lists by part. "backward" costs backward_input + backward_weight.
--
-- Each rank is sequential and names its peers, so the result does not depend on the order in which ranks are looked at.
-- The trap: the lists must have passed the local checks of schedules.check; this finds only what needs several ranks.
-- @module ganymede.schedules.run
jit.off(true, true) -- once a job, over many short lists: traces would cost more than they give

local geometry = require "ganymede.job.geometry"

local Play = {}
Play.__index = Play

-- The times of a thing by part and micro-batch are kept in one flat table.
local FLAT = 2 ^ 21 -- more than there are micro-batches

local function slot(grid, part, micro_batch) return grid[part * FLAT + micro_batch] end

local function set(grid, part, micro_batch, time) grid[part * FLAT + micro_batch] = time end

local function cost_of(costs, kind, part)
  local cost = costs[kind]
  return type(cost) == "table" and cost[part] or cost
end

function Play:duration(kind, part)
  if kind ~= "backward" then return cost_of(self.costs, kind, part) end
  return cost_of(self.costs, "backward_input", part) + cost_of(self.costs, "backward_weight", part)
end

-- When what `part` made is at hand on a rank: time, or nil while it is not.
function Play:at_hand(rank, thing, part, micro_batch)
  local made = slot(self.made[thing], part, micro_batch)
  if self.owners[part].rank == rank then return made end
  if self.sends == "implied" then return made and made + self.costs.transfer end
  return slot(self.arrived[thing], part, micro_batch)
end

-- The moment from which a computing action can begin, or nil and what it waits for: thing and part that makes it.
function Play:ready(rank, action, part)
  local kind, micro_batch = action[1], action[2]
  local time = self.clock[rank]
  if kind ~= "forward" then
    local own = kind == "backward_weight" and "gradient" or "activation"
    local made = slot(self.made[own], part, micro_batch)
    if not made then return nil, own, part end
    time = math.max(time, made)
  end
  local thing, from = geometry.reads(kind, part, self.last)
  if not thing then return time end
  local there = self:at_hand(rank, thing, from, micro_batch)
  if there then return math.max(time, there) end
  return nil, thing, from
end

function Play:finish(rank, begin, finish, clock)
  local i = self.position[rank]
  self.begins[rank + 1][i], self.finishes[rank + 1][i] = begin, finish
  self.clock[rank], self.position[rank] = clock or finish, i + 1
  return true
end

function Play:compute(rank, action, part)
  local begin = self:ready(rank, action, part)
  if not begin then return false end
  local finish = begin + self:duration(action[1], part)
  local thing = geometry.makes[action[1]]
  if thing then set(self.made[thing], part, action[2], finish) end
  return self:finish(rank, begin, finish)
end

-- Sender and receiver meet: both must have come to this message. That it is the same message for both follows from
-- the order of the lists, which messages between two ranks keep.
function Play:meet(rank, action, part)
  local peer = action[5]
  local other = self.actions[peer + 1][self.position[peer]]
  local wanted = action[1] == "send" and "receive" or "send"
  if not other or other[1] ~= wanted or other[5] ~= rank then return false end
  local begin = math.max(self.clock[rank], self.clock[peer])
  local finish = begin + self.costs.transfer
  set(self.arrived[action[2]], geometry.maker(action, part), action[3], finish)
  self:finish(peer, begin, finish)
  return self:finish(rank, begin, finish)
end

function Play:transfer(rank, action, part)
  if self.sends == "blocking" then return self:meet(rank, action, part) end
  local now = self.clock[rank]
  if action[1] == "receive" then
    return self:finish(rank, now, now, now) -- when it ends is known once it was sent: see late_ends
  end
  local there = now + self.costs.transfer
  set(self.arrived[action[2]], part, action[3], there)
  return self:finish(rank, now, there, now)
end

-- One action of a rank, if it can be done now; else false.
function Play:step(rank, action)
  if geometry.is_computing(action) then return self:compute(rank, action, self.parts[rank + 1][action[3]]) end
  return self:transfer(rank, action, self.parts[rank + 1][action[4]])
end

-- As far as everybody gets.
function Play:play()
  local moved
  repeat
    moved = false
    for rank = 0, #self.actions - 1 do
      local action = self.actions[rank + 1][self.position[rank]]
      while action and self:step(rank, action) do
        moved, action = true, self.actions[rank + 1][self.position[rank]]
      end
    end
  until not moved
end

-- A posted receive ends when its message is there.
function Play:late_ends()
  for rank = 0, #self.actions - 1 do
    for i, action in ipairs(self.actions[rank + 1]) do
      if action[1] == "receive" and self.begins[rank + 1][i] then
        local from = geometry.maker(action, self.parts[rank + 1][action[4]])
        local there = slot(self.arrived[action[2]], from, action[3])
        self.finishes[rank + 1][i] = there and math.max(there, self.begins[rank + 1][i])
      end
    end
  end
end

-- What an action that cannot be done waits for, in words.
function Play:waits(rank, action)
  if geometry.is_transfer(action) then
    return ("rank %d to come to the %s"):format(action[5], action[1] == "send" and "receive" or "send")
  end
  local _, thing, part = self:ready(rank, action, self.parts[rank + 1][action[3]])
  local owner = self.owners[part]
  return ("the %s of micro-batch %d that chunk %d of rank %d makes"):format(thing, action[2], owner.chunk, owner.rank)
end

function Play:stuck()
  local stuck = {}
  for rank = 0, #self.actions - 1 do
    local action = self.actions[rank + 1][self.position[rank]]
    if action then
      stuck[#stuck + 1] = { rank = rank, position = self.position[rank], action = action,
        waits = self:waits(rank, action) }
    end
  end
  return #stuck > 0 and stuck or nil
end

--- -> { begins[rank + 1][i], finishes[rank + 1][i] of action i (only as far as the rank got), stuck = nil or a list of
-- { rank, position, action, waits = what for } }
local function run(schedule, opt)
  local play = setmetatable({
    actions = schedule.actions, parts = schedule.parts, owners = geometry.owners(schedule),
    last = schedule.stages * schedule.chunks, sends = opt.sends, costs = opt.costs,
    made = { activation = {}, gradient = {} }, arrived = { activation = {}, gradient = {} }, clock = {},
    position = {}, begins = {}, finishes = {},
  }, Play)
  for rank = 0, schedule.stages - 1 do
    play.clock[rank], play.position[rank] = 0, 1
    play.begins[rank + 1], play.finishes[rank + 1] = {}, {}
  end
  play:play()
  if play.sends == "non-blocking" then play:late_ends() end
  return { begins = play.begins, finishes = play.finishes, stuck = play:stuck() }
end

return run
