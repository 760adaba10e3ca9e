--- CheckpointHook: a checkpoint every `interval` steps and at the end; snapshot.lua says what it holds.
local base = require "ganymede.hooks.base"
local snapshot = require "ganymede.snapshot"

local CheckpointHook = base.class("CheckpointHook", {
  interval = { type = "integer", min = 1, optional = true, doc = "optimizer steps; default: the end of each epoch" },
  keep_last = { type = "integer", min = 1, default = 3, doc = "older checkpoints are deleted" },
  directory = { type = "string", optional = true, doc = "default: checkpoints in the run's folder" },
}, { priority = 20, needs_output = false }) -- after hooks whose state it saves

function CheckpointHook:save(trainer)
  if self.saved == trainer.step then return end
  local directory = self.opt.directory or (trainer.checkpoint_directory and trainer.checkpoint_directory())
  if not directory then error("CheckpointHook: where to? give directory, or the run a folder (--out)", 0) end
  trainer.states.checkpoint = snapshot.save(trainer, directory, { keep_last = self.opt.keep_last })
  trainer.states.checkpoint_step, self.saved = trainer.step, trainer.step
end

function CheckpointHook:before_train(trainer) self.saved = trainer.step end -- nothing new to save

function CheckpointHook:after_train_iter(trainer)
  local interval = self.opt.interval
  if interval and trainer.step % interval == 0 then self:save(trainer) end
end

function CheckpointHook:after_train_epoch(trainer)
  if not self.opt.interval then self:save(trainer) end
end

function CheckpointHook:after_train(trainer) self:save(trainer) end

return CheckpointHook
