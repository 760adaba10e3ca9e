--- ganymede simulate RECIPE -n N --machine FILE: predicts a step on N ranks of a machine.
--
-- One rank of each role is rehearsed (ganymede.plan.simulate), and all ranks are replayed on the machine's links. It
-- prints the time of a step, what part of it ranks wait for operations between them, by axes, the bubble of a pipeline,
-- the utilization of the machine's peak, and the peak memory of each stage. docs/planning.md says what is modelled.
-- The trap: a prediction is as good as the machine's file.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local run = require "ganymede.cli.run"
local session = require "ganymede.job.session"

local verb = { prints = true, summary = "predict a step of a recipe on the ranks of any machine" }

verb.examples = { "ganymede simulate first.lua -n 64 --machine dgx_a100_80g",
  "ganymede simulate first.lua -n 2 --machine here.json --trace step.json" }

function verb.arguments(parser)
  run.shared_arguments(parser)
  parser:option("--machine", "the file of a machine, or the name of one that comes with Ganymede"):argname "FILE"
    :count(1)
  parser:option("--trace", "write what the first ranks do and when, as Chrome's trace events"):argname "FILE"
  parser:option("--trace-ranks", "the number of ranks in --trace (default 8)"):argname "N":convert(session.integer(1))
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

local function write_trace(path, spans, ranks)
  local lines = {}
  for rank = 0, ranks - 1 do
    for name, lane in pairs(lanes) do
      lines[#lines + 1] = ('{"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}}'):format(rank, lane,
        name)
    end
  end
  table.sort(lines)
  for _, span in ipairs(spans) do lines[#lines + 1] = event_of(span) end
  core.write_whole(path, "[\n" .. table.concat(lines, ",\n") .. "\n]\n")
end

-- ---------------------------------------------------------------- what it prints

local function duration(seconds)
  if seconds >= 1 then return ("%.4g s"):format(seconds) end
  if seconds >= 1e-3 then return ("%.4g ms"):format(1e3 * seconds) end
  return ("%.4g us"):format(1e6 * seconds)
end

local function part(seconds, found) return ("%.1f %%"):format(100 * seconds / found.seconds) end

local function print_found(found)
  local axes = {}
  for i, axis in ipairs(found.mesh) do axes[i] = ("%s %d"):format(axis.name, axis.size) end
  print(("a step takes %s on %d rank%s of %s%s"):format(duration(found.seconds), found.world,
    found.world == 1 and "" or "s", found.machine, #axes > 0 and " (" .. table.concat(axes, ", ") .. ")" or ""))
  print(("  %d role%s rehearsed, %d operations between ranks replayed"):format(found.roles,
    found.roles == 1 and "" or "s", found.transfers))
  print(("  %.4g samples a second"):format(found.samples_per_second))
  if found.utilization then
    print(("  %.1f %% of the peak in %s: %.4g FLOP of products in a step, what runs again included"):format(
      100 * found.utilization, found.dtype, found.product_flops))
  else
    print(("  the machine names no peak in %s"):format(found.dtype))
  end
  print(("  computing       %10s  %s of the step (mean of the ranks)"):format(duration(found.busy),
    part(found.busy, found)))
  for _, row in ipairs(found.exposed) do
    print(("  waiting: %-24s %10s  %s of the step, at most %s"):format(row.axes, duration(row.mean),
      part(row.mean, found), duration(row.most)))
  end
  if found.bubble then print(("  bubble of the pipeline %.1f %%"):format(100 * found.bubble)) end
  for _, row in ipairs(found.memory) do
    local limit = found.memory_of_rank
    print(("  %s%s at most, %s of it parameters%s"):format(#found.memory > 1 and ("stage %d: "):format(row.stage) or
      "memory: ", machine.bytes(row.peak_bytes), machine.bytes(row.parameter_bytes),
      limit > 0 and row.peak_bytes > limit and ("; a rank has %s: it does not fit"):format(machine.bytes(limit)) or ""))
  end
end

function verb.run(args)
  if args.trace_ranks and not args.trace then failure(2, "--trace-ranks belongs to --trace FILE") end
  local ok, why = true, nil
  if args.trace then ok, why = core.check_writable(args.trace) end
  if not ok then failure(2, "--trace: %s", why) end
  local ranks = args.ranks or 1
  local spans_of = args.trace and math.min(args.trace_ranks or 8, ranks) or 0
  local simulate = require "ganymede.plan.simulate"
  local sets = session.with_signals({}, require("ganymede.plan.auto").sets, args, ranks)
  local found, spans = session.with_signals({}, simulate, { recipe = args.recipe, ranks = ranks, set = sets,
    seed = args.seed, machine = args.machine, spans = spans_of, keep = args.keep })
  if args.trace then write_trace(args.trace, spans, spans_of) end
  if not args.json then return print_found(found) end
  for _, name in ipairs { "mesh", "exposed", "memory" } do found[name] = json.array(found[name]) end
  print(json.encode(found, { indent = true }))
end

return verb
