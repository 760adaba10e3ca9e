--- What the record of one rank says: what the rank takes at least, and what it does before its passes and behind them.
--
--     local least = record.of_rank(events, mesh, machine, rank)     -- { total, passes, lead, host, host_of_passes }
--     local text = record.place(events, mesh, machine, rank)        -- of meshes on which of_rank says the same
--     local around = record.around_passes(events)                   -- what its relatives do, too
--     local seconds, launch = record.summed_before(around, mesh, machine, rank)
--     local seconds = record.ended(around, mesh, machine, rank, at, host)
--
-- A rank has a clock of its own, as in a replay (host/plan/simulate.c), and operations between ranks take at least
-- their time alone: what stands between begin and wait goes on meanwhile, unless the host moves the bytes. Where a
-- thread of the host launches what a device does, it launches one thing after the other and waits for nothing; what is
-- launched begins no sooner. mesh: a list of { name, size }. events: those of core.step_condensed; of_rank also takes
-- those of core.step_read.
-- @module ganymede.plan.search.record
local bounds = require "ganymede.plan.search.bounds"
local parallel = require "ganymede.job.parallel"
local rates = require "ganymede.plan.search.rates"

local record = {}

local function is_message(e) return e.name == "send" or e.name == "receive" end

local copies = { data = true, shard = true, expert = true }

local function is_of_layers(names)
  for _, name in ipairs(names) do
    if copies[name] then return false end
  end
  return true
end

-- A walk through the events of a rank: of all that it does (total), and of its passes (own). Of each, `at`: when the
-- device has done what was launched, and `host`: when the host has launched it.
local Walk = {}
Walk.__index = Walk

-- An op, or a run of `n` ops that ends `queued` seconds behind the launch before it if nothing else is waited for.
local function run(clock, e, seconds, launch)
  clock.at = math.max(clock.at + seconds, clock.host + (launch > 0 and e.queued or launch + seconds))
  clock.host = clock.host + (e.n or 1) * launch
end

-- What a walk needs of a group of ranks, by its name in the record: a record has few of them.
function Walk:group(name)
  local known = self.groups[name]
  if known then return known end
  local names = parallel.axis_names(name)
  known = { of_layers = is_of_layers(names),
    members = not name:find("@", 1, true) and bounds.members(self.mesh, names, self.rank) or nil }
  self.groups[name] = known
  return known
end

function Walk:op(e, of_passes)
  local seconds = e.takes or rates.op(self.m, e)
  run(self.total, e, seconds, self.launch)
  if of_passes then run(self.own, e, seconds, self.launch) end
end

local function begin(clock, seconds)
  clock.host = clock.host + seconds
  clock.at = math.max(clock.at, clock.host)
  return clock.at
end

function Walk:begin(e, of_passes)
  if not e.group or e.group == "" then return end
  local among = of_passes and self:group(e.group).of_layers and not is_message(e)
  self.begun[e.id] = { event = e, among = among, total = begin(self.total, self.between),
    own = among and begin(self.own, self.between) } -- it moves while the rank still pays for its begin
  self.total.at = self.total.at + self.m.begin
end

function Walk:wait(e, of_passes)
  local begun, m = self.begun[e.id], self.m
  self.begun[e.id] = nil
  if not begun then return end
  if is_message(begun.event) then
    self.lead = self.lead or self.total.at
    self.total.at = math.max(self.total.at, self.first)
  elseif not begun.event.group:find("@", 1, true) then
    local seconds = rates.least(m, begun.event.name, self:group(begun.event.group).members, begun.event.bytes)
    local function ended(clock, at) return math.max(clock.at, (m.host_moves and clock.at or at) + seconds) end
    self.total.at = ended(self.total, begun.total) -- where the host moves, nothing else went on
    if of_passes and begun.among then self.own.at = ended(self.own, begun.own) end
  end
end

local function walked(events, mesh, m, walk)
  walk.m, walk.mesh, walk.begun, walk.groups, walk.own = m, mesh, {}, {}, { at = 0, host = 0 }
  walk.launch, walk.between = rates.launches(m)
  setmetatable(walk, Walk)
  local last = rates.last_product(events)
  for i, e in ipairs(events) do
    local visit = Walk[e.kind]
    if visit then visit(walk, e, i <= last) end
  end
  return walk
end

--- Returns what a rank with these events takes at least, in seconds:
--   total, passes   all of it, and its passes alone: ops up to the last product, and operations among ranks with the
--                   same samples. No stage of ZeRO changes the latter, and recomputation only adds to it. A wait ends
--                   no sooner than its operation takes alone, and nothing begins before the host has launched it
--   lead            until it first waits for a message; 0: it waits for none
--   host, host_of_passes   what the host takes to launch all of it, and the passes
-- rank: whose events these are (0); first: when the first message can be there (0).
function record.of_rank(events, mesh, m, rank, first)
  local walk = walked(events, mesh, m, { rank = rank, first = first or 0, total = { at = 0, host = 0 } })
  return { total = walk.total.at, passes = walk.own.at, lead = walk.lead or 0, host = walk.total.host,
    host_of_passes = walk.own.host }
end

local known_groups = setmetatable({}, { __mode = "k" }) -- events -> the names of their groups, each once

local function groups_of(events)
  if known_groups[events] then return known_groups[events] end
  local seen, list = {}, {}
  for _, e in ipairs(events) do
    local name = e.kind == "begin" and e.group or ""
    if name ~= "" and not seen[name] and not name:find("@", 1, true) then seen[name], list[#list + 1] = true, name end
  end
  known_groups[events] = list
  return list
end

--- Returns a text that is equal for meshes on which all operations of a rank's events take equally long.
function record.place(events, mesh, m, rank)
  local words = {}
  for i, name in ipairs(groups_of(events)) do
    words[i] = rates.place(m, bounds.members(mesh, parallel.axis_names(name), rank))
  end
  return table.concat(words, ", ")
end

-- Whether an operation is none of a pass: it is part of the update, or among data ranks or all stages.
local function is_behind(e)
  if e.kind ~= "begin" or is_message(e) then return false end
  return e.phase == "update" or not is_of_layers(parallel.axis_names(e.group or "")) or (e.group or ""):find "^pipeline"
end

-- The events behind the passes: operations of none of them, and all that follows on the first wait for one. What stands
-- before that may still be part of a pass.
local function behind_passes(events)
  local out, behind, ended, settled = {}, {}, false, false
  for _, e in ipairs(events) do
    if e.kind == "begin" then behind[e.id] = is_behind(e) end
    settled = settled or ended and e.kind == "wait" and behind[e.id] or false
    if ended and (settled or e.kind == "begin" and behind[e.id]) then out[#out + 1] = e end
    ended = ended or e.ends or false
  end
  return out
end

-- The operation in which all ranks sum what they have counted before their first pass; nil: they sum nothing.
local function sum_before(events)
  local ops, sum, wait = events[1], events[2], events[3]
  local is = wait and ops.kind == "op" and ops.products == 0 and not ops.ends and sum.name == "all_reduce"
    and wait.kind == "wait" and wait.id == sum.id
  return is and sum or nil
end

--- Returns what a rank does before its passes and behind them: `sum`, the operation that stands before them (nil:
-- none), and `behind`, the events behind them.
function record.around_passes(events) return { sum = sum_before(events), behind = behind_passes(events) } end

--- Returns the seconds in which all ranks sum what they have counted before their first pass, at least, and those of
-- the host for it. around: what record.around_passes says of a rank that does the same.
function record.summed_before(around, mesh, m, rank)
  local sum = around.sum
  if not sum then return 0, 0 end
  local members = bounds.members(mesh, parallel.axis_names(sum.group), rank)
  return rates.least(m, sum.name, members, sum.bytes), (select(2, rates.launches(m)))
end

--- Returns when a rank ends at the earliest whose last pass ends at `at` and has been launched at `host`. An operation
-- that began before that is over.
function record.ended(around, mesh, m, rank, at, host)
  return walked(around.behind, mesh, m, { rank = rank, first = 0, total = { at = at, host = host } }).total.at
end

return record
