--- Whether ranks that a batch script has started begin again after a failure: `ganymede slurm --max-restarts`.
--
-- A batch script has no supervisor beside it that hears of the ranks. After each end of the ranks it asks, and what is
-- known between two questions is in RUN/attempts.json. The law is that of ganymede.job.restarts; what it wants to know
-- is read from the run's folder: the newest checkpoint, on the disk or in memory (ganymede.job.memory_file), and
-- whether metrics.jsonl has grown. The number of ranks stays, unless machines of the allocation have died: with
-- --min-ranks the ranks go on with those that are left, by the law of ganymede.job.fewer. Which numbers of ranks fit,
-- rank 0 writes into RUN/fewer.json when training begins, because the script does not run the recipe.
-- @module ganymede.job.batch_attempts
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local fewer = require "ganymede.job.fewer"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local memory_file = require "ganymede.job.memory_file"
local restarts = require "ganymede.job.restarts"
local runs_folder = require "ganymede.job.runs_folder"
local slurm_nodes = require "ganymede.job.slurm_nodes"
local steps = require "ganymede.job.steps"

local batch = {}

local function bytes_of(path)
  local file = io.open(path)
  local size = file and file:seek "end" or 0
  if file then file:close() end
  return size
end

-- What the folder shows now.
local function seen(folder)
  local memory = memory_file.read(folder)
  return { reached = math.max(runs_folder.newest_step(folder .. "/checkpoints"), memory and memory.step or 0),
    bytes = bytes_of(folder .. "/metrics.jsonl") }
end

local function path_of(folder) return folder .. "/attempts.json" end

local function write(folder, known) core.write_whole(path_of(folder), json.encode(known) .. "\n") end

--- Begins a count of attempts: the script has been started, and nothing has failed.
function batch.begin(folder)
  local known = seen(folder)
  known.history = json.array {}
  write(folder, known)
end

local function read(folder)
  local text = machine.read(path_of(folder))
  local known = text and json.decode(text, path_of(folder))
  if type(known) ~= "table" or type(known.history) ~= "table" then
    failure(2, "%s has no attempts of a script that `ganymede slurm --max-restarts` made", path_of(folder))
  end
  return known
end

-- ---------------------------------------------------------------- machines that have died

local function fewer_path(folder) return folder .. "/fewer.json" end

--- Writes down which smaller numbers of ranks fit. about: folder, parallel (its table, nil or "auto"), least. Rank 0
-- alone, when training begins.
function batch.tell(about)
  local worlds, why = fewer.worlds(about.parallel, core.world(), about.least)
  core.write_whole(fewer_path(about.folder), json.encode { world = core.world(), worlds = json.array(worlds),
    why = why } .. "\n")
end

-- The largest number of ranks that fits into so many places -> { ranks, sets }; nil and why there is none.
local function smaller(folder, places)
  local text = machine.read(fewer_path(folder))
  if not text then return nil, "the ranks had not begun to train, so it is not known how fewer would share the work" end
  local known = json.decode(text, fewer_path(folder))
  if known.world <= places then return { ranks = known.world, sets = {} } end
  for _, world in ipairs(known.worlds) do
    if world.ranks <= places then return world end
  end
  return nil, ("the other machines have %d places for ranks, and no smaller number fits%s"):format(places,
    known.why and " (" .. known.why .. ")" or "")
end

-- Lets the next ranks leave out machines that have died -> true; nil and why they cannot. ranks: of the script; nodes:
-- machines of the script.
local function leave_out_dead(folder, ranks, nodes)
  local alive, dead = slurm_nodes.look()
  if not alive or #dead == 0 then return true end
  local on_each = ranks / nodes
  local world, why = smaller(folder, #alive * on_each)
  if not world then return nil, ("%s died, %s"):format(table.concat(dead, ", "), why) end
  local names = {}
  for i = 1, math.ceil(world.ranks / on_each) do names[i] = alive[i] end
  steps.place(folder, world, names)
  return true
end

--- Takes up that the ranks have ended with this status -> seconds to wait before they are started again; or nil and why
-- they are not. limits: most (attempts in a row without progress), delay (seconds), nodes (machines of the script, if
-- the ranks may go on without some).
function batch.ended(folder, status, ranks, limits)
  local known, now = read(folder), seen(folder)
  local history = known.history
  -- a script hears no words: two errors in a row are taken for the same one
  history[#history + 1] = { ranks = ranks, status = status, text = "", reached = now.reached,
    began = now.bytes > known.bytes and known.reached or nil }
  known.reached, known.bytes = now.reached, now.bytes
  write(folder, known)
  local plan, why = restarts.next(history, { most = limits.most, delay = limits.delay })
  if not plan then return nil, why end
  if limits.nodes then
    local ok
    ok, why = leave_out_dead(folder, ranks, limits.nodes)
    if not ok then return nil, why end
  end
  return plan.delay
end

return batch
