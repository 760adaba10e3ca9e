--- CheckpointHook saves a checkpoint every `interval` steps and at the end; snapshot.lua says what a checkpoint holds.
--
-- A checkpoint is written in the background, from a copy. The next one, and the end of the run, wait for it. If it
-- cannot be written, a warning says so, older checkpoints stay as they were, and training goes on. The last one is an
-- exception: a run whose final state could not be saved ends with status 1. With `best` an evaluation that is better
-- than all before it saves, too, and that checkpoint stays beside the last ones until the save after a better one.
local base = require "ganymede.hooks.base"
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local progress = require "ganymede.hooks.progress"
local ranks = require "ganymede.job.ranks"
local restarts = require "ganymede.job.restarts"
local runs_folder = require "ganymede.job.runs_folder"
local snapshot = require "ganymede.checkpoint.snapshot"

local CheckpointHook = base.class("CheckpointHook", {
  interval = { type = "integer", min = 1, optional = true,
    doc = "the number of optimizer steps between checkpoints; default: one at the end of each epoch" },
  keep_last = { type = "integer", min = 1, default = 3,
    doc = "the number of checkpoints that are kept; older ones are deleted" },
  best = { type = "string", optional = true,
    doc = "the name of a metric of evaluation, such as loss: the checkpoint with its best value is kept, too" },
  mode = progress.mode,
  directory = { type = "string", optional = true,
    doc = "the folder of the checkpoints; default: checkpoints in the run's folder" },
  background = { type = "boolean", default = true,
    doc = "whether checkpoints are written from a copy in memory while training goes on" },
}, { priority = 20, needs_output = false, needs_loss = false, saves = true, -- after hooks whose state it saves
  adds_metrics = false })

function CheckpointHook:build(opt)
  if opt.mode and not opt.best then
    error("CheckpointHook: mode is for best, the metric by which a checkpoint is kept; give best, too", 0)
  end
  self.sign = opt.best and progress.sign(opt.best, opt.mode)
end

function CheckpointHook:after_hook_is_attached(trainer)
  if self.opt.best then base.refuse_unmeasured(self, trainer, self.opt.best) end
end

local function warn(fmt, ...)
  if core.rank() == 0 then log.warn(fmt, ...) end
end

-- Waits for the save that is under way, if there is one, and warns if it failed. at_end: there is no warning about the
-- save of the last step, because its failure ends the run.
function CheckpointHook:settle(trainer, at_end)
  if snapshot.is_passing(trainer) then return snapshot.finish(trainer) and nil end -- another's
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
  if not directory then
    error("CheckpointHook: there is no folder for checkpoints; give directory, or a folder for the run (--out)", 0)
  end
  self:settle(trainer)
  local background, saving = snapshot.start(trainer, directory, { keep_last = self.opt.keep_last,
    spared = self.best_step, background = self.opt.background })
  if self.opt.background and not (background or saving.message or self.said_foreground) then
    self.said_foreground = true
    warn("there is no memory for a copy of the checkpoint: training waits while it is written")
  end
  if not background then self:settle(trainer, at_end) end
  self.saved = trainer.step
end

function CheckpointHook:before_train(trainer)
  self.saved = trainer.step -- nothing new to save
  local directory = trainer.step == 0 and self.opt.directory
  if directory then ranks.from_first(function() runs_folder.refuse_older(nil, directory) end) end
end

function CheckpointHook:after_train_iter(trainer)
  local interval = self.opt.interval
  if interval and trainer.step % interval == 0 then self:save(trainer) end
end

function CheckpointHook:after_train_epoch(trainer)
  if not self.opt.interval then self:save(trainer) end
end

function CheckpointHook:after_test(trainer)
  local metric = self.opt.best
  local value = metric and progress.value(self, trainer, metric)
  if not value or not progress.is_better(self.sign, value, self.best, 0) then return end
  self.best, self.best_step = value, trainer.step
  self:save(trainer)
end

--- The best value of another metric says nothing of this one.
function CheckpointHook:title() return self.opt.best and ("%s %s"):format(self.name, self.opt.best) or self.name end

function CheckpointHook:state() return self.best and { best = self.best, best_step = self.best_step } end

function CheckpointHook:load_state(state) self.best, self.best_step = state.best, state.best_step end

function CheckpointHook:after_train(trainer)
  self:save(trainer, true)
  self:settle(trainer, true)
  if self.best then
    trainer:say(("the best %s was %.4g; its checkpoint is that of step %d"):format(self.opt.best, self.best,
      self.best_step))
  end
  local last = self.last_failure
  if not last then return end
  if last.step == trainer.step then
    checkpoint.raise((restarts.UNSAVED .. ": %s"):format(last.step, last.message), last.kind)
  end
  warn("%d checkpoint%s of this run could not be saved, the last of them that of step %d: %s", self.failed,
    self.failed == 1 and "" or "s", last.step, last.message)
end

return CheckpointHook
