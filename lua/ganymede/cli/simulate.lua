--- ganymede simulate RECIPE -n N --machine FILE: predicts a step on N ranks of a machine.
--
-- One rank of each role is rehearsed (ganymede.plan.simulate), and all ranks are replayed on the machine's links. It
-- prints the time of a step, what part of it ranks wait for operations between them, by axes, the bubble of a pipeline,
-- the utilization of the machine's peak, and the peak memory of each stage. docs/planning_model.md has the model.
-- The trap: a prediction is as good as the machine's file.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local machines = require "ganymede.plan.machine"
local places = require "ganymede.base.places"
local run = require "ganymede.cli.run"
local session = require "ganymede.job.session"
local timeline_svg = require "ganymede.plan.timeline_svg"

local verb = { prints = true, keeps_words = true, summary = "predict a step of a recipe on the ranks of any machine" }

verb.examples = { "ganymede simulate first.lua -n 64 --machine dgx_a100_80g",
  "ganymede simulate first.lua -n 2 --machine here.json --trace step.json" }

-- A converter for lua-argparse. What is no number between the bounds, NaN included, is refused.
local function between(least, most)
  return function(text)
    local n = tonumber(text)
    if n and n >= least and n <= most then return n end
    return nil, ("'%s' is no number from %g to %g"):format(text, least, most)
  end
end

function verb.arguments(parser)
  run.shared_arguments(parser)
  parser:option("--machine", "the file of a machine, or the name of one that comes with Ganymede"):argname "FILE"
    :count(1)
  parser:option("--trace", "write what the first ranks do and when, as Chrome's trace events"):argname "FILE"
  parser:option("--trace-ranks", "the number of ranks in --trace and --svg (default 8)"):argname "N"
    :convert(session.integer(1))
  parser:option("--svg", "draw what the first ranks do (--trace-ranks)"):argname "FILE"
  parser:option("--jitter", "let the time of each op vary: the standard deviation of its logarithm (0.05: 5 %)")
    :argname "SIGMA":convert(between(0, machines.MOST_JITTER))
  parser:option("--straggler", "let the ops of a rank take FACTOR times as long"):argname "RANK=FACTOR":count "*"
  parser:option("--mtbf", "the mean seconds between failures of a node; default: of the machine"):argname "SECONDS"
    :convert(between(1, 1e12))
  parser:option("--restart", "the seconds from a failure to the next step; default: of the machine"):argname "SECONDS"
    :convert(between(0, 1e9))
  parser:option("--disk-write", "bytes per second that a node writes; default: of the machine"):argname "RATE"
    :convert(between(1, 1e30))
  parser:flag("--unfolded", "replay each rank by itself, also where one stands for others; the figures are the same")
  parser:option("--keep", "keep the records of the roles in this folder"):argname "DIR"
  parser:flag("--json", "print one JSON document instead of tables")
end

-- ---------------------------------------------------------------- the trace

local lanes = { compute = 0, wait = 1, transfer = 2 }

local function event_of(span)
  return ('{"name":%s,"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"about":%s}}'):format(
    json.encode(span.name), span.rank, lanes[span.lane], 1e6 * span.begin, 1e6 * (span.finish - span.begin),
    json.encode(span.about))
end

local function trace_of(spans, ranks)
  local lines = {}
  for rank = 0, ranks - 1 do
    for name, lane in pairs(lanes) do
      lines[#lines + 1] = ('{"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}}'):format(rank, lane,
        name)
    end
  end
  table.sort(lines)
  for _, span in ipairs(spans) do lines[#lines + 1] = event_of(span) end
  return "[\n" .. table.concat(lines, ",\n") .. "\n]\n"
end

-- ---------------------------------------------------------------- what it prints

local function duration(seconds)
  if seconds >= 1 then return ("%.4g s"):format(seconds) end
  if seconds >= 1e-3 then return ("%.4g ms"):format(1e3 * seconds) end
  return ("%.4g us"):format(1e6 * seconds)
end

local function long(seconds)
  if seconds >= 7200 then return ("%.3g h"):format(seconds / 3600) end
  return seconds >= 120 and ("%.3g min"):format(seconds / 60) or duration(seconds)
end

local function print_run(r)
  print(("  %.2f %% of a long run is useful: a checkpoint each %s (%s a node), a failure each %s on %d nodes"):format(
    100 * r.fraction, long(r.interval), machine.bytes(r.bytes_of_node), long(r.mtbf), r.nodes))
  print(("    a checkpoint stops ranks for %s and is written %s later; a restart takes %s"):format(long(r.block),
    long(r.write), long(r.restart)))
  print(("    best: each %s, %.2f %% (Young %s, Daly %s); a month played: %.2f %%, %d failures"):format(
    long(r.best.interval), 100 * r.best.fraction, long(r.young), long(r.daly), 100 * r.month.fraction,
    r.month.failures))
end

local function part(seconds, found) return ("%.1f %%"):format(100 * seconds / found.seconds) end

local function print_found(found)
  local axes = {}
  for i, axis in ipairs(found.mesh) do axes[i] = ("%s %d"):format(axis.name, axis.size) end
  print(("a step takes %s on %d rank%s of %s%s"):format(duration(found.seconds), found.world,
    found.world == 1 and "" or "s", found.machine, #axes > 0 and " (" .. table.concat(axes, ", ") .. ")" or ""))
  print(("  %d rank%s rehearsed, %d of %d replayed for all, %d operations between ranks"):format(found.rehearsed,
    found.rehearsed == 1 and "" or "s", found.classes, found.world, found.transfers))
  print(("  %.4g samples a second"):format(found.samples_per_second))
  if found.utilization then
    print(("  %.1f %% of the peak in %s (MFU; HFU with what runs again %.1f %%): %.4g FLOP of products"):format(
      100 * found.model_utilization, found.dtype, 100 * found.utilization, found.product_flops))
  else
    print(("  the machine names no peak in %s"):format(found.dtype))
  end
  print(("  computing       %10s  %s of the step (mean of the ranks)"):format(duration(found.busy),
    part(found.busy, found)))
  for _, row in ipairs(found.exposed) do
    print(("  waiting: %-24s %10s  %s of the step, at most %s"):format(row.axes, duration(row.mean),
      part(row.mean, found), duration(row.most)))
  end
  if found.launching then
    print(("  waiting for the host to launch: %s, %s of the step"):format(duration(found.launching),
      part(found.launching, found)))
  end
  if found.bubble then print(("  bubble of the pipeline %.1f %%"):format(100 * found.bubble)) end
  if found.energy then
    print(("  energy of a step %s%.4g kJ, %.4g J a sample"):format(found.energy_is_bound and "at most " or "",
      found.energy / 1e3, found.energy / (found.samples_per_second * found.seconds)))
  end
  if found.run then print_run(found.run) end
  for _, row in ipairs(found.memory) do
    local limit = found.memory_of_rank
    print(("  %s%s at most, %s of it parameters%s"):format(#found.memory > 1 and ("stage %d: "):format(row.stage) or
      "memory: ", machine.bytes(row.peak_bytes), machine.bytes(row.parameter_bytes),
      limit > 0 and row.peak_bytes > limit and ("; a rank has %s: it does not fit"):format(machine.bytes(limit)) or ""))
  end
end

-- { "3=1.5" } -> { [3] = 1.5 }
local function stragglers(given)
  local out = {}
  for _, text in ipairs(given or {}) do
    local rank, factor = text:match "^(%d+)=([%d.eE+-]+)$"
    rank, factor = tonumber(rank), tonumber(factor)
    if not factor then failure(2, "--straggler %s: RANK=FACTOR was expected, such as 3=1.5", text) end
    if out[rank] then failure(2, "--straggler %s: rank %d is given twice", text, rank) end
    out[rank] = factor
  end
  return next(out) and out or nil
end

local function check_files(args)
  for _, name in ipairs { "trace", "svg" } do
    local ok, why = true, nil
    if args[name] then ok, why = core.check_writable(args[name]) end
    if not ok then failure(2, "--%s: %s", name, why) end
  end
  if args.keep then places.make(args.keep, "--keep") end
end

local function print_json(found)
  for _, name in ipairs { "mesh", "exposed", "memory" } do found[name] = json.array(found[name]) end
  print(json.encode(found, { indent = true }))
end

function verb.run(args)
  if args.trace_ranks and not args.trace and not args.svg then
    failure(2, "--trace-ranks belongs to --trace FILE or --svg FILE")
  end
  check_files(args)
  local ranks = args.ranks or 1
  local spans_of = (args.trace or args.svg) and math.min(args.trace_ranks or 8, ranks) or 0
  local simulate = require "ganymede.plan.simulate"
  local sets = session.with_signals({}, require("ganymede.plan.auto").sets, args, ranks)
  local found, spans = session.with_signals({}, simulate, { recipe = args.recipe, ranks = ranks, set = sets,
    seed = args.seed, machine = args.machine, spans = spans_of, keep = args.keep, jitter = args.jitter,
    slower = stragglers(args.straggler), unfolded = args.unfolded, mtbf = args.mtbf, restart = args.restart,
    disk_write = args.disk_write })
  if args.json then print_json(found) else print_found(found) end
  if args.trace then session.write("--trace", args.trace, trace_of(spans, spans_of)) end
  if args.svg then
    session.write("--svg", args.svg, timeline_svg(spans, spans_of, found.seconds,
      ("a step of %s on %s, %d ranks: %s"):format(args.recipe, found.machine, ranks, duration(found.seconds))))
  end
end

return verb
