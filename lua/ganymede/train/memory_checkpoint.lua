--- Checkpoints in memory: `run --memory-checkpoint K` (ganymede.job.attempts).
--
--     table.insert(trainer.hooks, memory_checkpoint.hook { folder = "/dev/shm/...", interval = 10 })
--
-- Every K steps the state of the run is saved into a folder in memory that belongs to the supervisor, so that it is
-- there when a rank has died. It is a checkpoint like others, of which one is kept. It is written in the background,
-- from a copy. While a checkpoint is still being written to a disk, the one in memory waits for the next step; training
-- waits for neither.
-- @module ganymede.train.memory_checkpoint
local hooks = require "ganymede.hooks.base"
local log = require "ganymede.base.log"
local ranks = require "ganymede.job.ranks"
local snapshot = require "ganymede.checkpoint.snapshot"

local memory_checkpoint = {}

--- Waits for the save under way, and lets its hook say if it failed. Collective.
function memory_checkpoint.settle(trainer)
  for i = #trainer.hooks, 1, -1 do
    local hook = trainer.hooks[i]
    if hook.saves and hook.settle then hook:settle(trainer) end
  end
  snapshot.finish(trainer)
end

local MemoryCheckpoint = { name = "MemoryCheckpoint", priority = 30, needs_output = false, needs_loss = false,
  saves = true }
MemoryCheckpoint.__index = MemoryCheckpoint

-- Waits for the save under way if it is one of these. A failure is said once.
function MemoryCheckpoint:settle(trainer)
  if not snapshot.is_passing(trainer) then return end
  local path, message = snapshot.finish(trainer)
  if path or not message or self.told then return end
  self.told = true
  if ranks.is_first() then log.warn("--memory-checkpoint: memory does not take the state: %s", message) end
end

function MemoryCheckpoint:after_train_iter(trainer)
  self.due = self.due or trainer.step % self.interval == 0
  if not self.due or not snapshot.is_over(trainer) then return end
  self.due = false
  memory_checkpoint.settle(trainer)
  snapshot.start(trainer, self.folder, { keep_last = 1, background = true, passing = true })
end

function MemoryCheckpoint:after_train(trainer) self:settle(trainer) end

--- The hook that saves. opt: folder, interval (steps).
function memory_checkpoint.hook(opt)
  return hooks.check(setmetatable({ folder = opt.folder, interval = opt.interval }, MemoryCheckpoint))
end

return memory_checkpoint
