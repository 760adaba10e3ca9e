--- Starts jobs of several ranks, and lets a rank tell the others and the user that it fails.
--
-- `ganymede run -n 4` makes its process the supervisor of a job (host/job/supervise.h). mpirun starts 4 ranks, which
-- run the same command line; their environment tells them that they are ranks. Under the user's own mpirun, srun or
-- torchrun there is no supervisor, and every process is a rank. The trap: before connect() a rank acts alone and does
-- not know its number.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"

local launcher = {}

-- Who started this process, and as which rank (host/comm/launched.h). Once it has joined, nobody has.
local function launched()
  local ok, found = pcall(core.launched)
  if not ok then failure(2, "%s", failure.text(found)) end
  return found
end

--- Returns the number of ranks that were started with this process; 1: it is alone.
function launcher.expected() return launched().world end

-- Refuses WORLD_SIZE without RANK. Each process would train alone.
local function refuse_half_an_environment(args, found)
  local size = tonumber(os.getenv "WORLD_SIZE" or "")
  if not size or size <= 1 or found.world > 1 or core.link_rank() or args.ranks == size then return end
  failure(2, "WORLD_SIZE is %d in the environment, and RANK does not say which rank this is: it would train alone. Set "
    .. "RANK, MASTER_ADDR and MASTER_PORT as torchrun does, or start `ganymede %s ... -n %d`, or the same without -n "
    .. "by mpirun or srun; `env -u WORLD_SIZE` runs one rank", size, args.argv and args.argv[1] or "run", size)
end

-- Refuses -n where it would use one machine of several. In batch scripts and shells of salloc nothing was started yet.
local function refuse_part_of_allocation(args, found)
  local machines = tonumber(os.getenv "SLURM_JOB_NUM_NODES" or "")
  local tasks = tonumber(os.getenv "SLURM_NTASKS" or "")
  if found.by ~= "nobody" or core.link_rank() or not machines then return end
  if machines > 1 and (args.ranks or 1) > 1 then
    failure(2, "-n %d starts ranks on this machine alone, and this allocation of Slurm has %d machines: start "
      .. "`srun ganymede %s ...` without -n", args.ranks, machines, args.argv and args.argv[1] or "run")
  elseif (tasks or machines) > 1 and not args.ranks then
    log.warn("this allocation of Slurm has %d %s, and this is one rank: `srun ganymede %s ...` starts all of them",
      tasks or machines, tasks and "tasks" or "machines", args.argv and args.argv[1] or "run")
  end
end

-- Ranks of one machine share memory.
local function refuse_interface(args)
  if args.interface then
    failure(2, "--interface %s is for ranks on several machines, which mpirun, srun or torchrun start; %s",
      args.interface, (args.ranks or 1) > 1 and "those of -n share memory" or "this run has one rank")
  end
end

--- Returns whether this process must start ranks, and is not one itself. One rank has a supervisor if it may have to be
-- started again.
function launcher.supervises(args)
  local asked, found = args.ranks or 1, launched()
  refuse_half_an_environment(args, found)
  refuse_part_of_allocation(args, found)
  if found.world > 1 and args.ranks and asked ~= found.world then
    failure(2, "-n %d, but %s started this as one of %d ranks; leave -n out", asked, found.by, found.world)
  end
  if found.world == 1 then refuse_interface(args) end
  return (asked > 1 or args.max_restarts ~= nil) and found.world == 1 and not core.link_rank()
end

-- ---------------------------------------------------------------- the command

--- Returns the number of threads of each rank: the user's choice, or the cores divided by the ranks.
function launcher.threads(ranks, asked) return asked or math.max(1, math.floor((machine.cores() or 1) / ranks)) end

-- Returns the number of threads of a rank that another launcher has started. A rank that is bound to cores of its own
-- takes all of them.
local function threads_when_joining(found)
  local bound = os.getenv "OMPI_MCA_orte_bound_at_launch" == "1" or (os.getenv "SLURM_CPU_BIND" or ""):find "mask"
  return launcher.threads(bound and 1 or found.here > 0 and found.here or found.world)
end

--- Returns the argv of mpirun for a command line of ours (a list of words). MPI must not yield: each look for messages
-- would give the core away, also that of a rank that has work. Ranks that wait leave the core themselves
-- (gm_comm_pause).
function launcher.command(ranks, words)
  local argv = { "mpirun", "-n", tostring(ranks), "--oversubscribe", "--bind-to", "none", "--enable-recovery" }
  local function parameter(name, value) -- unless the user has chosen
    if os.getenv("OMPI_MCA_" .. name) then return end
    for _, word in ipairs { "--mca", name, value } do argv[#argv + 1] = word end
  end
  parameter("mpi_yield_when_idle", "0")
  parameter("pml", "ob1")
  parameter("btl", "self,vader")
  if os.getenv "SLURM_JOB_ID" then parameter("ras", "^slurm") end -- it is this machine, whatever Slurm has lent
  argv[#argv + 1] = core.executable()
  for _, word in ipairs(words) do argv[#argv + 1] = word end
  return argv
end

-- Returns LD_PRELOAD for mpirun, with the module that makes it listen to this machine only (host/loopback/loopback.c).
local function preload()
  local module, before = core.executable():match "^(.*)/" .. "/ganymede_loopback.so", os.getenv "LD_PRELOAD" or ""
  local file = io.open(module)
  if not file then failure(2, "there is no %s, which belongs to the program; build it again", module) end
  file:close()
  if module:find "[%s:]" then -- which divide the names of a list
    log.warn("mpirun will listen on all addresses of this machine: %s has a blank or a colon in its path", module)
    return before
  end
  return before == "" and module or module .. ":" .. before
end

-- mpirun refuses to run as root, the usual user in containers, unless two variables allow it.
-- hwloc, by which Open MPI examines the machine, must leave out devices. Otherwise mpirun and every rank would read the
-- registers of all PCI devices, which takes a fifth of the start of 8 ranks, and would open X11 and OpenCL.
local function environment()
  local list = { "GANYMEDE_TERMINAL=" .. (core.is_terminal(1) and "yes" or "no"),
    ("GANYMEDE_SUPERVISOR_PROCESS=%d"):format(core.process().pid), "LD_PRELOAD=" .. preload() }
  if machine.ask "id -u" == "0" then
    list[#list + 1] = "OMPI_ALLOW_RUN_AS_ROOT=1"
    list[#list + 1] = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
  end
  if not os.getenv "HWLOC_COMPONENTS" then -- unless the user has chosen
    list[#list + 1] = "HWLOC_COMPONENTS=-pci,-linux:pci,-linux:io,-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero"
  end
  return list
end

local function check_mpirun()
  if machine.ask "command -v mpirun" then return end
  failure(2, "several ranks need mpirun, which is not in PATH; install the Debian package openmpi-bin")
end

-- mpirun waits for ever for a program that is not there.
local function check_program()
  local path = core.executable()
  local file = io.open(path)
  if not file then
    failure(1, "%s is gone: it was moved or removed while it ran; put it back, and give the command again", path)
  end
  file:close()
end

--- Starts the ranks of a command line and returns the job (core.job_start). It first prints what was chosen for them.
-- args: ranks, threads, argv (the words), timeout, spent (seconds of it that are over), quiet (say nothing);
-- interactive: ranks that wait for lines
function launcher.start(args, interactive)
  check_mpirun()
  check_program()
  local ranks, cores = args.ranks, machine.cores() or 1
  local threads = launcher.threads(ranks, args.threads)
  local crowded = ranks * threads > cores
  local words = { args.argv[1], "--threads", tostring(threads), unpack(args.argv, 2) } -- a later one counts
  if not interactive and not args.quiet then
    log.info("%d rank%s on %d core%s: %d thread%s each, %s", ranks, ranks == 1 and "" or "s", cores,
      cores == 1 and "" or "s", threads, threads == 1 and "" or "s",
      crowded and "sharing cores" or "each bound to cores of its own")
  end
  local ok, job = failure.try(core.job_start, { ranks = ranks, argv = launcher.command(ranks, words),
    environment = environment(),
    folders = { "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory" }, -- so that a crash leaves none
    cpus = crowded and 0 or threads, timeout = args.timeout or 0, spent = args.spent or 0,
    interactive = interactive or false })
  if not ok then failure(failure.code(job), "%s", (failure.text(job):gsub("^%S+%.lua:%d+: ", ""))) end
  return job
end

--- Prints how a job failed.
function launcher.report(job)
  local first = job:first()
  log.error("%s%s", first.rank and ("rank %d: "):format(first.rank) or "", first.text)
end

local function watch(job)
  while true do
    local event = job:wait()
    if event == "failed" then launcher.report(job) end
    if event == "ended" then return job:status() end
  end
end

local function watch_to_end(job)
  local status = watch(job)
  local _, told = job:answer(0)
  return status, { first = job:first(), asked = job:asked(), told = told, unwritten = job:output_error() }
end

--- Runs one job from its start to its end -> its exit status, and { first (failure, or nil), asked (the stop, or nil),
-- told (by rank 0: ganymede.job.attempts), unwritten (why output was lost, or nil) }. args: of launcher.start. It is
-- called in launcher.supervising.
function launcher.run_once(args)
  local job = launcher.start(args)
  return failure.protect(function() job:close() end, watch_to_end, job)
end

--- Runs fn(...), which returns what run_once does -> the exit status. Stops wait for who supervises: a job takes them,
-- core.sleep raises them. A job whose output could not be written completely has failed, also if its work was done.
function launcher.supervising(fn, ...)
  local terminated = failure.new(143, "stopped by SIGTERM")
  core.signals_open({ failure.new(130, "stopped by Ctrl-C"), terminated, terminated }, true, false)
  local status, ended = failure.protect(core.signals_close, fn, ...)
  if status == 0 and ended.unwritten then failure(1, "standard output cannot be written: %s", ended.unwritten) end
  return status
end

--- Sleeps for so many seconds, while stops wait for who supervises -> the stop that came, as core.signals_take says it;
-- nil: none.
function launcher.nap(seconds)
  local slept, err = pcall(core.sleep, seconds)
  local name = core.signals_take()
  if name or slept then return name end
  return failure.code(err) == 143 and "terminate" or "interrupt"
end

--- Runs a command line on several ranks and returns its exit status; see launcher.start.
function launcher.supervise(args) return launcher.supervising(launcher.run_once, args) end

-- ---------------------------------------------------------------- on a rank

local joined, place -- once it has: threads for this rank, and its place among those of this machine
local alone -- the only rank of a job has told its supervisor that it hears stops

--- Returns the number of threads of this rank if nobody chose one; nil for a process that is not a rank.
function launcher.joined_threads() return joined end

--- Returns this rank's place among the ranks of its machine, from 0.
function launcher.place_here() return place or 0 end

-- Says once through what ranks on several machines talk.
local function announce(found, args)
  if core.rank() > 0 or core.link_rank() or (found.here == found.world and not found.tcp) then return end
  local way = core.comm_transport()
  if not found.tcp then
    way = ("%s through %s"):format(way, args.interface or os.getenv "OMPI_MCA_btl_tcp_if_include"
      or "the interfaces that it finds (--interface chooses one)")
  end
  log.info("%d ranks, started by %s%s: %s", found.world, found.by,
    found.here > 0 and (", %d on this machine"):format(found.here) or "", way)
end

--- Lets the ranks of each machine talk through shared memory, or ends that. COLLECTIVE. If a rank cannot, rank 0 says
-- why.
function launcher.share_memory(on)
  local said = core.comm_share_memory(on)
  if said ~= "" and core.rank() == 0 then log.warn("%s", said) end
end

local hosts -- of a job on several machines: their names, by rank + 1

-- Learns on which machines the ranks are. Collective.
local function learn_hosts()
  if core.link_rank() then return end -- all are on this machine
  local names, several = core.comm_exchange(launcher.world(), core.process().host), false
  for _, name in ipairs(names) do several = several or name ~= names[1] end
  hosts = several and names or nil
end

--- A message with the machines of the ranks that it misses.
function launcher.with_hosts(text)
  local said = {}
  for _, missed in ipairs(hosts and { "rank (%d+) does not answer", "connection to rank (%d+)" } or {}) do
    for rank in text:gmatch(missed) do
      local words = ("rank %s is on %s"):format(rank, hosts[tonumber(rank) + 1] or "no machine that is known here")
      if not said[words] then said[words], said[#said + 1] = true, words end
    end
  end
  return #said > 0 and text .. "\n  " .. table.concat(said, "; ") or text
end

--- Who has started this process as one of several ranks: { by }, or as a task of srun, also the only one: { by, job (of
-- Slurm), pmix (whether tasks meet through Open MPI) }; nil: it is alone.
launcher.started = nil

--- Joins the job to which this process belongs. Outside of a job, and in a second call, it does nothing.
-- args: checked, comm_timeout (seconds), interface (of this machine, to reach others)
function launcher.connect(args)
  local found = not joined and launched()
  if not found then return end
  if found.by == "srun" then core.signals_terminate_once() end -- its steps are sent several
  if os.getenv "GANYMEDE_STANDBY" then core.signals_terminate_once() end -- a guard passes on what came here, too
  if found.by == "srun" then
    launcher.started = { by = "srun", job = os.getenv "SLURM_JOB_ID", pmix = os.getenv "PMIX_RANK" ~= nil }
  end
  if found.world == 1 then
    if core.link_rank() and not alone then core.link_joined() end
    alone = true
    return
  end
  joined = threads_when_joining(found) -- the environment does not tell later
  place = found.place
  launcher.started = launcher.started or { by = found.by }
  local rank, why = core.connect { interface = args.interface, seconds = args.comm_timeout,
    silence = args.comm_timeout and math.min(30, args.comm_timeout) }
  if not rank then failure(2, "%s", why) end
  announce(found, args)
  core.forget_launcher()
  core.signals_watch()
  core.link_joined()
  if args.comm_timeout then core.comm_set_timeout(args.comm_timeout) end
  learn_hosts()
  launcher.share_memory(true) -- a recipe may choose again
  if args.checked then core.comm_checked(true) end
end

local everybody

--- Returns a group of all ranks, whatever the mesh is.
function launcher.world()
  if not everybody then
    local ranks = {}
    for i = 1, core.world() do ranks[i] = i - 1 end
    everybody = core.comm_group_of("world", ranks)
  end
  return everybody
end

--- Returns the text of rank 0 on every rank. Collective.
function launcher.of_rank_0(text)
  if core.world() == 1 then return text end
  return core.comm_exchange(launcher.world(), text)[1]
end

-- Whether a lower rank has said the same, so that this rank need not print it.
local function is_said_already(text)
  local other = core.comm_failure()
  return other ~= nil and other.rank < core.rank() and other.text == text
end

local failed = false

--- Reports an error that ends this rank to the others, which also end, and to the supervisor. Returns whether the
-- message must be printed here. Only the first error of a rank counts. Outside of a job the message must always be
-- printed.
function launcher.fail(err, text)
  local code = failure.code(err)
  if not joined and not core.link_rank() then return true end
  if failed then return false end
  failed = true
  if failure.is_peer(err) then
    core.link_fail_of_peer(code)
    return false
  end
  local told = core.link_fail(code, text, type(err) == "table" and rawget(err, "agreed"))
  if not joined then return not told end
  core.comm_fail(code, text)
  return not told and not is_said_already(text)
end

--- Calls fn(...), in which os.exit is an error that says where it was called. os.exit would end the run early, save
-- nothing, and leave other ranks waiting.
function launcher.without_exit(fn, ...)
  local exit = os.exit
  os.exit = function(code) -- luacheck: ignore 122
    error(("os.exit(%s) in the middle of a run; return from the recipe, or call error"):format(
      code == nil and "" or tostring(code)), 2)
  end
  return failure.protect(function() os.exit = exit end, fn, ...) -- luacheck: ignore 122
end

--- Ends this rank with that exit status, like all others, and waits for them. If one of them fails now, this one fails.
function launcher.leave(code)
  io.stdout:flush()
  if joined then core.comm_close(true) end
  joined = false
  core.link_done(code)
end

--- Ends this rank because of a failure that the others know, without waiting for them.
function launcher.abandon()
  if joined then core.comm_close(false) end
  joined = false
end

return launcher
