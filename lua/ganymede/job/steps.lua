--- A job whose ranks srun has started goes on with other ranks, inside its allocation of Slurm: `ganymede resize`.
--
--     steps.open { argv = words, folder = fn, parallel = t }   -- every rank; only in a step of srun it has an effect
--     steps.ask(live, id, request)                             -- rank 0: starts the ranks that come, or refuses
--     steps.give(state, before), steps.go()                    -- the ranks that train, together
--     steps.word "take"                                        -- the ranks that come, together
--     local status = steps.follow()                            -- what rank 0 of those before ends with
--     steps.last_size(folder)                                  -- the words that start a job of Slurm that is put back
--
-- There is no supervisor here, so rank 0 starts the ranks that come: `srun --overlap`, another step of the same job.
-- When they have taken over, the other old ranks end, and rank 0 stays as a process that waits: the step that the batch
-- script waits for must not end before the run does. Its exit status is that of the ranks that came.
-- Words are files of JSON in a folder RUN/resize-N, because the two sets of ranks may lie on different machines, which
-- share the folder of the run as they share its checkpoints:
--
--     waits-take (they are built)   take (path of the state)   waits-go (they have read it)   go   stay (end) failed
--
-- A change leaves RUN/resized.json, { job, ranks, sets }: a script whose job Slurm has put back, or whose ranks have
-- failed, asks for the ranks that it had (`ganymede resize RUN --last`), and they take up the settings that belong to
-- them. nodes in it: the machines on which they lie, where others have died (ganymede.job.batch_attempts).
--
-- The trap: who waits here asks the file system each 20 ms on rank 0, and all ranks exchange what is known each time,
-- so that no rank waits in an operation for longer than ranks wait for each other.
-- @module ganymede.job.steps
local command_line = require "ganymede.job.command_line"
local core = require "ganymede.core"
local elastic = require "ganymede.job.elastic"
local failure = require "ganymede.base.failure"
local fewer = require "ganymede.job.fewer"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local live = require "ganymede.job.live"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local ranks = require "ganymede.job.ranks"
local readable = require "ganymede.base.readable"
local run_events = require "ganymede.job.run_events"
local runs_folder = require "ganymede.job.runs_folder"

local steps = { VARIABLE = "GANYMEDE_RESIZE" }

local NAP = 0.02 -- seconds between two looks
local LIMIT = 600 -- seconds that a change may take, where the request does not say
local LEAVING = 10 -- seconds after which a step that should end is killed

local self -- of this process: what steps.open was given, and on rank 0 `change`, the change under way

--- The folder of words of the change by which these ranks come; nil: they do not take over.
function steps.folder() return os.getenv(steps.VARIABLE) end

--- Lets this job be changed, if srun has started it and it has no supervisor. about: argv (the words of its command
-- line), folder (a function that gives the path of the run's folder), parallel (its table, nil or "auto").
function steps.open(about)
  local started = launcher.started
  self = not (core.link_rank() or os.getenv "GANYMEDE_STANDBY") and started and started.by == "srun" and started.job
    and about or nil
  if not self then return end
  self.leaving, live.errand = {}, steps.errand
end

-- ---------------------------------------------------------------- words

local function read(folder, name)
  local text = machine.read(folder .. "/" .. name)
  return text and json.decode(text, name) or nil
end

local function write(folder, name, word) core.write_whole(folder .. "/" .. name, json.encode(word) .. "\n") end

local function forget(folder)
  for _, name in ipairs(core.list_folder(folder)) do os.remove(folder .. "/" .. name) end
  os.remove(folder)
end

-- Waits on all ranks until rank 0 has found something: look() -> a text, or nil -> the text; nil: a stop came.
local function agreed(look)
  while true do
    local found = ranks.is_first() and look() or ""
    local texts = ranks.texts((core.signals_stop_requested() and "stop" or "go on") .. "\n" .. found)
    for _, text in ipairs(texts) do
      if text:sub(1, 5) == "stop\n" then return nil end
    end
    local said = texts[1]:match "\n(.*)$"
    if said ~= "" then return said end
    core.sleep(NAP)
  end
end

-- ---------------------------------------------------------------- what a request may ask

-- "2(x3),1" -> the ranks that such machines hold, and how many machines these are. cores: of each rank.
local function places(text, cores)
  local sum, machines = 0, 0
  for part in text:gmatch "[^,]+" do
    local has, times = part:match "^(%d+)%(x(%d+)%)$"
    has, times = tonumber(has or part), tonumber(times or 1)
    if not has then return nil end
    sum, machines = sum + math.floor(has / cores) * times, machines + times
  end
  return sum, machines
end
steps.places = places

-- On how many machines of this job so many ranks lie; nil and why they have no room, as the end of a sentence.
local function machines_for(count)
  local text, cores = os.getenv "SLURM_JOB_CPUS_PER_NODE", tonumber(os.getenv "SLURM_CPUS_PER_TASK" or "") or 1
  local most, machines = places(text or "", cores)
  if not text or not most then
    return nil, ", and SLURM_JOB_CPUS_PER_NODE does not say how many more its machines hold"
  end
  if count > most then
    return nil, (", whose machines have room for %d rank%s (SLURM_JOB_CPUS_PER_NODE=%s, %d core%s each)"):format(most,
      most == 1 and "" or "s", text, cores, cores == 1 and "" or "s"), most
  end
  return math.min(machines, count)
end

-- Refuses a size that the allocation does not hold -> nil, why, and true: other machines would help.
local function room(count)
  local machines, why, most = machines_for(count)
  if machines then return machines end
  return nil, ("srun started its ranks, in job %s of Slurm%s%s"):format(launcher.started.job, why,
    most and ": ask for at most " .. most or ""), true
end

-- The settings of the ranks that come -> list of "key=value"; nil and why they cannot be.
local function settings(request)
  local sets, now = request.sets or {}, core.world()
  if #sets > 0 then return sets end
  if request.ranks == now then return nil, ("it has %d rank%s"):format(now, now == 1 and "" or "s") end
  local found, wrong = fewer.sets(self.parallel, now, request.ranks)
  return found, wrong and wrong .. "; --set parallel.KEY=... says how they share the work"
end

-- ---------------------------------------------------------------- rank 0 of the ranks that train

-- What an inner srun must not take over from the step in which it is started.
local outer = { "SLURM_NTASKS_PER_NODE", "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST",
  "SLURM_CPU_BIND_VERBOSE", "SLURM_DISTRIBUTION", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS" }

-- The words of srun for so many ranks of a job, behind `env`. more: a variable that they get, or nil; nodes: the names
-- of the machines, nil: the first ones of the job.
local function srun(job, count, machines, more, nodes)
  local words = { "env" }
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  for _, name in ipairs(outer) do add("-u", name) end
  if more then add(more) end
  add("srun", "--overlap", "--jobid=" .. job, "--nodes=" .. machines,
    nodes and "--nodelist=" .. table.concat(nodes, ",") or "--relative=0", "--ntasks=" .. count)
  local cores = os.getenv "SLURM_CPUS_PER_TASK"
  if cores then add("--cpus-per-task=" .. cores) end
  return words
end

-- The words that start the ranks that come. Their output goes where that of rank 0 goes.
local function command(folder, count, machines, sets)
  local pid = core.process().pid
  local words = { "sh", "-c", ('exec "$@" >>/proc/%d/fd/1 2>>/proc/%d/fd/2'):format(pid, pid), "sh" }
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  add(unpack(srun(launcher.started.job, count, machines, steps.VARIABLE .. "=" .. folder)))
  if launcher.started.pmix then add "--mpi=pmix" end
  add(core.executable(), unpack(command_line.without_beginnings(self.argv)))
  add("-n", tostring(count), "--out", self.folder(), "--takes-over")
  for _, text in ipairs(sets) do add("--set", text) end
  return words
end

local number = 0 -- of the last change

-- Makes a folder of words that nobody has had. Ranks that were killed leave theirs, and a rank 0 before this one may
-- wait on another machine, with the number of this process. Their words would be taken for those of this change.
local function make_folder()
  local folder
  repeat
    number = number + 1
    folder = ("%s/resize-%d"):format(core.real_path(self.folder()), core.process().pid * 1000 + number)
  until not core.real_path(folder)
  core.make_new_folder(folder)
  return folder
end

-- Starts the ranks that come -> the change.
local function start(id, request, machines, sets)
  local folder = make_folder()
  self.run = self.run or runs_folder.supervise(self.folder()) -- nil: it is held by who started these ranks
  local limit = request.limit or LIMIT
  return { id = id, number = number, folder = folder, ranks = request.ranks, batch = request.batch, sets = sets,
    limit = limit, began = core.now(), ends = core.now() + limit,
    program = core.program_start(command(folder, request.ranks, machines, sets), "/dev/null") }
end

--- Serves a request: refuses it, or starts the ranks that come and answers when they have taken over. Rank 0 alone.
function steps.ask(id, request)
  local function refuse(why, beyond)
    live.answer(id, json.encode { refused = readable(why), beyond = beyond })
  end
  local wrong = elastic.problem(request)
  if wrong then return refuse(wrong) end
  if os.getenv "GANYMEDE_STANDBY" then return refuse "ranks stand by in this job (--standby), whose number stays" end
  if not self then return refuse "only a supervisor, or rank 0 of ranks that srun has started, can start others" end
  if self.change then return refuse "another resize of this job is under way" end
  if not live.run_folder() then return refuse "it has not begun to train, or it has no folder (--out)" end
  local machines, why, beyond = room(request.ranks)
  if not machines then return refuse(why, beyond) end
  local sets
  sets, why = settings(request)
  if not sets then return refuse(why) end
  local ok, made = failure.try(start, id, request, machines, sets)
  if not ok then return refuse(failure.text(made)) end
  self.change = made
  log.info("resize: srun starts %d ranks beside these", request.ranks)
end

-- Looks after the ranks of changes that were refused. Training does not wait for their end.
local function see_off()
  for i = #self.leaving, 1, -1 do
    local change = self.leaving[i]
    change.ended = change.ended or change.program:ended()
    if change.ended or core.now() > change.until_ then
      change.program:signal "kill"
      forget(change.folder)
      table.remove(self.leaving, i)
    end
  end
end

-- Ends the ranks that come, answers, and goes on.
local function refuse_change(why)
  local change = self.change
  self.change, change.until_ = nil, core.now() + LEAVING
  pcall(write, change.folder, "stay", {})
  change.program:signal "terminate"
  table.insert(self.leaving, change)
  log.warn("resize to %d ranks: refused, the job goes on: %s", change.ranks, why)
  live.answer(change.id, json.encode { refused = readable(why) })
end

-- Why the ranks that come cannot come any more; nil: they may.
local function lost(change)
  change.ended = change.ended or change.program:ended()
  if change.ended then
    local said = read(change.folder, "failed")
    return said and said.text or ("the step of the new ranks ended with status %d; what they printed is in the output "
      .. "of this job"):format(change.ended)
  end
  if core.now() > change.ends then return ("it was not done within %g seconds (--limit)"):format(change.limit) end
end

--- What a change has for the ranks that train, as the text of a request; nil: nothing. Rank 0 alone.
function steps.errand()
  see_off()
  local change = self.change
  if not change then return nil end
  local why = lost(change)
  if why then return refuse_change(why) end
  if not change.built then
    if not core.is_file(change.folder .. "/waits-take") then return nil end
    change.built = core.now()
  end
  return json.encode { kind = "give", id = change.number, ranks = change.ranks, by_files = true, batch = change.batch }
end

-- ---------------------------------------------------------------- a job that is put back

local SIZE = "resized.json"

-- What changes have made of the ranks of this job of Slurm: { ranks, sets }; nil: nothing, or it was another job.
local function sizes_of(folder, job)
  local ok, found = failure.try(read, folder, SIZE)
  if not (ok and type(found) == "table" and found.job == job and type(found.ranks) == "number"
    and type(found.sets) == "table") then return nil end
  return found
end

-- Writes down what a change has made of them. Settings of the changes before it stay, except
-- those of the same keys.
local function keep_size(folder, job, change, nodes)
  local before = sizes_of(folder, job)
  local sets = command_line.settings(before and before.sets or {}, change.sets)
  write(folder, SIZE, { job = job, ranks = change.ranks, sets = json.array(sets), nodes = nodes and json.array(nodes) })
end

--- Lets the next ranks of a job of Slurm be so many, on these machines of it. world: ranks, sets (list of "key=value").
function steps.place(folder, world, nodes) keep_size(folder, os.getenv "SLURM_JOB_ID", world, nodes) end

--- The words that start the ranks of a job of Slurm, for its script: those of the last change, where this allocation
-- holds them; else plain srun -> the words; why not as many as before, or nil.
function steps.last_size(folder)
  local job = os.getenv "SLURM_JOB_ID"
  local found = job and sizes_of(folder, job)
  if not found then return { "srun" } end
  if type(found.nodes) == "table" then return srun(job, found.ranks, #found.nodes, nil, found.nodes) end
  local machines, why = machines_for(found.ranks)
  if machines then return srun(job, found.ranks, machines) end
  return { "srun" }, ("the run had %d ranks in job %s of Slurm%s: it goes on with those of its script"):format(
    found.ranks, job, why)
end

--- The settings of the last change of a job of Slurm, if this step has as many ranks; nil: there are none.
function steps.last_sets(folder, world)
  local found = os.getenv "SLURM_JOB_ID" and sizes_of(folder, os.getenv "SLURM_JOB_ID")
  return found and found.ranks == world and found.sets or nil
end

-- Answers who asked, and notes the change where others look for it.
local function conclude(state)
  local change, folder = self.change, live.run_folder()
  local answer = { step = state.step, before = core.world(), ranks = change.ranks, built = change.built - change.began,
    paused = core.now() - state.at, saved = change.saved - state.at, read = core.now() - change.saved, place = "disk",
    sets = json.array(change.sets), batch = change.batch }
  keep_size(folder, launcher.started.job, change)
  run_events.append(folder .. "/requests.jsonl", { kind = "resize", step = answer.step, before = answer.before,
    ranks = answer.ranks, paused = answer.paused, sets = answer.sets, failed = false })
  run_events.note(folder, { event = "resize", step = answer.step, seconds = answer.paused, before = answer.before,
    ranks = answer.ranks, built = answer.built, saved = answer.saved, read = answer.read })
  live.answer(change.id, json.encode(answer))
end

--- Offers the state to the ranks that come -> whether they have it; otherwise training goes on. state: path, or failed;
-- step; at (when training stopped). Collective.
function steps.give(state)
  local change = ranks.is_first() and self.change
  if change and not state.failed then
    change.saved = core.now()
    write(change.folder, "take", { path = state.path, before = core.world() })
  end
  local why = "the job was asked to stop"
  local said = agreed(function()
    why = state.failed or lost(change)
    if why then return "stay" end
    return core.is_file(change.folder .. "/waits-go") and "yield" or nil
  end)
  if change and said ~= "yield" then refuse_change(why or "the job was asked to stop") end
  if change and said == "yield" then conclude(state) end
  return said == "yield"
end

--- Lets the ranks that came begin: the folder of the run is theirs. Collective.
function steps.go()
  self.left = true
  if ranks.is_first() then write(self.change.folder, "go", { closed = true }) end
end

--- Whether the run goes on in ranks that this job has started.
function steps.left() return self ~= nil and self.left == true end

--- Ends a change that is under way when the run ends, and what earlier ones have left.
function steps.close()
  if not self then return end
  if self.change and not self.left then refuse_change "the job has ended" end
  while #self.leaving > 0 do
    see_off()
    pcall(core.sleep, NAP)
  end
end

-- Passes a stop on to the step of the ranks that came.
local function pass_on(change, name)
  os.execute(("scancel --signal=%s %s.%s"):format(name == "interrupt" and "INT" or "TERM", launcher.started.job,
    change.step))
end

-- The stop that is to be passed on now, or nil. SIGTERM is passed on once, also one that came before the ranks left.
local function stop_for(change)
  local name = launcher.nap(5 * NAP)
  if name == "interrupt" then return name end
  if change.terminated or not (name or core.signals_stop_requested()) then return nil end
  change.terminated = true
  return "terminate"
end

--- Leaves the ranks before, and waits on rank 0 for the end of those that came -> the exit status. It is called where
-- stops raise no errors any more and are still heard, so that none is lost, and none ends this process.
function steps.follow()
  launcher.leave(0)
  local change = self.change
  if not change then return 0 end
  change.step = (read(change.folder, "waits-go") or {}).step
  collectgarbage()
  local status = change.ended
  while not status do
    local name = stop_for(change)
    if name and change.step then pass_on(change, name) end
    status = change.program:ended()
  end
  forget(change.folder)
  return status
end

-- ---------------------------------------------------------------- the ranks that come

--- Says that these ranks wait for a word, and waits for it -> the word; nil: they are to end. Collective.
function steps.word(kind)
  local folder = steps.folder()
  if ranks.is_first() then write(folder, "waits-" .. kind, { step = os.getenv "SLURM_STEP_ID" }) end
  local said = agreed(function()
    if core.is_file(folder .. "/stay") then return "{\"kind\":\"stay\"}" end
    return machine.read(folder .. "/" .. kind)
  end)
  local word = said and json.decode(said, kind)
  return word and word.kind ~= "stay" and word or nil
end

--- Tells those that train why these ranks end before they have taken over. The first to say it counts.
function steps.fail(text)
  local path = steps.folder() .. "/failed"
  if core.is_file(path) then return end
  pcall(write, steps.folder(), "failed", { text = readable(text) })
end

return steps
