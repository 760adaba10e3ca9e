--- Ranks that stand by where another launcher has started the ranks: `run --memory-checkpoint K --standby` on several
-- machines.
--
--     if spares.wanted(args) then ... spares.guard(args)         -- in what the launcher has started
--     spares.folder()            -- in a rank: where its guard has its words; nil: no guard has started this process
--     spares.trains(step)        -- in a rank: training begins behind that step
--     local word = spares.await()                                -- in the ranks that stand by; collective
--
-- srun or torchrun starts one process for each rank. With --standby that process does not join the others: it is the
-- guard of a rank, and starts the rank as a program of its own. When training has begun, it starts a second one, which
-- joins the second ones of all other guards. They are a set of ranks that is fully built and waits. Who waits for whom:
--
--     guard of each rank             its rank that trains            its rank that stands by
--                                    dies, or ends because            waits, with all that stand by
--     sees its end: take             another one has died
--                                                                     knows that all guards have said take
--                                                                     goes on from the memory of the machines
--     starts another that stands by
--
-- A rank goes on only when the guard of every rank has seen that its old rank is gone, so nobody writes any more. Where
-- a guard has said so and another one has not, because its rank hangs, the rank that stands by asks its guard to kill
-- it. Guards do not speak with each other: all they must know comes through the ranks that stand by. Sets of ranks are
-- numbered; the number is part of the key of a job (host/comm/launched.h), so that no rank meets one of another set.
-- Words are files guard-WORD-N in a private folder of each guard, where WORD is
--
--     trains (set N trains: the step)   take (JSON: at, the time)   wanted (the rank that trains is to be killed)
--
-- That of rank 0 is also where others find the job (ganymede.job.live): a rank that is killed leaves files there, which
-- its guard removes.
-- Where a machine is gone, its guards are gone, and those that stood by fail with the others. Then the guards end with
-- the status of their ranks, and the launcher starts all of them again.
-- @module ganymede.job.spares
local command_line = require "ganymede.job.command_line"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local memory_file = require "ganymede.job.memory_file"
local ranks = require "ganymede.job.ranks"
local restarts = require "ganymede.job.restarts"

local spares = { FOLDER = "GANYMEDE_STANDBY", SET = "GANYMEDE_STANDBY_SET" }

local NAP = 0.02  -- seconds between two looks of a guard
local PACE = 0.04 -- seconds between two looks of ranks that stand by, each of which is an exchange between them
local GRACE = 0.1 -- seconds for which old ranks may end by themselves, and say why
local CALM = 2    -- seconds that ranks which took over have before others are built beside them
local MOST = 3    -- take-overs in a row without a newer step in memory

--- The folder of the guard's words; nil: no guard has started this process.
function spares.folder() return os.getenv(spares.FOLDER) end

local function path_of(folder, word, set) return ("%s/guard-%s-%d"):format(folder, word, set) end

-- ---------------------------------------------------------------- flags

--- Why these flags of `run` cannot have ranks that stand by; nil: they can.
function spares.problem(args)
  if not args.memory_checkpoint then
    return "--standby: the ranks that stand by go on from memory: give --memory-checkpoint K, too"
  end
  if not args.out then
    return "--standby: the ranks that stand by find by the run's folder what lies in memory; give --out DIR"
  end
  if args.timeout then
    return "--timeout counts from the start of a rank, and with --standby those that stand by start later; let who "
      .. "starts the ranks limit the time, and leave --timeout out"
  end
end

--- Refuses --standby where another launcher has started this process and it would have no effect. Status 2.
function spares.check(args)
  local why = spares.problem(args)
  if not why and not core.launched().tcp then
    why = ("--standby: %s started these ranks, which join through MPI, and no others can join in their place; ranks "
      .. "over TCP can stand by: those of srun --mpi=none, and of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
      :format(core.launched().by)
  end
  if why then failure(2, "%s", why) end
end

--- Whether this process is to be the guard of a rank.
function spares.wanted(args)
  return args.standby and not core.link_rank() and launcher.expected() > 1 and not spares.folder()
end

-- ---------------------------------------------------------------- the guard

-- Starts the rank of a set.
local function start(self, set)
  local words = { "env", spares.FOLDER .. "=" .. self.folder, spares.SET .. "=" .. set, core.executable() }
  local argv = self.argv
  if set > 0 then
    argv = command_line.with(command_line.without_beginnings(argv), "--resume", "auto", "--takes-over")
  end
  return { set = set, program = core.program_start(command_line.with(words, unpack(argv))) }
end

local function kill(rank)
  if not rank then return end
  rank.program:signal "kill"
  while rank.program:pid() and not rank.program:ended() do pcall(core.sleep, NAP / 10) end
end

-- Passes a stop on. An interrupted job ends; one that is to save goes on in the ranks that stand by, and these save.
local function hear(self, stop)
  if not stop then return end
  self.asked, self.interrupted = true, self.interrupted or stop == "interrupt"
  self.rank.program:signal(stop == "interrupt" and "interrupt" or "terminate")
end

-- Says once that nobody stands by any more, unless the run ends soon: then those of other guards have ended first.
local function tell_loss(self)
  if self.told or self.asked or not self.is_first or core.now() - self.no_spare < CALM then return end
  self.told = true
  log.warn("--standby: the ranks that stood by are gone, and a death costs a start from here on")
end

-- Keeps a rank that stands by.
local function keep_spare(self)
  local spare = self.spare
  if not spare then
    if self.no_spare then return tell_loss(self) end
    if self.asked or not core.is_file(path_of(self.folder, "trains", self.rank.set)) then return end
    self.calm = self.calm or core.now() + (self.rank.set > 0 and CALM or 0)
    if core.now() < self.calm then return end
    self.spare, self.calm = start(self, self.rank.set + 1), nil
  elseif spare.program:ended() then
    self.spare, self.no_spare = nil, core.now()
  elseif not self.rank.killed and core.is_file(path_of(self.folder, "wanted", spare.set)) then
    self.rank.killed = true
    self.rank.program:signal "kill"
  end
end

local function is_over(self, status) return status == 0 or restarts.is_final(status) or self.interrupted end

-- Why the rank that stands by cannot go on in place of one that has ended; nil: it can.
local function hindrance(self)
  if not self.spare then return "nobody stood by" end
  local known = memory_file.read(self.out)
  local step = known and known.step or 0
  if step == 0 then return "no step is in memory" end
  self.stalled = step > self.reached and 0 or self.stalled + 1
  self.reached = step
  if self.stalled >= MOST then
    return ("%d times in a row no newer step was in memory than step %d"):format(MOST, step)
  end
end

-- Removes what the rank that has ended left in the folder. A word of the rank that goes on stays: it may be writing one
-- at this moment, in a file beside its place.
local function clear(self)
  local own = "^guard%-%a+%-" .. self.spare.set .. "%f[%D]"
  for _, name in ipairs(core.list_folder(self.folder)) do
    if name ~= "guard-here" and not name:find(own) then os.remove(self.folder .. "/" .. name) end
  end
end

-- Has the rank that stands by go on -> whether it does.
local function replace(self, status)
  if is_over(self, status) then return false end
  local old, why = self.rank, hindrance(self)
  if why then
    if self.is_first then log.warn("--standby: the ranks end, and none take their place: %s", why) end
    return false
  end
  if status > 128 and not old.killed then
    log.warn("rank %d was ended by signal %d; the ranks that stand by go on", self.number, status - 128)
  end
  clear(self)
  core.write_whole(path_of(self.folder, "take", self.spare.set), json.encode { at = core.now(), status = status })
  self.rank, self.spare = self.spare, nil
  if self.asked then self.rank.program:signal "terminate" end
  return true
end

local function watch(self)
  self.rank = start(self, 0)
  while true do
    hear(self, launcher.nap(NAP))
    local status = self.rank.program:ended()
    if status and not replace(self, status) then return status, {} end
    keep_spare(self)
  end
end

--- Guards one rank, whose launcher has started this process, from its start to its end, over all ranks that take its
-- place -> the exit status of the last one.
function spares.guard(args)
  local found = core.launched()
  local ok, folder = failure.try(core.folder_make, true)
  if not ok then failure(2, "--standby: %s", failure.text(folder)) end
  local self = { argv = args.argv, out = args.out, folder = folder:path(), number = found.rank,
    is_first = found.rank == 0, reached = 0, stalled = 0 }
  core.write_whole(self.folder .. "/guard-here", "\n") -- so that nobody takes it for one that a dead job has left
  return failure.protect(function()
    kill(self.spare)
    kill(self.rank)
    folder:close()
  end, launcher.supervising, watch, self)
end

-- ---------------------------------------------------------------- the ranks

local function set_of_this() return tonumber(os.getenv(spares.SET) or "") or 0 end

--- Tells the guard that training begins behind this step. Without a guard it does nothing.
function spares.trains(step)
  if spares.folder() then core.write_whole(path_of(spares.folder(), "trains", set_of_this()), ("%d\n"):format(step)) end
end

-- What the guard of this rank has said: a text; nil: nothing yet; false: the guard is gone, and its folder with it.
local function said(folder, set)
  local text = machine.read(path_of(folder, "take", set))
  if text or core.is_own_folder(folder) then return text end
  return false
end

--- Waits until all old ranks are gone and this set is to go on -> { at (when the guard of rank 0 saw it), status };
-- nil: a guard is gone. A stop that comes meanwhile is for the first step to heed. Collective.
function spares.await()
  local folder, set, since = spares.folder(), set_of_this(), nil
  while true do
    core.signals_stop_requested() -- SIGTERM interrupts nothing from here on
    local mine, all, any = said(folder, set), true, false
    local texts = ranks.texts(mine == false and "gone" or mine or "")
    for _, text in ipairs(texts) do
      if text == "gone" then return nil end
      all, any = all and text ~= "", any or text ~= ""
    end
    if all then return json.decode(texts[1], "the word of a guard") end
    since = since or any and core.now()
    if since and not mine and core.now() - since > GRACE then
      core.write_whole(path_of(folder, "wanted", set), "\n")
    end
    core.sleep(PACE)
  end
end

return spares
