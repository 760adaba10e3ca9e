--- ganymede sweep RECIPE --set KEY=VALUE,VALUE: runs a recipe with several settings and says which is best.
--
-- Every combination of the values is a run (grid), or --random N draws some; --halving makes short runs of all and
-- longer ones of the better half, until one has made all steps. Each run is `ganymede run` in a process and a folder of
-- its own (ganymede.job.programs, ganymede.cli.sweep.folder). All settings are resolved before the first run begins, as
-- `run` does, and each value of a list is rehearsed once, as by `check`; so a wrong value starts nothing. The folder's
-- name depends on recipe and arguments: the same command continues a sweep that was stopped or killed.
-- The trap: --metric, --max, --jobs and --threads are no part of the sweep's identity; they may change when it
-- continues.
local columns = require "ganymede.cli.columns"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local rehearsal = require "ganymede.job.rehearsal"
local session = require "ganymede.job.session"
local space = require "ganymede.cli.sweep.space"

local verb = { prints = true, keeps_words = true, summary = "run a recipe with several settings and find the best" }

verb.examples = {
  "ganymede sweep first.lua --set optimizer.lr=1e-3,3e-4 --set data.batch_size=32,64",
  "ganymede sweep first.lua --set optimizer.lr=log:1e-5..1e-2 --random 16 --halving --jobs 2",
}

function verb.arguments(parser)
  parser:argument("recipe", "the Lua file that describes the run")
  parser:option("--set", "the values of a key, such as optimizer.lr=1e-3,3e-4; a range, such as "
    .. "optimizer.lr=log:1e-5..1e-2 or model.layers=2..6, is for --random; one value is that of all runs; may be "
    .. "repeated"):count "*":argname "KEY=VALUES"
  parser:option("--random", "try N settings drawn at random in place of all"):argname "N":convert(session.integer(1))
  parser:flag("--halving", "begin with short runs; after each round the better half goes on for twice as many steps")
  parser:option("--metric", "what is compared: test.NAME of the last evaluation, train.NAME as the mean of the last "
    .. "tenth of the steps (default: test.loss, or train.loss if nothing is evaluated)"):argname "NAME"
  parser:flag("--max", "the largest metric is the best; known for accuracy")
  parser:flag("--min", "the smallest metric is the best; known for loss and perplexity")
  parser:option("--jobs", "the number of runs at a time (default 1)"):argname "J":convert(session.integer(1))
  parser:option("--out", "the folder of the sweep (default: one in runs/ that the recipe and these arguments name)")
    :argname "DIR"
  parser:option("--draw-seed", "the seed of --random (default 1)"):argname "N":convert(session.integer(0))
  parser:option("--seed", "the seed of every run, in place of the recipe's"):argname "N":convert(session.integer(0))
  parser:option("-n --ranks", "number of ranks of each run"):argname "N":convert(session.integer(1))
  parser:option("--steps", "end each run after N optimizer steps and evaluate once"):argname "N"
    :convert(session.integer(1))
  parser:option("--device", "the device that computes (default: cpu)"):choices { "cpu", "cuda" }
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
  parser:flag("-q --quiet", "print the table alone, with warnings and errors")
  parser:option("--timeout", "end a run after S seconds; it then counts as failed"):argname "S"
    :convert(session.integer(1))
end

-- ---------------------------------------------------------------- what is asked

local most_is_best = { accuracy = true, loss = false, perplexity = false }

-- Refuses a metric that no run can have. known: what a rehearsal says of the first setting (ganymede.plan.metrics).
-- Settings that differ in what measures may have others.
local function refuse_unknown(axes, group, name, known)
  for _, axis in ipairs(axes) do
    if axis.key:find "^%+?hooks" or axis.key:find "^%+?metrics" or axis.key:find "^%+?loss" then return end
  end
  if group == "test" and known.others then return end
  for _, one in ipairs(known[group]) do
    if one == name then return end
  end
  failure(2, "--metric %s.%s: %s has no '%s'; there are %s%s", group, name,
    group == "test" and "an evaluation" or "a step", name, table.concat(known[group], ", "),
    options.hint(name, known[group]))
end

-- "test.loss" -> { group, name, most }. evaluates: whether the runs evaluate; known: as of refuse_unknown.
local function metric_of(args, axes, evaluates, known)
  local group, name = (args.metric or ""):match "^(%a+)%.([%w_.]+)$"
  if not group then group, name = evaluates and "test" or "train", args.metric or "loss" end
  if group ~= "test" and group ~= "train" then
    failure(2, "--metric %s: expected test.NAME or train.NAME, such as test.loss", args.metric)
  end
  if group == "test" and not evaluates then
    failure(2, "--metric %s: the recipe has no data.test to evaluate; give train.%s", args.metric, name)
  end
  refuse_unknown(axes, group, name, known)
  if args.max and args.min then failure(2, "--max and --min contradict each other; give one") end
  local most = args.max or nil
  if args.min then most = false end
  if most == nil then most = most_is_best[name:match "[^_.]*$"] end
  if most == nil then
    failure(2, "--metric %s: say whether the largest (--max) or the smallest is the best (--min)", name)
  end
  return { group = group, name = name, most = most }
end

local function refuse(args, parsed)
  if launcher.expected() > 1 or core.link_rank() then
    failure(2, "a sweep starts its runs itself; start it without mpirun or srun, and give -n for ranks of each run")
  end
  if #parsed.axes == 0 then
    failure(2, "nothing to try: give a key several values, such as --set optimizer.lr=1e-3,3e-4")
  end
  if args.draw_seed and not args.random then failure(2, "--draw-seed goes with --random") end
end

-- Rehearses a setting, as `check` does.
local function rehearse(args, parsed, setting)
  local found, failed = rehearsal { recipe = args.recipe, ranks = args.ranks,
    set = space.sets(parsed, setting), seed = args.seed, device = args.device }
  if found then return found end
  local said = {}
  for a, axis in ipairs(parsed.axes) do said[a] = axis.key .. "=" .. setting[a] end
  failure(math.max(2, failed.code), "%s\n(said by `ganymede check` of the setting %s)", failed.text,
    table.concat(said, ", "))
end

-- Resolves every setting as a run would, and rehearses as many as have all values of all lists; one that is wrong is an
-- error. Returns the recipe, and the settings and the rehearsal of the first one.
local function resolve(args, parsed, settings)
  local recipe, config = require "ganymede.config.recipe", require "ganymede.config"
  local source = recipe.read(args.recipe)
  local found = rehearse(args, parsed, settings[1]) -- which refuses a recipe that trains in code
  local given = session.strictly(recipe.run, source)
  local first, seen = nil, {}
  for _, setting in ipairs(settings) do
    local resolved = config.of_source(source, given, { set = space.sets(parsed, setting), seed = args.seed })
    first = first or resolved.config
  end
  for i, setting in ipairs(settings) do
    local is_new = false
    for a, axis in ipairs(parsed.axes) do
      local value = axis.values and a .. " " .. setting[a]
      if value and not seen[value] then seen[value], is_new = true, true end
    end
    if is_new and i > 1 then rehearse(args, parsed, setting) end
  end
  return source, first, found
end

-- Returns the rounds, and what every run needs set beside.
local function rounds_of(args, config, found, n)
  if not args.halving then return { { steps = args.steps, keep = n } }, {} end
  if n == 1 then failure(2, "--halving needs at least two settings") end
  local own = found.totals and found.totals.steps
  own = type(own) == "number" and own or nil
  local steps = args.steps or own
    or failure(2, "--halving: the recipe does not say how many steps it makes; give --steps")
  if own and steps > own then
    failure(2, "--halving --steps %d: the recipe's schedule ends after %d steps; --set steps=... or epochs=... "
      .. "makes it longer", steps, own)
  end
  local rounds = space.rounds(n, steps)
  if rounds[#rounds].steps == own then rounds[#rounds].steps = args.steps or own end
  local saves = config.checkpoint or require("ganymede.hooks.base").saves(config)
  return rounds, saves and {} or { "checkpoint.keep_last=1" }
end

local function id_of(args, source, settings)
  local parts = { source.text, args.recipe, tostring(args.steps), tostring(args.seed), tostring(args.ranks or 1),
    tostring(args.device or "cpu"), tostring(args.halving or false) }
  for _, setting in ipairs(settings) do parts[#parts + 1] = table.concat(setting.sets, "\0") end
  return require "ganymede.base.sha256"(table.concat(parts, "\1"))
end

-- Words that every run gets beside its settings.
local function words_of(args)
  local words = {}
  local function add(flag, value)
    if value then words[#words + 1], words[#words + 2] = flag, tostring(value) end
  end
  local threads = args.threads
  if not threads and (args.jobs or 1) > 1 then threads = launcher.threads(args.jobs * (args.ranks or 1)) end
  add("--seed", args.seed and ("%d"):format(args.seed))
  add("-n", (args.ranks or 1) > 1 and args.ranks or nil)
  add("--device", args.device)
  add("--threads", threads)
  add("--timeout", args.timeout)
  return words
end

-- Returns the plan (ganymede.cli.sweep.search), its id and the name of the recipe.
local function planned(args)
  local parsed = space.parse(args.set)
  refuse(args, parsed)
  local listed = args.random and space.random(parsed.axes, args.random, args.draw_seed or 1) or space.grid(parsed.axes)
  local source, config, found = rehearsal.with_workers(resolve, args, parsed, listed)
  local rounds, more = rounds_of(args, config, found, #listed)
  for _, set in ipairs(more) do table.insert(parsed.fixed, set) end
  local settings = {}
  for i, setting in ipairs(listed) do settings[i] = { sets = space.sets(parsed, setting), texts = setting } end
  local plan = { recipe = args.recipe, settings = settings, axes = parsed.axes, fixed = parsed.fixed, rounds = rounds,
    width = args.jobs or 1, words = words_of(args),
    metric = metric_of(args, parsed.axes, config.data ~= nil and config.data.test ~= nil, found.metrics) }
  return plan, id_of(args, source, settings), config.name
end

-- ---------------------------------------------------------------- what is told

-- A word as it is typed.
local function word(text) return text:match "^[%w_./=,+:-]+$" and text or machine.quote(text) end

local function command_of(args)
  local words = { "ganymede" }
  for i, text in ipairs(args.argv) do words[i + 1] = word(text) end
  return table.concat(words, " ")
end

local function state_of(row)
  if row.status == 0 then return "done" end
  if row.status == nil then return "waits" end
  return require("ganymede.observe.stats").status[row.status] or "status " .. row.status
end

local function print_table(plan, rows)
  local head, lines = { "", "run" }, {}
  for a, axis in ipairs(plan.axes) do head[a + 2] = axis.key:gsub("^%+", "") end
  local metric = plan.metric.group .. "." .. plan.metric.name
  for _, name in ipairs { metric, "steps", "seconds", "state" } do head[#head + 1] = name end
  for i, row in ipairs(rows) do
    local line = { ("%d"):format(i), ("%03d"):format(row.run), unpack(row.texts) }
    for _, pair in ipairs { { "%.6g", row.value }, { "%d", row.steps }, { "%.1f", row.seconds },
      { "%s", state_of(row) } } do
      line[#line + 1] = pair[2] and pair[1]:format(pair[2]) or "-"
    end
    lines[i] = line
  end
  for _, line in ipairs(columns.lines({ head, unpack(lines) }, columns.numbers)) do print(line) end
end

local function print_failures(rows)
  for _, row in ipairs(rows) do
    if row.status and row.status ~= 0 then print(("\nrun %03d: %s"):format(row.run, row.why or state_of(row))) end
  end
end

local function print_best(plan, rows, folder, args)
  local best, own, all = rows[1], {}, {}
  if not best or best.status ~= 0 then return end
  for i, axis in ipairs(plan.axes) do own[i] = "--set " .. word(axis.key .. "=" .. best.texts[i]) end
  for i, set in ipairs(best.sets) do all[i] = "--set " .. word(set) end
  print(("\nthe best setting (%s.%s %.6g, %s):\n\n  %s\n\n  ganymede run %s %s"):format(plan.metric.group,
    plan.metric.name, best.value, folder:of(best.run), table.concat(own, " "), word(args.recipe),
    table.concat(all, " ")))
end

local function document(plan, id, args, rows)
  local out = { id = id, recipe = args.recipe, command = command_of(args), metric = plan.metric.group .. "."
    .. plan.metric.name, best_is = plan.metric.most and "max" or "min", runs = json.array() }
  for i, row in ipairs(rows) do
    out.runs[i] = { run = row.run, sets = json.array { unpack(row.sets) }, state = state_of(row), status = row.status,
      value = row.value, steps = row.steps, seconds = row.seconds, why = row.why }
  end
  return out
end

local function sweep(args)
  session.open_device { device = "meta" }
  local plan, id, name = planned(args)
  local folder = require "ganymede.cli.sweep.folder"(args.out or ("runs/%s-sweep-%s"):format(name, id:sub(1, 8)), id)
  log.info("%d settings, %d run%s at a time, in %s%s", #plan.settings, plan.width, plan.width == 1 and "" or "s",
    folder.path, folder.continues and " (continues)" or "")
  local rows = failure.protect(function() folder:close() end, require "ganymede.cli.sweep.search", plan, folder,
    function(rows) folder:write(document(plan, id, args, rows)) end)
  folder:write(document(plan, id, args, rows))
  return plan, rows, folder
end

function verb.run(args)
  if args.quiet then log.level = math.min(log.level, 1) end
  local plan, rows, folder = session.with_signals({}, sweep, args)
  print_table(plan, rows)
  print_failures(rows)
  print_best(plan, rows, folder, args)
  if not rows[1] or rows[1].status ~= 0 then failure(1, "no run of the sweep in %s came to its end", folder.path) end
end

return verb
