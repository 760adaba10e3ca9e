--- Plays the lists of a schedule on all ranks, without a model: it computes when each action happens and who waits for
-- whom.
--
--     local played = run(schedule, { sends = "non-blocking", costs = { forward = 1, ..., transfer = 0 } })
--
-- sends: "non-blocking": a send takes no time of its sender, and the message arrives `transfer` later; a receive is
--        posted, and the computing that reads it waits. "blocking": sender and receiver meet (rendezvous), and both are
--        busy for `transfer`. "implied": the lists have computing only, and what crosses ranks is there `transfer`
-- after
--        it was made.
-- costs: the times of one micro-batch in one part: forward, backward_input, backward_weight, transfer. Each is a
-- number;
--        those of computing may be lists by part. "backward" costs backward_input + backward_weight. launch: those of
--        the host that launches what a rank computes; it begins at the time `launch.from`, never waits, and an action
--        ends no sooner than the host has launched it.
--
-- Each rank does one action after the other and names its peers, so the order in which ranks are visited does not
-- matter.
-- The trap: the lists must have passed the local checks of schedules.check; this file finds only problems of several
-- ranks.
-- @module ganymede.schedules.run
jit.off(true, true) -- it runs once in a job, over many short lists: compiling would take longer than it saves

local geometry = require "ganymede.job.geometry"

local Play = {}
Play.__index = Play

-- The times of a thing by part and micro-batch are kept in one flat table.
local FLAT = 2 ^ 21 -- larger than any number of micro-batches

local function slot(grid, part, micro_batch) return grid[part * FLAT + micro_batch] end

local function set(grid, part, micro_batch, time) grid[part * FLAT + micro_batch] = time end

local function cost_of(costs, kind, part)
  local cost = costs[kind]
  return type(cost) == "table" and cost[part] or cost
end

local function duration(costs, kind, part)
  if kind ~= "backward" then return cost_of(costs, kind, part) end
  return cost_of(costs, "backward_input", part) + cost_of(costs, "backward_weight", part)
end

-- Returns the end of an action: when its rank has done it, and the host has launched it.
function Play:ended(rank, begin, kind, part)
  local costs = self.costs
  local finish = begin + duration(costs, kind, part)
  if not costs.launch then return finish end
  self.host[rank] = self.host[rank] + duration(costs.launch, kind, part)
  return math.max(finish, self.host[rank])
end

-- Returns the time at which a rank has what `part` made; nil: not yet.
function Play:at_hand(rank, thing, part, micro_batch)
  local made = slot(self.made[thing], part, micro_batch)
  if self.owners[part].rank == rank then return made end
  if self.sends == "implied" then return made and made + self.costs.transfer end
  return slot(self.arrived[thing], part, micro_batch)
end

-- Returns the time from which a computing action can begin; or nil, the thing for which it waits, and the part that
-- makes it.
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
  local finish = self:ended(rank, begin, action[1], part)
  local thing = geometry.makes[action[1]]
  if thing then set(self.made[thing], part, action[2], finish) end
  return self:finish(rank, begin, finish)
end

-- Lets sender and receiver meet, if both have come to this message. It is the same message for both, because messages
-- between two ranks keep the order of the lists.
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
    return self:finish(rank, now, now, now) -- late_ends sets its end, which is known when it has been sent
  end
  local there = now + self.costs.transfer
  set(self.arrived[action[2]], part, action[3], there)
  return self:finish(rank, now, there, now)
end

-- Does one action of a rank if it can be done now; otherwise returns false.
function Play:step(rank, action)
  if geometry.is_computing(action) then return self:compute(rank, action, self.parts[rank + 1][action[3]]) end
  return self:transfer(rank, action, self.parts[rank + 1][action[4]])
end

-- Plays all ranks as far as they get.
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

-- Sets the ends of posted receives: the times at which their messages are there.
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

-- Says for what an action waits that cannot be done.
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

--- Returns { begins[rank + 1][i], finishes[rank + 1][i] of action i (as far as the rank got), stuck = nil or a list of
-- { rank, position, action, waits = what it waits for } }.
local function run(schedule, opt)
  local play = setmetatable({
    actions = schedule.actions, parts = schedule.parts, owners = geometry.owners(schedule),
    last = schedule.stages * schedule.chunks, sends = opt.sends, costs = opt.costs,
    made = { activation = {}, gradient = {} }, arrived = { activation = {}, gradient = {} }, clock = {},
    position = {}, begins = {}, finishes = {}, host = {},
  }, Play)
  for rank = 0, schedule.stages - 1 do
    play.clock[rank], play.position[rank], play.host[rank] = 0, 1, opt.costs.launch and opt.costs.launch.from
    play.begins[rank + 1], play.finishes[rank + 1] = {}, {}
  end
  play:play()
  if play.sends == "non-blocking" then play:late_ends() end
  return { begins = play.begins, finishes = play.finishes, stuck = play:stuck() }
end

return run
