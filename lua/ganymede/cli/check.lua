--- ganymede check RECIPE: what `run` would do, without doing it.
--
-- It resolves the settings, builds the model on the meta device (shapes without numbers), and makes optimizer steps
-- there (ganymede.plan.rehearse). It prints every setting with its origin, the floating point operations of a step, and
-- for each module: the layouts of its parameters, inputs and outputs, the bytes it holds, and the bytes it sends. Data
-- files are opened, because their shapes are needed, but no sample is read. With -n N it rehearses one rank of N
-- (--rank, default 0). It then prints the mesh, the rank's part of a batch, and what the rank would send in a step and
-- to how many ranks. For a pipeline it draws the schedule, and prints its idle time and the modules of each part and
-- stage. --roles compares the ranks of all roles on the mesh. --limit-memory refuses a step that needs more; with it
-- --largest searches in each mode for the largest batch or the longest sequence. --regions and --placement say what
-- recompute.memory and offload.memory choose.
-- The trap: hooks are made only with --hooks and --roles. Without these flags, what hooks send is not counted.
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local rehearsal = require "ganymede.job.rehearsal"
local rehearse = require "ganymede.plan.rehearse"
local run = require "ganymede.cli.run"
local session = require "ganymede.job.session"

local verb = { prints = true, keeps_words = true,
  summary = "show what a recipe would train and what it would cost, without training" }

verb.examples = { "ganymede check first.lua", "ganymede check first.lua -n 64 --rank 3" }

function verb.arguments(parser)
  run.shared_arguments(parser)
  parser:option("--rank", "the rank of -n to rehearse; default 0, and with --regions a rank of each stage"):argname "R"
    :convert(session.integer(0))
  parser:option("--device", "the device that would compute (default: cpu); on cuda what is offloaded leaves the GPU's "
    .. "memory for the host's"):choices { "cpu", "cuda" }
  parser:flag("--json", "print one JSON document instead of tables")
  parser:flag("--verbose", "print every module, also those that are alike, and what each sends by axis")
  parser:flag("--sections", "print only where the model may be cut into stages, and what each section costs")
  parser:flag("--regions", "print only what runs again in backward for recompute = { memory = BYTES }")
  parser:flag("--placement", "print only what rests on the disk for offload = { memory = BYTES, disk = DIR }")
  parser:option("--schedule-svg", "write a picture of the pipeline's schedule"):argname "FILE"
  parser:flag("--calls", "list every collective of a step too; needs --json and -n")
  parser:option("--step-file", "write the record of the step, which `ganymede simulate` replays"):argname "FILE"
  parser:flag("--hooks", "make the recipe's hooks too, as far as they work without numbers")
  parser:flag("--roles", "compare the collectives of one rank of each role: first, between or last along each axis")
  parser:option("--largest", "search for the largest batch or the longest sequence under --limit-memory")
    :choices { "batch", "sequence" }
  parser:option("--limit-memory", "the bytes that tensors of a rank may take, such as 16G; a step that needs more "
    .. "is an error"):argname "BYTES"
    :convert(machine.bytes_of)
  parser:flag("--serve", "for rehearsals: run the command lines of the standard input in copies of this process")
    :hidden(true)
  parser:option("--mode", "ways to share the work that --largest tries, separated by commas (default: all that N "
    .. "ranks can form)"):argname "LIST"
end

--- Collects all that `check` knows about a recipe -> a table.
verb.examine = rehearse

-- Writes bytes as hexadecimal digits, which JSON can hold.
local function hexadecimal(text)
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local function print_json(found)
  local stats = require "ganymede.observe.stats"
  for _, call in ipairs(found.calls or {}) do
    call.id, call.fingerprint = hexadecimal(call.id), hexadecimal(call.fingerprint)
  end
  for i, row in ipairs(found.settings or {}) do
    found.settings[i] = { key = row.path, value = stats.jsonable(row.value), origin = row.origin }
  end
  for _, list in ipairs { "settings", "parameters", "modules", "places", "mesh", "sent", "sections", "left_out" } do
    found[list] = found[list] and json.array(found[list])
  end
  print(json.encode(found, { indent = true }))
end

local function refuse(args)
  if args.largest and not args.limit_memory then failure(2, "--largest needs --limit-memory BYTES, such as 16G") end
  if not args.largest and args.mode then failure(2, "--mode belongs to --largest batch|sequence") end
  for _, other in ipairs { "largest", "roles" } do
    for _, flag in ipairs { "sections", "regions", "placement", "schedule_svg", "step_file" } do
      if args[other] and args[flag] then
        failure(2, "--%s and --%s are two questions; ask one", other, (flag:gsub("_", "-")))
      end
    end
  end
  for _, question in ipairs { "sections", "regions", "placement" } do
    if args.step_file and args[question] then
      failure(2, "--step-file and --%s are two questions; ask one", question)
    end
  end
  if args.largest and args.roles then failure(2, "--largest and --roles are two questions; ask one") end
  for _, other in ipairs { "largest", "roles" } do
    for _, flag in ipairs { "rank", "calls" } do
      if args[other] and args[flag] then
        failure(2, "--%s chooses its ranks and prints no calls: leave --%s out", other, flag)
      end
    end
  end
  if args.largest and args.hooks then failure(2, "--largest makes no hooks: leave --hooks out") end
  if args.calls and not args.json then failure(2, "--calls needs --json, which has room for them") end
end

-- What a copy would have to load otherwise. A copy ends before most of its loops are worth compiling.
local function load_ahead()
  require("jit.opt").start "hotloop=1000"
  for _, name in ipairs { "", ".nn", ".models", ".hooks", ".optim", ".checkpoint", ".lr_scheduler", ".data",
    ".schedules", ".job.comm", ".observe.stats" } do require("ganymede" .. name) end
end

local function answer(ask, args) return session.with_signals({}, rehearsal.with_workers, ask, args) end

function verb.run(args)
  if args.serve then
    load_ahead()
    return require("ganymede.job.workers").serve(require("ganymede.cli").main)
  end
  run.refuse_unserved(args)
  refuse(args)
  if args.largest then return answer(require "ganymede.plan.largest", args) end
  if args.roles then return answer(require "ganymede.plan.roles", args) end
  local found = session.with_signals({}, rehearse, args)
  if args.json then return print_json(found) end
  local printing = require "ganymede.cli.check_print"
  if args.sections then return printing.sections(found) end
  for _, question in ipairs { "regions", "placement" } do
    if args[question] then return print(table.concat(found[question].said, "\n")) end
  end
  printing.all(found, args)
end

return verb
