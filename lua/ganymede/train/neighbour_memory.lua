--- `run --memory-checkpoint K` where another launcher has started the ranks, as on several machines: what the run does.
--
--     local memory = neighbour_memory.open(interval, folder, resumes)        -- collective, before training
--     local step = memory:resume(trainer, disk_step)     -- collective -> the step it went on from; nil: from none
--     memory:settle_on(step)                             -- the run begins behind this step, which may be no memory's
--     table.insert(trainer.hooks, memory:hook())
--     memory:close()                                     -- the run is over for good
--
-- There is no supervisor that would outlive the ranks. So the run finds what lies in memory by an id that rank 0 keeps
-- in RUN/memory.json (ganymede.job.memory_file). A save of a step has two parts, which follow one another while
-- training goes on: all ranks write to the memory of their machines (host/checkpoint), then the copies travel to the
-- neighbours (ganymede.checkpoint.neighbours). Ranks ask each other once a step whether a part is over. The next save
-- waits for the one before it, and for one to a disk.
-- @module ganymede.train.neighbour_memory
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local hooks = require "ganymede.hooks.base"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local memory_checkpoint = require "ganymede.train.memory_checkpoint"
local memory_file = require "ganymede.job.memory_file"
local neighbours = require "ganymede.checkpoint.neighbours"
local ranks = require "ganymede.job.ranks"
local recover = require "ganymede.checkpoint.recover"
local snapshot = require "ganymede.checkpoint.snapshot"

local neighbour_memory = {}

-- ---------------------------------------------------------------- the id of the run

-- On rank 0: the id that the run has or gets, its newest step, and the id whose memory nobody wants any more, or "".
local function choose(folder, resumes)
  local known, old = memory_file.read(folder), ""
  if known and not resumes then
    old, known = known.id, nil
  end
  if not known then
    local text = folder .. core.wall() .. core.process().pid .. core.process().host
    known = { id = require "ganymede.base.sha256"(text):sub(1, 16), step = 0 }
    memory_file.write(folder, known.id, 0)
  end
  return json.encode { id = known.id, step = known.step, old = old }
end

--- Removes what the run of a folder has in the memory of this machine. Not collective.
function neighbour_memory.forget(folder)
  local known = memory_file.read(folder)
  if known then neighbours.forget(known.id) end
end

-- ---------------------------------------------------------------- a run

local Memory = {}
Memory.__index = Memory

--- Opens the memory of a run. interval: steps between two saves; folder: of the run; resumes: whether it goes on with
-- what an earlier start has left. Raises failure(1) where a machine has no room for a folder. Collective.
function neighbour_memory.open(interval, folder, resumes)
  local said = json.decode(ranks.from_first(function() return choose(folder, resumes) end), "the memory of the run")
  if said.old ~= "" then neighbours.forget(said.old) end
  local self = setmetatable({ interval = interval, folder = folder, reached = said.step }, Memory)
  self.memory = neighbours.open(said.id)
  if ranks.is_first() and #self.memory.machines == 1 then
    log.info("--memory-checkpoint: all ranks are on one machine, so no neighbour has a copy")
  end
  return self
end

-- ---------------------------------------------------------------- going on

local function moved(found, came, count)
  return ("resumed from the memory of %d machine%s at step %d, saved by %d rank%s; %d part%s came from another machine")
    :format(count, count == 1 and "" or "s", found.step, found.world, found.world == 1 and "" or "s", came,
      came == 1 and "" or "s")
end

--- Puts the run into the trainer as the newest step left it that is whole in memory, unless that of the disk is newer
-- (0: there is none) -> the step; nil. Collective.
function Memory:resume(trainer, disk_step)
  local found, why = recover.find(self.memory)
  if not found then
    if self.reached > 0 and ranks.is_first() then
      log.warn("--memory-checkpoint: no step is whole in memory (%s), and the newest checkpoint on the disk serves, if "
        .. "there is one", why)
    end
    return nil
  end
  if found.step < disk_step then return nil end
  local came = recover.restore(trainer, self.memory, found)
  trainer:say(moved(found, came, #self.memory.machines))
  return found.step
end

--- Of all that lies in memory this step stays (nil: nothing does). Before the first step of training, on all ranks.
function Memory:settle_on(step) self.memory:begin(step) end

-- ---------------------------------------------------------------- saving

-- A failure is said once.
function Memory:tell(message)
  if self.told then return end
  self.told = true
  if ranks.is_first() then log.warn("--memory-checkpoint: memory does not take the state: %s", message) end
end

function Memory:start(trainer)
  self.memory:make_room(trainer.step)
  self.step = trainer.step
  local _, saving = snapshot.start(trainer, self.memory.folder, { background = true, passing = true,
    apart = self.memory:stamp() })
  self.saving = saving
end

-- All ranks have written their parts, or some have failed to.
function Memory:written(trainer)
  if snapshot.is_passing(trainer) then snapshot.finish(trainer) end
  local path, message = self.saving:finish()
  self.saving = nil
  if not path then return self:tell(message) end
  self.copies, message = self.memory:send(self.step)
  if not self.copies then return self:tell(message) end
end

-- Rank 0 notes the step that is whole. A disk that is full costs the note, and not the run: what lies in memory is
-- found by the id, which stays. It is said when it begins.
function Memory:note()
  local ok, why = failure.try(memory_file.write, self.folder, self.memory.id, self.step)
  if not ok and not self.unnoted then
    log.warn("--memory-checkpoint: that step %d lies in memory cannot be noted, and training goes on: %s", self.step,
      failure.text(why))
  end
  self.unnoted = not ok
end

-- All copies have come: the step is whole.
function Memory:arrived()
  self.copies:finish()
  self.copies = nil
  self.memory:keep(self.step)
  if ranks.is_first() then self:note() end
end

function Memory:is_busy() return self.saving ~= nil or self.copies ~= nil end

-- Goes on with the save under way, as far as that waits for nobody; wait: to its end. Collective.
function Memory:go_on(trainer, wait)
  if self.saving and (wait or not ranks.any(not self.saving:is_over())) then self:written(trainer) end
  if self.copies and (wait or not ranks.any(not self.copies:is_over())) then self:arrived() end
end

local NeighbourCheckpoint = { name = "NeighbourCheckpoint", priority = 30, needs_output = false, needs_loss = false,
  saves = true }
NeighbourCheckpoint.__index = NeighbourCheckpoint

function NeighbourCheckpoint:settle(trainer)
  if self.memory:is_busy() then self.memory:go_on(trainer, true) end
end

function NeighbourCheckpoint:after_train_iter(trainer)
  local memory = self.memory
  self.due = self.due or trainer.step % memory.interval == 0
  if memory:is_busy() then memory:go_on(trainer) end
  if not self.due or memory:is_busy() or not snapshot.is_over(trainer) then return end
  self.due = false
  memory_checkpoint.settle(trainer) -- a hook that saves to a disk says how that went
  memory:start(trainer)
end

function NeighbourCheckpoint:after_train(trainer)
  self:settle(trainer)
  ranks.any(false) -- nobody removes what others still give names
end

--- The hook that saves.
function Memory:hook() return hooks.check(setmetatable({ memory = self }, NeighbourCheckpoint)) end

--- The run is over for good: removes what lies on this machine. Not collective.
function Memory:close() self.memory:forget() end

return neighbour_memory
