--- Checkpoints in the memory of several machines: each rank's part in its own, and a copy in that of a neighbour.
--
--     local memory = neighbours.open(id)               -- collective; id: of the run, 16 digits
--     memory:begin(step)                               -- keeps that step alone (nil: none), before training
--     snapshot.start(trainer, memory.folder, { apart = memory:stamp(), ... })     -- and, when all ranks have written:
--     local copies = memory:send(step)                 -- -> copies under way; nil and why memory does not take them
--     copies:is_over(), copies:finish()
--     memory:keep(step)                                -- that step is whole on all machines
--     memory:forget()                                  -- nothing of this run stays on this machine
--
-- On a machine lies, with mode 0700,
--
--     /dev/shm/ganymede-memory-ID-MACHINE/step-00000012/rank-00003.{safetensors,json}
--
-- of its own ranks and of those whose keeper (ganymede.checkpoint.machines) is one of them; host/checkpoint/apart.h
-- says what these files are. ID belongs to the run, so that nothing of another run is taken for its own. The newest
-- step that is whole stays until the next one is; at rest the one before it is there, too. A copy travels through the
-- comm as one message, in the background: it makes progress whenever ranks communicate, and counts as sent in the phase
-- "checkpoint", in the group "memory". ganymede.checkpoint.recover finds what is left after a failure.
-- The trap: ranks end without a word, and nobody else removes what is here. It is left for the ranks that come.
-- @module ganymede.checkpoint.neighbours
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machines = require "ganymede.checkpoint.machines"
local ranks = require "ganymede.job.ranks"
local tensor = require "ganymede.tensor"

local neighbours = { BASE = "/dev/shm" }

local Memory = {}
Memory.__index = Memory

--- The folder of a run on a machine.
function neighbours.folder(id, name) return ("%s/ganymede-memory-%s-%s"):format(neighbours.BASE, id, name) end

--- The folder of a step, and the file of a rank in it. ending: "json" or "safetensors".
function neighbours.step(folder, step) return ("%s/step-%08d"):format(folder, step) end
function neighbours.file(path, rank, ending) return ("%s/rank-%05d.%s"):format(path, rank, ending) end

--- Removes what runs of this id have on this machine. Not collective.
function neighbours.forget(id) core.apart_remove(neighbours.folder(id, machines.here())) end

local function group()
  local everybody = {}
  for i = 1, core.world() do everybody[i] = i - 1 end
  return core.comm_group_of("memory", everybody)
end

local function counted(fn, ...)
  local before = core.comm_set_phase "checkpoint"
  return failure.protect(function() core.comm_set_phase(before) end, fn, ...)
end
neighbours.counted = counted

--- The first of the ranks that fail says why -> its message on all ranks, or nil. Collective.
function neighbours.first_failure(message)
  for i, text in ipairs(counted(ranks.texts, message or "")) do
    if text ~= "" then return ("rank %d: %s"):format(i - 1, text) end
  end
end

--- Opens the memory of a run on all machines -> Memory: machines (list of { name, ranks }), mine (the one of this
-- rank), place (of this rank there, from 0), folder. Raises failure(1) where a folder cannot be had. Collective.
function neighbours.open(id)
  local here = machines.here()
  local self = setmetatable({ id = id, folder = neighbours.folder(id, here) }, Memory)
  self.machines = machines.of(ranks.texts(here))
  for _, entry in ipairs(self.machines) do
    if entry.name == here then self.mine = entry end
  end
  for i, rank in ipairs(self.mine.ranks) do
    if rank == core.rank() then self.place = i - 1 end
  end
  self:choose_keepers()
  local _, why = core.apart_folder(self.folder)
  why = neighbours.first_failure(why)
  if why then ranks.fail(1, "--memory-checkpoint: %s", why) end
  self.token = ranks.from_first(function() return require "ganymede.base.sha256"(id .. core.wall()):sub(1, 16) end)
  return self
end

-- keeper: of this rank, nil on a single machine; kept: the ranks whose keeper this one is.
function Memory:choose_keepers()
  local keepers = machines.keepers(self.machines)
  self.keeper, self.kept = keepers[core.rank()], {}
  for rank = 0, core.world() - 1 do
    if keepers[rank] == core.rank() then table.insert(self.kept, rank) end
  end
end

--- What snapshot.start needs to know. Saves of one start of the ranks have one token.
function Memory:stamp() return { token = self.token, sharers = #self.mine.ranks } end

-- The folders of steps on this machine but those of the steps given, and what was being read.
local function remove_others(folder, steps)
  for _, name in ipairs(core.list_folder(folder)) do
    if not steps[tonumber(name:match "^step%-(%d+)$" or -1)] then core.apart_remove(folder .. "/" .. name) end
  end
end

--- Keeps one step, from which the run goes on, and removes all others; nil: all. One rank of a machine does it, before
-- any rank saves.
function Memory:begin(step)
  self.newest = step
  if self.place == 0 then remove_others(self.folder, step and { [step] = true } or {}) end
end

--- Makes room for another step, to which other ranks of the machine may write already. The newest whole one stays.
function Memory:make_room(step)
  local stay = { [step] = true }
  if self.newest then stay[self.newest] = true end
  if self.place == 0 then remove_others(self.folder, stay) end
end

--- That step is whole on all machines.
function Memory:keep(step) self.newest = step end

--- Removes all of it from this machine. Each rank may call it. Not collective.
function Memory:forget() core.apart_remove(self.folder) end

-- ---------------------------------------------------------------- copies

local Copies = {} -- on their way: pending (list), arrived (list of { from, to }: names to be given at the end)
Copies.__index = Copies

-- Bytes of data and of the index of a rank's part, sent to its keeper -> those of the ranks that this one keeps, by
-- rank.
local function exchange_sizes(self, files, everybody)
  local sent, came = nil, {}
  for _, rank in ipairs(self.kept) do came[rank] = tensor.zeros({ 2 }, { dtype = "i64" }) end
  if self.keeper then
    local sizes = tensor.tensor({ files[1]:numel(), files[2]:numel() }, { dtype = "i64" })
    sent = core.comm_send(sizes, everybody, self.keeper, true)
  end
  for _, rank in ipairs(self.kept) do
    core.comm_receive(came[rank], everybody, rank)
    came[rank] = came[rank]:totable()
  end
  if sent then sent:wait() end
  return came
end

-- Takes room for the copies that come -> list of { rank, tensor, path, final }; nil and why there is none.
local function take_room(self, path, sizes)
  local places = {}
  for _, rank in ipairs(self.kept) do
    local index, data = neighbours.file(path, rank, "json"), neighbours.file(path, rank, "safetensors")
    os.remove(index)
    for i, name in ipairs { data, index .. ".new" } do
      local t, why = core.apart_file(name, sizes[rank][i])
      if not t then return nil, why end
      places[#places + 1] = { rank = rank, tensor = t, path = name, final = i == 2 and index or nil }
    end
  end
  return places
end

-- Opens what this rank sends -> { data, index }, as tensors; nil and why not.
local function own_files(self, path)
  local files = {}
  for i, ending in ipairs(self.keeper and { "safetensors", "json" } or {}) do
    local t, why = core.apart_file(neighbours.file(path, core.rank(), ending))
    if not t then return nil, why end
    files[i] = t
  end
  return files
end

local function start(self, path)
  local files, why = own_files(self, path)
  why = neighbours.first_failure(why)
  if why then return nil, why end
  local everybody = group()
  local places
  places, why = take_room(self, path, exchange_sizes(self, files, everybody))
  why = neighbours.first_failure(why)
  if why then return nil, why end
  local copies = setmetatable({ pending = {}, arrived = places }, Copies)
  for _, place in ipairs(places) do
    table.insert(copies.pending, (core.comm_receive(place.tensor, everybody, place.rank, true)))
  end
  for _, file in ipairs(files) do
    table.insert(copies.pending, (core.comm_send(file, everybody, self.keeper, true)))
  end
  return copies
end

--- Starts to send the copies of a step that all ranks have written -> Copies; nil and why memory does not take them,
-- the same on all ranks. Collective.
function Memory:send(step)
  return counted(tensor.no_grad, start, self, neighbours.step(self.folder, step))
end

--- Whether those of this rank have come and gone. It waits for nobody.
function Copies:is_over()
  for _, pending in ipairs(self.pending) do
    if not pending:test() then return false end
  end
  return true
end

--- Waits for them. A copy counts from here on.
function Copies:finish()
  for _, pending in ipairs(self.pending) do pending:wait() end
  for _, place in ipairs(self.arrived) do
    if place.final then assert(os.rename(place.path, place.final)) end
  end
  self.pending, self.arrived = {}, {}
end

neighbours.group = group
return neighbours
