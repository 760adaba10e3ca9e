--- A job of several ranks whose number may change while it trains: `ganymede resize`.
--
--     local status, ended = elastic.run(args, known)      -- in the supervisor; ganymede.job.attempts calls it
--     elastic.CONTROL                                     -- the socket in the job's private folder that takes requests
--
-- A job is a sequence of sets of ranks, each with its own mesh. MPI cannot grow, so another set is started while the
-- one before trains on. Who waits for whom:
--
--     supervisor                          the ranks that train             the ranks that come
--     starts the ranks that come          train                            build the model, open the data, wait
--     give: to rank 0                     stop at the border of a step,
--                                         save their state in memory, wait
--     take: to all that come              wait                             read their boxes of it, wait
--     yield: to all that trained,         give up the run's folder,        open it, train
--     go: to all that came                wait
--     leave: to all that trained          end
--
-- Up to `yield` any failure of the ranks that come, or a limit of time, ends in `stay`: the ranks that train go on, and
-- who asked is told why. From the moment the state lies in memory, the ranks that come no longer need the others. It is
-- a checkpoint (ganymede.checkpoint) in a folder of mode 0700 in /dev/shm, which goes with the supervisor.
--
-- A request is JSON, { kind = "resize", ranks, sets (list of "key=value"), limit (seconds), batch (of the run from then
-- on, or nil: ganymede.train.adaptive_batch) }. Its answer is
-- { refused }, or { step, before, ranks, built, paused, saved, read (seconds), place }.
-- The trap: the ranks of both sets run at the same time. Only one set is asked for stops, and only it writes into the
-- run's folder.
local command_line = require "ganymede.job.command_line"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local fewer = require "ganymede.job.fewer"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local readable = require "ganymede.base.readable"
local run_events = require "ganymede.job.run_events"
local runs_folder = require "ganymede.job.runs_folder"

local elastic = { CONTROL = "control" }

local SELDOM, OFTEN, ALWAYS = 0.1, 0.02, 0.001 -- seconds of a look: while a job trains; is built; waits for another
local CALM = 1 -- seconds that ranks which should end leave to those that begin; they would take the cores from them
local LEAVING = 10 -- seconds after which ranks that should end are killed
local LIMIT = 600 -- seconds that a change may take, where the request does not say
local MOST = 512 -- ranks of a job

-- ---------------------------------------------------------------- sets of ranks

-- A set of ranks: { job, args, failed, idle, ended (the events that have come) }. silent: its failures are not told.
local function start(args, silent) return { job = launcher.start(args), args = args, silent = silent } end

-- Takes in what a set does, for so many seconds at most.
local function look(set, seconds)
  local event = set.job:wait(seconds)
  set[event] = true
  if event == "failed" and not set.silent then launcher.report(set.job) end
end

local function send(set, rank, words)
  set.idle = nil
  set.job:send(rank, 0, json.encode(words))
end

-- Why a set of ranks has ended, in its own words.
local function why(set)
  local first = set.job:first()
  if not first then return "they ended" end
  return (first.rank and ("rank %d: "):format(first.rank) or "") .. first.text
end

-- Looks after the sets that should end.
local function see_off(self)
  for i = #self.leaving, 1, -1 do
    local set = self.leaving[i]
    look(set, 0)
    if set.leave and core.now() > set.leave.after then
      send(set, nil, { kind = "leave", id = set.leave.id })
      set.leave = nil
    end
    if set.ended or core.now() > set.until_ then
      set.job:close()
      table.remove(self.leaving, i)
      self.set.job:hear(true) -- its end has limited the output of this process
    end
  end
end

local function let_end(self, set)
  set.silent, set.until_ = true, core.now() + LEAVING
  set.job:hear(false)
  table.insert(self.leaving, set)
end

-- Ends a set that does not train.
local function drop(self, set)
  set.job:terminate()
  let_end(self, set)
end

-- Takes in what rank 0 has told about its run: ganymede.job.attempts.
local function hear(self)
  local _, text = self.set.job:answer(0)
  if not text or text == self.heard then return end
  self.heard = text
  local ok, told = pcall(json.decode, text, "what rank 0 told") -- the rest of it may be on its way
  if not ok or told.id then return end -- an id: what was given for a change
  for key, value in pairs(told) do self.known[key] = value end
  self.told = told
  local keep = self.args.keep -- others see who starts ranks for this run while none of them is there
  keep.run = keep.run or told.folder and runs_folder.supervise(told.folder)
  if self.args.began then self.args.began(told) end
end

-- Takes requests in the private folder of the set. Without them the job runs as well.
local function open_control(self)
  local ok, made = failure.try(core.requests_open, self.set.job:folder() .. "/" .. elastic.CONTROL)
  if not ok then log.info("`ganymede resize` will not reach this job: %s", failure.text(made)) end
  self.control = ok and made or nil
end

-- ---------------------------------------------------------------- what a request may ask

-- What ranks can be told anew without changing what is trained.
local changeable = { parallel = true, zero = true, schedule = true, num_microbatches = true, recompute = true }

local function problem_of_sets(sets)
  if sets == nil then return nil end
  if type(sets) ~= "table" then return "sets is no list of texts" end
  for _, text in ipairs(sets) do
    local key = type(text) == "string" and text:match "^([%w_]+)[%w_.]*="
    if not changeable[key or ""] then
      return ("%s: only how ranks share the work can change while a job trains: keys of parallel and zero, schedule, "
        .. "num_microbatches, recompute"):format(tostring(text))
    end
  end
end

--- What is wrong with the form of a request; nil: nothing.
function elastic.problem(request)
  if type(request) ~= "table" or request.kind ~= "resize" then return "this is no request of `ganymede resize`" end
  local ranks, limit, batch = request.ranks, request.limit, request.batch
  if type(ranks) ~= "number" or ranks % 1 ~= 0 or ranks < 1 or ranks > MOST then
    return ("%s ranks: 1 to %d can be supervised"):format(tostring(ranks), MOST)
  end
  if limit ~= nil and not (type(limit) == "number" and limit > 0 and limit <= 86400) then
    return "limit is no number of seconds up to 86400"
  end
  if batch ~= nil and not (type(batch) == "number" and batch >= 1 and batch % 1 == 0) then
    return "batch is no number of samples"
  end
  return problem_of_sets(request.sets)
end

-- Whether the memory of the machine holds another set of ranks and a copy of the state; nil and what is missing.
local function has_memory(self)
  if not self.known.on_host then return true end
  local held, free = 0, machine.memory().available
  for rank = 0, self.set.args.ranks - 1 do
    local page = core.page_read(("%s/rank-%d"):format(self.set.job:folder(), rank))
    held = held + (page and page.live or 0)
  end
  if not free or 2 * held <= free then return true end
  return nil, ("the ranks hold %s; others beside them, and a copy of the state, need twice that, and the machine has "
    .. "%s"):format(machine.bytes(held), machine.bytes(free))
end

-- The settings of the ranks that come -> list of "key=value"; nil and why they cannot be.
local function settings(self, request)
  if not self.told then
    return nil, "it has not begun to train, or its training loop is the recipe's own, or it has no folder (--out)"
  end
  local sets, now = request.sets or {}, self.set.args.ranks
  if #sets == 0 and request.ranks == now then return nil, ("it has %d rank%s"):format(now, now == 1 and "" or "s") end
  local wrong
  if #sets == 0 then
    sets, wrong = fewer.sets(self.known.parallel, now, request.ranks)
    if not sets then return nil, wrong .. "; --set parallel.KEY=... says how they share the work" end
  end
  local room, missing = has_memory(self)
  if not room then return nil, missing end
  return sets
end

-- ---------------------------------------------------------------- the change

-- What the ranks that come are started with: of launcher.start, and `base`, the command line without what says that
-- they take over.
local function arguments(self, ranks, sets)
  local now = self.args
  local base = command_line.changed(command_line.without_beginnings(now.base), ranks, sets)
  return { base = base, argv = command_line.with(base, "--out", self.known.folder, "--takes-over"), ranks = ranks,
    threads = now.threads, quiet = true, timeout = now.timeout, spent = core.now() - self.began }
end

-- The folder in memory for the state; nil and why there is none.
local function memory(self)
  local keep = self.args.keep
  if not keep.folder then
    local ok, made = failure.try(core.folder_make, true, true)
    if not ok then return nil, failure.text(made) end
    keep.folder = made
  end
  return keep.folder:path() .. "/checkpoints"
end

-- Ends what only this change needed of the folder in memory.
local function forget_state(self)
  local keep = self.args.keep
  if keep.folder and not keep.stays then
    keep.folder:close()
    keep.folder = nil
  end
end

-- Answers others who ask while a change is under way.
local function put_off(self)
  self.control:look()
  local id = self.control:take()
  if id then self.control:answer(id, json.encode { refused = "another resize of this job is under way" }) end
end

-- Follows both sets until ready() -> true; or nil and why it cannot come any more. frozen: the state lies in memory.
local function await(self, change, pace, ready)
  local old, new = self.set, change.new
  while not ready() do
    look(new, pace)
    look(old, 0)
    see_off(self)
    put_off(self)
    if new.failed or new.ended then return nil, why(new) end
    if old.job:asked() then return nil, "the job was asked to stop" end
    if not change.frozen and (old.failed or old.ended) then return nil, "the job has ended: " .. why(old) end
    if core.now() > change.ends then
      return nil, ("it was not done within %g seconds (--limit)"):format(change.limit)
    end
  end
  return true
end

local number = 0 -- of the last change

-- The ranks that train have said what became of this change -> what they said.
local function given(self, id)
  local _, text = self.set.job:answer(0)
  local ok, said = pcall(json.decode, text or "", "what rank 0 gave")
  return self.set.idle and ok and said.id == id and said or nil
end

-- Has the ranks that train save their state and wait -> { step, at, path }; or nil and why there is none.
local function freeze(self, change)
  local folder, missing = memory(self)
  if missing then log.warn("resize: %s; the state goes over the folder of the checkpoints", missing) end
  change.asked = true
  send(self.set, 0, { kind = "give", id = change.id, folder = folder, ranks = change.new.args.ranks,
    batch = change.batch })
  local ok, wrong = await(self, change, ALWAYS, function() return given(self, change.id) end)
  local state = ok and given(self, change.id)
  if not state then return nil, wrong end
  if state.failed then return nil, state.failed end
  change.frozen = true
  return state
end

-- The ranks that came are the job from here on.
local function install(self, new)
  let_end(self, self.set)
  self.set, self.heard, self.told = new, nil, nil
  new.silent = false
  new.job:hear(true)
  for _, key in ipairs { "base", "argv", "ranks" } do self.args[key] = new.args[key] end
  open_control(self)
end

-- From the start of the ranks that come to `go` -> what was given; or nil and why it ended before.
local function exchange(self, change)
  local new = change.new
  local function is_idle() return new.idle end
  local ok, wrong = await(self, change, OFTEN, is_idle)
  if not ok then return nil, wrong end
  change.built = core.now()
  local state
  state, wrong = freeze(self, change)
  if not state then return nil, wrong end
  change.saved = core.now()
  send(new, nil, { kind = "take", path = state.path, before = self.set.args.ranks })
  ok, wrong = await(self, change, ALWAYS, is_idle)
  if not ok then return nil, wrong end
  change.read = core.now()
  send(self.set, nil, { kind = "yield", id = change.id })
  send(new, nil, { kind = "go", closed = not self.set.failed })
  return state
end

-- Until the ranks that came say that they train -> when they began; nil: they ended before.
local function await_begin(self)
  while not (self.told or self.set.ended) do
    look(self.set, ALWAYS)
    see_off(self)
    hear(self)
  end
  return self.told and self.told.at
end

-- Notes a change: what was asked where attach does so, too, and how long it took.
local function note(self, answer)
  local folder = self.known.folder
  run_events.append(folder .. "/requests.jsonl", { kind = "resize", step = answer.step, before = answer.before,
    ranks = answer.ranks, paused = answer.paused, sets = answer.sets, failed = false })
  run_events.note(folder, { event = "resize", step = answer.step, seconds = answer.paused, before = answer.before,
    ranks = answer.ranks, built = answer.built, saved = answer.saved, read = answer.read })
end

-- The answer to a sound request.
local function resize(self, request)
  local sets, wrong = settings(self, request)
  if not sets then return { refused = wrong } end
  number = number + 1
  local began, before = core.now(), self.set.args.ranks
  local ok, new = failure.try(start, arguments(self, request.ranks, sets), true)
  if not ok then return { refused = failure.text(new) } end
  new.job:hear(false)
  local change = { new = new, id = number, batch = request.batch, limit = request.limit or LIMIT,
    ends = began + (request.limit or LIMIT) }
  local state
  state, wrong = exchange(self, change)
  if not state then
    if change.asked then send(self.set, nil, { kind = "stay", id = change.id }) end
    drop(self, new)
    forget_state(self)
    log.warn("resize to %d ranks: refused, the job goes on: %s", request.ranks, wrong)
    return { refused = wrong }
  end
  local old = self.set
  install(self, new)
  local trained = await_begin(self)
  old.leave = { id = change.id, after = core.now() + CALM }
  forget_state(self)
  if not trained then return { refused = "the new ranks ended before their first step: " .. why(new) } end
  if self.spare then -- it shares the work as the old ones did
    drop(self, self.spare)
    self.spare = nil
  end
  local answer = { step = state.step, before = before, ranks = request.ranks, built = change.built - began,
    paused = trained - state.at, saved = change.saved - state.at, read = change.read - change.saved,
    place = state.place, sets = json.array(sets), batch = request.batch }
  note(self, answer)
  return answer
end

-- Answers a request. Why it was refused may be the words of a rank, which are any bytes.
local function answer(control, id, said)
  if said.refused then said.refused = readable(said.refused) end
  control:answer(id, json.encode(said))
end

-- Serves the oldest request, if one waits. What asked is answered through the socket it came from.
local function listen(self)
  local control = self.control
  if not control or control:look() == 0 then return end
  local id, text = control:take()
  if not id then return end
  local ok, request = pcall(json.decode, text, "the request")
  local wrong = not ok and "this is no request of `ganymede resize`" or elastic.problem(request)
  answer(control, id, wrong and { refused = wrong } or resize(self, request))
  if self.control ~= control then control:close() end
end

-- ---------------------------------------------------------------- ranks that stand by

-- No ranks stand by from here on: those that are started again would fail, too.
local function give_up_spare(self, reason)
  log.warn("--standby: the ranks that stood by are gone, and a death costs a start from here on: %s", reason)
  self.spare, self.no_spare = nil, true
end

-- Keeps a set of ranks that are built and wait. The job goes on without them where they cannot be started.
local function keep_spare(self)
  local spare = self.spare
  if not spare then
    if not self.args.standby or self.no_spare or not self.told then return end
    local ok, made = failure.try(start, arguments(self, self.set.args.ranks, {}), true)
    if not ok then return give_up_spare(self, failure.text(made)) end
    self.spare = made
    made.job:hear(false)
    return
  end
  look(spare, 0)
  if not (spare.failed or spare.ended) then return end
  drop(self, spare)
  give_up_spare(self, why(spare))
end

-- The newest checkpoint in memory -> its path, its step; nil: there is none.
local function newest_in_memory(self)
  local steps, paths = core.checkpoint_list(self.known.memory)
  if steps then return paths[#steps], steps[#steps] end
end

-- What became of a set.
local function outcome(self)
  local job = self.set.job
  return job:status(), { first = job:first(), asked = job:asked(), told = self.told, unwritten = job:output_error() }
end

-- Has the ranks that stand by go on in place of those that failed -> whether they do. Nobody writes any more into what
-- they read: the others are killed first.
local function replace(self)
  local old, spare = self.set, self.spare
  if not (spare and spare.idle) or old.job:asked() or not newest_in_memory(self) then return false end
  local status, ended = outcome(self)
  if not self.args.may_replace(status, ended) then return false end
  old.job:hear(false) -- a stop that comes now is for those that go on
  old.job:kill()
  while not old.ended do look(old, ALWAYS) end
  self.spare = nil
  local path, step = newest_in_memory(self)
  send(spare, nil, { kind = "take", path = path, before = old.args.ranks })
  while not (spare.idle or spare.failed or spare.ended) do look(spare, ALWAYS) end
  if not spare.idle then
    log.warn("--standby: %s", why(spare))
    drop(self, spare)
    return false
  end
  send(spare, nil, { kind = "go" })
  log.warn("the ranks that stood by go on, from the checkpoint of step %d in memory", step)
  self.args.replaced(status, ended)
  local control = self.control
  install(self, spare)
  if control then control:close() end
  await_begin(self)
  return true
end

-- ---------------------------------------------------------------- the job

local function watch(self)
  repeat
    look(self.set, SELDOM)
    hear(self)
    see_off(self)
    if self.set.failed then
      if not replace(self) and self.spare then
        drop(self, self.spare)
        self.spare = nil
      end
    elseif not (self.set.ended or self.set.job:asked()) then
      keep_spare(self)
      local comes = not self.told and self.known.at -- a run that goes on: its ranks are being built again
      if #self.leaving == 0 and not comes then listen(self) end
    end
  until self.set.ended
  hear(self)
  return outcome(self)
end

local function close(self)
  if self.control then self.control:close() end
  for _, set in ipairs(self.leaving) do set.job:close() end
  if self.spare then self.spare.job:close() end
  self.set.job:close()
end

--- Runs one job from its start to its end, over all changes of its ranks -> its exit status, and { first (failure, or
-- nil), asked (the stop, or nil), told (by its last ranks: ganymede.job.attempts), unwritten (why output was lost, or
-- nil) }. args: of launcher.start; base (the command line that the ranks of a change get); keep (a table whose `folder`
-- is the one in memory, and `run` the lock of ganymede.job.runs_folder: the caller closes both; stays: whether the
-- folder is wanted after a change); ranks, argv and base
-- change with the ranks; standby: whether a second set of ranks is kept, which takes the place of one that failed if
-- may_replace(status, what is returned) is true, and then replaced(the same) is called; began(told), or nil, is called
-- each time training begins. known: receives what rank 0 tells, and has `memory`, the folder of checkpoints in memory.
-- It is called in launcher.supervising.
function elastic.run(args, known)
  local self = { args = args, known = known, set = start(args), leaving = {}, began = core.now() - (args.spent or 0) }
  open_control(self)
  return failure.protect(function() close(self) end, watch, self)
end

return elastic
