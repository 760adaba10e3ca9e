--- ganymede plan RECIPE -n N --machine FILE: finds the best way to share a step of a recipe over N ranks.
--
-- It searches data, tensor, sequence, expert and pipeline parallelism with their modes, schedules and splits, stages of
-- ZeRO, recomputation, accumulation and the order of the axes (ganymede.plan.search). The samples of a step stay, and
-- so do its losses. It prints the best settings with what they cost and why they lose against the first, what was left
-- out and why, the setting to paste into the recipe, and the front of time against memory.
-- The trap: a plan is as good as the machine's file, and knows what docs/planning_model.md says is modelled.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local run = require "ganymede.cli.run"
local session = require "ganymede.job.session"

local verb = { prints = true, keeps_words = true,
  summary = "find the best way to share a step over the ranks of a machine" }

verb.examples = { "ganymede plan first.lua -n 8 --machine dgx_a100_80g",
  "ganymede plan first.lua -n 4 --machine here.json --memory 4G --keep parallel.pipeline=2" }

local function percent(text)
  local n = tonumber(text)
  if n and n > 0 and n < 100 then return n end
  return nil, ("'%s' is no number above 0 and below 100"):format(text)
end

function verb.arguments(parser)
  run.shared_arguments(parser)
  parser:option("--machine", "the file of a machine, or the name of one that comes with Ganymede"):argname "FILE"
    :count(1)
  parser:option("--memory", "the bytes that tensors of a rank may take, such as 16G (default: what the machine's file "
    .. "says)"):argname "BYTES":convert(machine.bytes_of)
  parser:option("--keep", "keep a part as it is, such as parallel.pipeline=2 or zero=1; may be repeated"):count "*"
    :argname "KEY=VALUE"
  parser:option("--top", "how many settings are simulated and listed at least (default 5)"):argname "K"
    :convert(session.integer(1))
  parser:option("--looks", "end after so many rehearsals, reckonings and simulations, with the best so far")
    :argname "L":convert(session.integer(1))
  parser:option("--within", "end when nothing that is left can be faster than the best by more than so many percent")
    :argname "PERCENT":convert(percent)
  parser:flag("--front", "search the whole front of time against memory, not the fastest alone")
  parser:option("--json", "write all of it as a JSON document, too"):argname "FILE"
end

-- ---------------------------------------------------------------- what it prints

local function duration(seconds)
  if seconds >= 1 then return ("%.4g s"):format(seconds) end
  return seconds >= 1e-3 and ("%.4g ms"):format(1e3 * seconds) or ("%.4g us"):format(1e6 * seconds)
end

local function waited(row)
  local sum = 0
  for _, e in ipairs(row.exposed) do sum = sum + e.mean end
  return sum
end

local function print_row(i, row)
  print(("%3d  %10s  %9.4g/s  %10s  %7.1f %%  %7s   %s"):format(i, duration(row.seconds), row.samples_per_second,
    machine.bytes(row.peak_bytes), 100 * waited(row) / row.seconds,
    row.bubble and ("%.1f %%"):format(100 * row.bubble) or "-", row.words))
  if row.why then print("     " .. row.why) end
end

local function print_front(found)
  print "\ntime against memory, of the settings that were simulated:"
  for _, at in ipairs(found.front) do
    local row = found.rows[at]
    print(("  %10s  %10s  %s"):format(duration(row.seconds), machine.bytes(row.peak_bytes), row.words))
  end
end

local function print_left_out(found)
  if #found.left_out == 0 then return end
  print "\nleft out:"
  for i, row in ipairs(found.left_out) do
    if i <= 12 then
      print(("  %7d  %s%s"):format(row.count, row.why, row.example and (" (%s)"):format(row.example) or ""))
    end
  end
  if #found.left_out > 12 then print(("  and %d more reasons (--json)"):format(#found.left_out - 12)) end
end

local function print_found(found, args)
  print(("%d settings of %s on %d rank%s of %s%s: %d rehearsed, %d reckoned, %d simulated"):format(found.settings,
    args.recipe, found.ranks, found.ranks == 1 and "" or "s", found.machine,
    found.memory > 0 and (", %s each"):format(machine.bytes(found.memory)) or "", found.rehearsed, found.reckoned,
    found.simulated))
  print "           step      samples      memory    waiting   bubble   setting"
  local listed = math.min(#found.rows, math.max(args.top or 5, 1))
  for i = 1, listed do print_row(i, found.rows[i]) end
  print_front(found)
  print_left_out(found)
  print "\nthe setting:\n"
  for _, line in ipairs(found.rows[1].lua) do print("  " .. line) end
end

local function document(found)
  local rows = json.array()
  for i, row in ipairs(found.rows) do
    rows[i] = { words = row.words, sets = json.array(row.sets), lua = json.array(row.lua), seconds = row.seconds,
      samples_per_second = row.samples_per_second, peak_bytes = row.peak_bytes, busy = row.busy,
      exposed = json.array(row.exposed), bubble = row.bubble, why = row.why, bound = row.bound }
  end
  return { settings = found.settings, complete = found.complete, rehearsed = found.rehearsed,
    reckoned = found.reckoned, simulated = found.simulated, ranks = found.ranks,
    machine = found.machine, memory = found.memory, rows = rows, front = json.array(found.front),
    left_out = json.array(found.left_out) }
end

local function refuse(args)
  local keep = require "ganymede.plan.search.keep"
  for _, text in ipairs(args.set or {}) do
    local key = text:match "^%+?([^=]*)="
    if key and keep.chooses(key) then
      failure(2, "--set %s: a plan chooses this key; --keep %s keeps it as it is", text, text)
    end
  end
  if not args.json then return end
  local ok, why = core.check_writable(args.json)
  if not ok then failure(2, "--json: %s", why) end
end

-- A terminal shows what is found; elsewhere a line now and then says that the search goes on.
local function tell(text, slow)
  if slow or core.is_terminal(2) or log.level >= 3 then log.info("plan: %s", text) end
end

function verb.run(args)
  refuse(args)
  local search = require "ganymede.plan.search"
  local found = session.with_signals({}, search, { recipe = args.recipe, ranks = args.ranks or 1, set = args.set,
    seed = args.seed, machine = args.machine, memory = args.memory, top = args.top, front = args.front,
    looks = args.looks, within = args.within and args.within / 100,
    keep = require("ganymede.plan.search.keep").parse(args.keep), tell = tell, until_stopped = true })
  print_found(found, args)
  if args.json then
    session.write("--json", args.json, json.encode(document(found), { indent = true }) .. "\n")
  end
  if found.stop then error(found.stop, 0) end
end

return verb
