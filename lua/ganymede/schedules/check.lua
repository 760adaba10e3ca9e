--- Proves that a pipeline schedule is right, or says the first thing that is wrong with it.
--
--     local ok, problem = check(schedule)
--     --> nil, { class = "order", rank = 2, position = 17, action = { "receive", ... }, message = "1f1b: ..." }
--
-- It proves the following, in this order; `class` names what failed:
--   form      sizes are counts; each part of the model is held once; actions are well-formed and name what exists
--   complete  each micro-batch goes once forward and, unless the schedule is forward_only, once backward (fused, or
--             input and weight) through each part
--   order     on its rank, every action comes after what it reads: backward after forward, weight after input gradient,
--             computing after the receive of its input, a send after what it carries is made
--   transfer  what crosses ranks is sent once to the rank that reads it and received once from the rank that made it;
--             nothing else is sent; messages between two ranks are received in the order in which they are sent
--   deadlock  all lists run to their end with non-blocking sends and receives posted in order, and with blocking sends
-- `position` counts the actions of the rank from 1, transfers included; it is nil if an action is missing at the end.
-- check(schedule, { transfers = false }) does the same for lists that have computing only.
-- The trap: a schedule is one step. Steps may follow each other because each one empties the pipeline.
-- @module ganymede.schedules.check
jit.off(true, true) -- it runs once in a job, over many short lists: compiling would take longer than it saves

local geometry = require "ganymede.job.geometry"
local run = require "ganymede.schedules.run"

local NO_COSTS = { forward = 1, backward_input = 1, backward_weight = 1, transfer = 0 }

local Walk = {}
Walk.__index = Walk

-- Ends the check with the first problem.
local function fault(class, rank, position, action, why, ...)
  local place = ""
  if rank then
    place = position and ("rank %d, action %d (%s): "):format(rank, position, geometry.describe(action))
      or ("rank %d: "):format(rank)
  end
  error({ is_problem = true, class = class, rank = rank, position = position, action = action,
    message = place .. why:format(...) }, 0)
end

-- ---------------------------------------------------------------- form

local function is_count(n) return type(n) == "number" and n >= 1 and n == math.floor(n) and n <= 2 ^ 20 end

local function check_parts(schedule)
  local last, holder = schedule.stages * schedule.chunks, {}
  for i = 1, schedule.stages do
    local held = schedule.parts[i]
    if type(held) ~= "table" or #held ~= schedule.chunks then
      fault("form", i - 1, nil, nil, "parts[%d] must list the parts of its %d chunks", i, schedule.chunks)
    end
    for chunk, part in ipairs(held) do
      if not is_count(part) or part > last then
        fault("form", i - 1, nil, nil, "chunk %d is part %s; parts are 1 to %d", chunk, tostring(part), last)
      end
      if holder[part] then fault("form", i - 1, nil, nil, "part %d is held by rank %d too", part, holder[part]) end
      holder[part] = i - 1
    end
  end
end

local function check_sizes(schedule)
  for _, name in ipairs { "stages", "micro_batches", "chunks" } do
    if not is_count(schedule[name]) then
      fault("form", nil, nil, nil, "%s must be an integer, at least 1; got %s", name, tostring(schedule[name]))
    end
  end
  for _, name in ipairs { "parts", "actions" } do
    if type(schedule[name]) ~= "table" or #schedule[name] ~= schedule.stages then
      fault("form", nil, nil, nil, "%s must have one list for each of the %d ranks", name, schedule.stages)
    end
  end
  check_parts(schedule)
end

local function transfer_problem(schedule, rank, action)
  if action[2] ~= "activation" and action[2] ~= "gradient" then return "carries neither activation nor gradient" end
  local peer = action[5]
  if type(peer) ~= "number" or peer ~= math.floor(peer) or peer < 0 or peer >= schedule.stages then
    return ("ranks are 0 to %d"):format(schedule.stages - 1)
  end
  if peer == rank then return "a rank cannot send to itself" end
end

local function action_problem(schedule, rank, action, transfers)
  local is_transfer = geometry.is_transfer(action)
  if not is_transfer and not geometry.is_computing(action) then return "there is no such kind of action" end
  if is_transfer and not transfers then return "an order has no transfers; they are added to it" end
  local length = is_transfer and 5 or 3
  if #action ~= length then return ("has %d fields instead of %d"):format(#action, length) end
  local micro_batch, chunk = action[length == 5 and 3 or 2], action[length == 5 and 4 or 3]
  if not is_count(micro_batch) or micro_batch > schedule.micro_batches then
    return ("micro-batches are 1 to %d"):format(schedule.micro_batches)
  end
  if not is_count(chunk) or chunk > schedule.chunks then return ("chunks are 1 to %d"):format(schedule.chunks) end
  return is_transfer and transfer_problem(schedule, rank, action) or nil
end

-- Checks the form of an action, before anything reads it.
local function check_action(schedule, rank, i, action, transfers)
  if type(action) ~= "table" then
    error({ is_problem = true, class = "form", rank = rank, position = i, action = action,
      message = ("rank %d, action %d: must be a table; got %s"):format(rank, i, tostring(action)) }, 0)
  end
  local why = action_problem(schedule, rank, action, transfers)
  if why then fault("form", rank, i, action, "%s", why) end
end

-- ---------------------------------------------------------------- one rank after the other

-- at[what][part][micro_batch] is the position of what has happened on this rank.
function Walk:note(what, part, micro_batch)
  local grid = self.at[what]
  grid[part] = grid[part] or {}
  grid[part][micro_batch] = self.i
end

function Walk:was(what, part, micro_batch) return self.at[what][part] and self.at[what][part][micro_batch] end

function Walk:wrong(class, ...) fault(class, self.rank, self.i, self.action, ...) end

-- "receive activation" and the like are noted under the part that made the thing.
function Walk:needs_input(kind, part, micro_batch)
  local thing, from = geometry.reads(kind, part, self.last)
  if not thing then return end
  if self.owners[from].rank == self.rank then
    if not self:was(thing, from, micro_batch) then
      self:wrong("order", "comes before the %s that it reads from chunk %d of this rank", thing,
        self.owners[from].chunk)
    end
  elseif self.transfers and not self:was("receive " .. thing, from, micro_batch) then
    self:wrong("order", "comes before the receive of its %s", thing)
  end
end

function Walk:compute()
  local kind, micro_batch = self.action[1], self.action[2]
  local part = self.held[self.action[3]]
  if self.forward_only and kind ~= "forward" then self:wrong("complete", "the schedule is forward_only") end
  local name = kind == "backward" and "backward_input" or kind
  if self:was(name, part, micro_batch) then
    self:wrong("complete", "was already done by action %d", self:was(name, part, micro_batch))
  end
  if kind == "backward_weight" then
    if not self:was("backward_input", part, micro_batch) then self:wrong("order", "comes before its backward_input") end
  elseif kind ~= "forward" and not self:was("forward", part, micro_batch) then
    self:wrong("order", "comes before its forward")
  end
  self:needs_input(kind, part, micro_batch)
  self:note(name, part, micro_batch)
  if kind == "backward" then
    self:note("backward_weight", part, micro_batch)
  end
  if geometry.makes[kind] then self:note(geometry.makes[kind], part, micro_batch) end
end

function Walk:send()
  local _, thing, micro_batch, chunk, peer = unpack(self.action)
  local part = self.held[chunk]
  local reader = geometry.reader(thing, part, self.last)
  local to = reader and self.owners[reader]
  if not to then self:wrong("transfer", "nobody reads it: part %d is at the model's end", part) end
  if to.rank == self.rank then self:wrong("transfer", "it is read by chunk %d of this same rank", to.chunk) end
  if to.rank ~= peer then self:wrong("transfer", "it is read by rank %d", to.rank) end
  if not self:was(thing, part, micro_batch) then self:wrong("order", "comes before what it carries is made") end
  local before = self:was("send " .. thing, part, micro_batch)
  if before then self:wrong("transfer", "was already sent by action %d", before) end
  self:note("send " .. thing, part, micro_batch)
end

function Walk:receive()
  local _, thing, micro_batch, chunk, peer = unpack(self.action)
  local from = geometry.maker(self.action, self.held[chunk])
  local maker = self.owners[from]
  if not maker then self:wrong("transfer", "nobody makes it: part %d is at the model's end", self.held[chunk]) end
  if maker.rank == self.rank then self:wrong("transfer", "it is made by chunk %d of this same rank", maker.chunk) end
  if maker.rank ~= peer then self:wrong("transfer", "it is made by rank %d", maker.rank) end
  local before = self:was("receive " .. thing, from, micro_batch)
  if before then self:wrong("transfer", "was already received by action %d", before) end
  self:note("receive " .. thing, from, micro_batch)
end

-- Everything that a chunk must do for a micro-batch, as { class, what, the part under which it is noted, in words }.
function Walk:owed(chunk)
  local part = self.held[chunk]
  local owed = { { "complete", "forward", part, "forward" } }
  if not self.forward_only then
    owed[2] = { "complete", "backward_input", part, "backward (or backward_input)" }
    owed[3] = { "complete", "backward_weight", part, "backward_weight" }
  end
  if not self.transfers then return owed end
  for _, thing in ipairs(self.forward_only and { "activation" } or { "activation", "gradient" }) do
    local reader = geometry.reader(thing, part, self.last)
    if reader and self.owners[reader].rank ~= self.rank then
      owed[#owed + 1] = { "transfer", "send " .. thing, part, "send of the " .. thing }
    end
  end
  for _, kind in ipairs(self.forward_only and { "forward" } or { "forward", "backward" }) do
    local thing, from = geometry.reads(kind, part, self.last)
    if thing and self.owners[from].rank ~= self.rank then
      owed[#owed + 1] = { "transfer", "receive " .. thing, from, "receive of the " .. thing }
    end
  end
  return owed
end

function Walk:nothing_missing(schedule)
  for micro_batch = 1, schedule.micro_batches do
    for chunk = 1, schedule.chunks do
      for _, owed in ipairs(self:owed(chunk)) do
        if not self:was(owed[2], owed[3], micro_batch) then
          fault(owed[1], self.rank, nil, nil, "has no %s of micro-batch %d, chunk %d", owed[4], micro_batch, chunk)
        end
      end
    end
  end
end

local function walk_rank(schedule, owners, rank, transfers)
  local at = {}
  for _, what in ipairs { "forward", "backward_input", "backward_weight", "activation", "gradient", "send activation",
    "send gradient", "receive activation", "receive gradient" } do
    at[what] = {}
  end
  local walk = setmetatable({ rank = rank, held = schedule.parts[rank + 1], owners = owners, at = at,
    last = schedule.stages * schedule.chunks, transfers = transfers, forward_only = schedule.forward_only }, Walk)
  for i, action in ipairs(schedule.actions[rank + 1]) do
    check_action(schedule, rank, i, action, transfers)
    walk.i, walk.action = i, action
    if geometry.is_computing(action) then walk:compute() else walk[action[1]](walk) end
  end
  walk:nothing_missing(schedule)
end

-- ---------------------------------------------------------------- between ranks

-- Returns list[from][to]: the sends (or receives) between two ranks in order, as { position, action, maker }.
local function channels(schedule, kind)
  local list = {}
  for rank = 0, schedule.stages - 1 do list[rank] = {} end
  for rank = 0, schedule.stages - 1 do
    for i, action in ipairs(schedule.actions[rank + 1]) do
      if action[1] == kind then
        local from, to = rank, action[5]
        if kind == "receive" then from, to = to, from end
        list[from][to] = list[from][to] or {}
        table.insert(list[from][to], { i, action, geometry.maker(action, schedule.parts[rank + 1][action[4]]) })
      end
    end
  end
  return list
end

local function check_channel(from, to, sent, received)
  for k, r in ipairs(received) do
    local s = sent[k]
    if r[2][2] ~= s[2][2] or r[2][3] ~= s[2][3] or r[3] ~= s[3] then
      fault("transfer", to, r[1], r[2], "message %d from rank %d is its action %d (%s); messages between two ranks "
        .. "keep their order", k, from, s[1], geometry.describe(s[2]))
    end
  end
end

-- Compares what is sent with what is received. That each is there once has been checked before.
local function check_channels(schedule)
  local sent, received = channels(schedule, "send"), channels(schedule, "receive")
  for from = 0, schedule.stages - 1 do
    for to = 0, schedule.stages - 1 do
      if received[from][to] then check_channel(from, to, sent[from][to], received[from][to]) end
    end
  end
end

local function check_progress(schedule, sends)
  local stuck = run(schedule, { sends = sends, costs = NO_COSTS }).stuck
  if not stuck then return end
  local others = {}
  for i = 2, #stuck do
    local s = stuck[i]
    others[#others + 1] = ("; rank %d, action %d (%s) waits for %s"):format(s.rank, s.position,
      geometry.describe(s.action), s.waits)
  end
  local first = stuck[1]
  local with = sends == "implied" and "" or (" with %s sends"):format(sends)
  fault("deadlock", first.rank, first.position, first.action, "waits for ever%s, for %s%s", with, first.waits,
    table.concat(others))
end

local function prove(schedule, transfers)
  check_sizes(schedule)
  local owners = geometry.owners(schedule)
  for rank = 0, schedule.stages - 1 do walk_rank(schedule, owners, rank, transfers) end
  if not transfers then return check_progress(schedule, "implied") end
  check_channels(schedule)
  check_progress(schedule, "non-blocking")
  check_progress(schedule, "blocking")
end

--- Returns true, or nil and the first problem. opt.transfers = false: the lists have computing only.
return function(schedule, opt)
  local ok, problem = pcall(prove, schedule, not (opt and opt.transfers == false))
  if ok then return true end
  if type(problem) ~= "table" or not problem.is_problem then error(problem, 0) end
  problem.is_problem = nil
  problem.message = tostring(schedule.name or "schedule") .. ": " .. problem.message
  return nil, problem
end
