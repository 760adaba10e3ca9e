--- How ranks hand the state of a run over to others while it goes on: `ganymede resize`, on the ranks.
--
--     handover.give(trainer, request)      -- on the ranks that train, at the border of a step
--     handover.take(trainer)               -- on the ranks that come, which are prepared for training
--
-- ganymede.job.elastic says who waits for whom. What is handed over is a checkpoint of the run, so that the ranks that
-- come may share the work in another way: position of the data, random numbers, optimizer, scheduler, loss scale and
-- the states of hooks are in it (ganymede.checkpoint.snapshot). It goes through memory. Where memory has no room, it
-- goes through the folder of the checkpoints, and stays there as one of them.
-- Words come from the supervisor as lines of JSON, to each rank for itself. The trap: whoever waits here hears
-- nothing of other ranks but through the supervisor, and a stop ends the wait.
-- @module ganymede.train.handover
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local memory_checkpoint = require "ganymede.train.memory_checkpoint"
local ranks = require "ganymede.job.ranks"
local snapshot = require "ganymede.checkpoint.snapshot"
local spares = require "ganymede.job.spares"
local steps = require "ganymede.job.steps"
local StepLoader = require "ganymede.train.step_loader"
local tensor = require "ganymede.tensor"

local handover = {}

-- Waits for a word of the supervisor: kind, and id if one is given; others are old -> the word; nil: a stop came, or
-- the supervisor is gone.
local function word_of(kinds, id)
  core.link_ready(-1)
  while true do
    local _, text = core.link_read()
    if type(text) ~= "string" then return nil end
    local word = json.decode(text, "the word of the supervisor")
    if kinds[word.kind] and word.id == id then return word end
  end
end

-- ---------------------------------------------------------------- the ranks that train

-- Saves the state into a folder -> its path; or nil and why not, the same on all ranks.
local function save(trainer, directory, opt)
  local ok, err = pcall(snapshot.start, trainer, directory, opt)
  if not ok then
    if not (core.world() == 1 or ranks.agreed(err)) then error(err, 0) end
    return nil, failure.text(err)
  end
  return snapshot.finish(trainer)
end

-- Saves the state where there is room for it -> { path, place } or { failed }.
local function saved(trainer, folder)
  memory_checkpoint.settle(trainer)
  local path, wrong
  if folder then
    path, wrong = save(trainer, folder, { keep_last = 1, background = false, passing = true })
    if path then return { path = path, place = "memory" } end
    if ranks.is_first() then
      log.warn("resize: memory does not take the state, which goes over the folder of the checkpoints: %s", wrong)
    end
  end
  local directory = trainer.checkpoint_directory and trainer.checkpoint_directory()
  if not directory then return { failed = wrong or "there is no place for the state" } end
  path, wrong = save(trainer, directory, { background = false })
  return path and { path = path, place = "disk" } or { failed = wrong }
end

local function ended(trainer, request)
  trainer.left = true
  ranks.fail(75, "%d ranks go on after step %d", request.ranks, trainer.step)
end

-- Gives up what the run has. A change of the batch is noted while the folder is still this run's.
local function leave(trainer, request)
  if request.about then trainer.batching:note(request.about) end
  if trainer.leave then trainer.leave() end
end

-- Answers the supervisor, and ends this rank when the ranks that come have the state.
local function give_by_words(trainer, request, state)
  if ranks.is_first() then core.link_answer(0, json.encode(state)) end
  local word = word_of({ yield = true, leave = true, stay = true }, request.id)
  if word and word.kind == "yield" then
    leave(trainer, request)
    word = word_of({ leave = true }, request.id)
  end
  if word and word.kind == "leave" then
    ended(trainer, request)
  end
end

-- The same without a supervisor, by words in files.
local function give_by_files(trainer, request, state)
  if not steps.give(state) then return end
  leave(trainer, request)
  steps.go()
  ended(trainer, request)
end

-- The state, with another batch where one is asked for -> as `saved` gives it; a function that undoes the change.
local function state_for(trainer, request)
  if not trainer then return { failed = "this training loop is the recipe's own" } end
  if not request.batch then return saved(trainer, request.folder) end
  if not trainer.batching then return { failed = "the recipe has no adaptive_batch, so its batch stays" } end
  local undo, about = trainer.batching:try(request.batch)
  if not undo then return { failed = about } end
  request.about = about
  return saved(trainer, request.folder), undo
end

--- Gives the state of the run to the ranks that come, and ends this rank when they have it. Returns if they do not
-- come: training goes on as it was. request: id, folder (in memory, or nil), ranks, batch (with which the run goes on,
-- or nil); by_files: no supervisor speaks, but ganymede.job.steps. Collective.
function handover.give(trainer, request)
  local began = core.now()
  local state, undo = state_for(trainer, request)
  state.id, state.step, state.at = request.id, trainer and trainer.step, began
  local give = request.by_files and give_by_files or give_by_words
  give(trainer, request, state)
  if not undo then return end
  undo()
  if state.place == "disk" then saved(trainer) end -- the checkpoint that stays is one of this run as it goes on
end

-- ---------------------------------------------------------------- the ranks that come

-- Makes the passes of a step and forgets what came of them. A step that was given up leaves nothing, in the layers
-- either (Engine:announce); buffers that it has moved are restored with the rest. What chooses or records in its first
-- step is left alone.
local function rehearse_step(trainer)
  local engine, loader = trainer.engine, trainer.opt.train_dataloader
  if engine.graph or engine.tier or engine.regions_wanted then return end
  loader:set_epoch(0)
  engine:train()
  tensor.scope(function()
    local batches = loader:next_step(true)
    if not batches then return end
    StepLoader.announce(engine, batches)
    engine:forward_backward(batches, false)
  end)
  engine:zero_grad()
end

-- Rehearses how the state is taken up. Memory may have no room for that: then the pause is longer, and no more.
local function rehearse_state(trainer)
  local ok, err = pcall(snapshot.rehearse, trainer, (steps.folder() or core.job_folder()) .. "/checkpoints")
  if ok then return end
  if not ranks.agreed(err) then
    failure.let_stops_pass(err)
    if core.world() > 1 then error(err, 0) end -- others may wait for this rank
  end
  if ranks.is_first() then
    log.info("resize: how the state is taken up is not rehearsed, and training will pause for longer: %s",
      failure.text(err))
  end
end

local function stopped() failure(143, "stopped while it waited for the state of the job") end

--- Waits for the state of the run, takes it up, and waits until the job is this rank's -> how many ranks gave it, and
-- whether they have closed the run's folder (they have died otherwise). The ranks that give it wait meanwhile, so that
-- what can be done before is. Collective.
function handover.take(trainer)
  rehearse_step(trainer)
  local function await(kind)
    local word
    if steps.folder() then word = steps.word(kind) else word = word_of { [kind] = true } end
    return word or stopped()
  end
  rehearse_state(trainer)
  collectgarbage()
  local word = await "take"
  snapshot.restore(trainer, word.path)
  core.signals_stop_requested() -- from here on there is something to save: SIGTERM waits for the border of a step
  local go = await "go"
  return word.before, go.closed == true
end

--- Waits, prepared for training, until the ranks that train have died -> the word of ganymede.job.spares. The state is
-- not taken: the caller reads it from the memory of the machines. Collective.
function handover.stand_by(trainer)
  rehearse_step(trainer)
  collectgarbage()
  local ok, word = pcall(spares.await)
  if ok and word then return word end
  -- at the end of a job, too: nobody prints it, and the guards say it where it is a loss
  error(failure.new_peer(1, "ended while it stood by: " .. (ok and "its guard is gone" or failure.text(word))), 0)
end

return handover
