--- CheckpointHook: a checkpoint every `interval` steps and at the end; snapshot.lua says what it holds.
--
-- A checkpoint is written in the background, from a copy; the next one, and the end of the run, wait for it. One
-- that the system refuses costs nothing but itself: it is said, older ones are as they were, and training goes on.
-- The exception is the last: a run whose final state could not be saved ends with status 1.
local base = require "ganymede.hooks.base"
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local snapshot = require "ganymede.checkpoint.snapshot"

local CheckpointHook = base.class("CheckpointHook", {
  interval = { type = "integer", min = 1, optional = true, doc = "optimizer steps; default: the end of each epoch" },
  keep_last = { type = "integer", min = 1, default = 3, doc = "older checkpoints are deleted" },
  directory = { type = "string", optional = true, doc = "default: checkpoints in the run's folder" },
  background = { type = "boolean", default = true, doc = "write while training goes on, from a copy?" },
}, { priority = 20, needs_output = false, needs_loss = false }) -- after hooks whose state it saves

local function warn(fmt, ...)
  if core.rank() == 0 then log.warn(fmt, ...) end
end

-- Waits for the save under way, if there is one, and takes note of one that failed. at_end: the last step's is not
-- said here, since it ends the run.
function CheckpointHook:settle(trainer, at_end)
  local path, message, kind, step = snapshot.finish(trainer)
  if path or not message then return end
  self.failed = (self.failed or 0) + 1
  self.last_failure = { step = step, message = message, kind = kind }
  if at_end and step == trainer.step then return end
  warn("the checkpoint of step %d could not be saved, training goes on: %s", step, message)
end

function CheckpointHook:save(trainer, at_end)
  if self.saved == trainer.step then return end
  local directory = self.opt.directory or (trainer.checkpoint_directory and trainer.checkpoint_directory())
  if not directory then error("CheckpointHook: where to? give directory, or the run a folder (--out)", 0) end
  self:settle(trainer)
  local background = snapshot.start(trainer, directory, { keep_last = self.opt.keep_last,
    background = self.opt.background })
  if self.opt.background and not background and not self.said_foreground then
    self.said_foreground = true
    warn("no memory for a copy of what a checkpoint holds: it is written while training waits")
  end
  if not background then self:settle(trainer, at_end) end
  self.saved = trainer.step
end

function CheckpointHook:before_train(trainer) self.saved = trainer.step end -- nothing new to save

function CheckpointHook:after_train_iter(trainer)
  local interval = self.opt.interval
  if interval and trainer.step % interval == 0 then self:save(trainer) end
end

function CheckpointHook:after_train_epoch(trainer)
  if not self.opt.interval then self:save(trainer) end
end

function CheckpointHook:after_train(trainer)
  self:save(trainer, true)
  self:settle(trainer, true)
  local last = self.last_failure
  if not last then return end
  if last.step == trainer.step then
    checkpoint.raise(("the final checkpoint, of step %d, could not be saved: %s"):format(last.step, last.message),
      last.kind)
  end
  warn("%d checkpoint%s of this run could not be saved, the last of them of step %d: %s", self.failed,
    self.failed == 1 and "" or "s", last.step, last.message)
end

return CheckpointHook
