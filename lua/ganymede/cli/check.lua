--- ganymede check RECIPE: what `run` would do, without doing it.
--
-- Resolves the settings, builds the model on the meta device (shapes without numbers), runs one optimizer step
-- there, and prints: every setting with its origin, every parameter with its shape, bytes of parameters,
-- gradients, optimizer and activations, floating point operations of a step. Data files are opened, since
-- their shapes count, but no sample is read. With -n N it does so as one rank of N (--rank, default 0), over a
-- transport that counts and moves nothing: mesh, layouts, its part of a batch, and what it would send in a step.
-- Parts of `parallel` that no run can do yet are named; the numbers then are of the model whole on every rank.
-- The trap: hooks are built by `run` only, so what they send is not counted.
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local json = require "ganymede.json"
local machine = require "ganymede.machine"
local options = require "ganymede.options"
local run = require "ganymede.cli.run"
local session = require "ganymede.session"

local verb = { summary = "what a recipe would train, and what it would take" }

function verb.arguments(parser)
  run.shared_arguments(parser)
  parser:option("--rank", "which of the ranks of -n to be"):argname "R":convert(session.integer(0)):default "0"
  parser:flag("--json", "one JSON document instead of tables")
end

local function product(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

-- "replicated", "cut (data, -)", "cut (-, row.col) partial depth"
local function described(layout)
  local cuts, is_cut = {}, false
  for i, axes in ipairs(layout.cuts) do
    cuts[i] = #axes > 0 and table.concat(axes, ".") or "-"
    is_cut = is_cut or #axes > 0
  end
  local said = is_cut and "cut (" .. table.concat(cuts, ", ") .. ")" or "replicated"
  return #layout.partial > 0 and said .. " partial " .. table.concat(layout.partial, ".") or said
end

local function placed(t)
  return { shape = json.array(t:shape()), local_shape = json.array(t:local_tensor():shape()),
    layout = described(core.layout(t)) }
end

local function parameters_of(model)
  local out, tensors = {}, {}
  for _, p in ipairs(model:named_parameters()) do tensors[p.name] = p.tensor end
  for i, p in ipairs(model:declared()) do
    local t = tensors[p.name]
    out[i] = { name = p.name, shape = json.array { unpack(p.shape) }, count = product(p.shape),
      tied = p.tied or nil, layout = t and described(core.layout(t)) or nil }
  end
  return out
end

-- The recipe's schedule, which notes how the first batch lies on the ranks.
local function noting(schedule, batch)
  local inner = require("ganymede.registry").schedules:build(schedule or { type = "NonPipelineSchedule" })
  local function forward_backward_step(_, engine, iter, opt)
    return inner:forward_backward_step(engine, function()
      local x, y = iter()
      if x ~= nil and not batch.x then batch.x, batch.y = placed(x), y ~= nil and placed(y) or nil end
      return x, y
    end, opt)
  end
  return setmetatable({ forward_backward_step = forward_backward_step }, {})
end

-- One step of the trainer on meta, without hooks: they may look at numbers.
local function rehearse(settings)
  local alone = {}
  for key, value in pairs(settings) do alone[key] = value end
  local batch, stats = {}, {}
  alone.hooks, alone.checkpoint, alone.schedule = {}, nil, noting(settings.schedule, batch)
  if core.world() > 1 then core.comm_reset_traffic() end
  local trainer = require("ganymede").fit(alone, { steps = 1, no_eval = true, stats = stats, rehearsal = true })
  return trainer, stats, batch
end

-- Where tensors were made that took the most at their peak.
local function places()
  local out = {}
  for i, holder in ipairs(core.memory_peaks(12)) do out[i] = { place = holder.place, peak_bytes = holder.peak } end
  return out
end

-- What this rank sends in a step, by op, phase and axes; nothing on one rank.
local function traffic(stats)
  local out = {}
  for i, e in ipairs(stats.rank.comm) do
    out[i] = { op = e.op, phase = e.phase, axes = e.axes, calls = e.calls, bytes = e.bytes_logical }
  end
  return out
end

local function totals(settings, trainer, stats)
  local rank = stats.rank
  local per_epoch = trainer.steps_per_epoch
  local steps = settings.steps
  if settings.epochs and per_epoch then steps = math.min(steps or math.huge, settings.epochs * per_epoch) end
  return {
    parameters = trainer.engine.model:count(), parameter_bytes = rank.parameter_bytes,
    gradient_bytes = rank.gradient_bytes, optimizer_bytes = rank.optimizer_bytes,
    activation_peak_bytes = rank.activation_peak_bytes, peak_bytes = rank.peak_bytes,
    flops_per_step = rank.flops, samples_per_step = trainer.samples_per_step, steps_per_epoch = per_epoch,
    steps = steps,
  }
end

local function always() return true end

--- Everything `check` knows about a recipe -> table.
function verb.examine(args)
  local recipe = require "ganymede.recipe"
  local source = recipe.read(args.recipe)
  session.open_device { device = "meta" }
  if (args.ranks or 1) > 1 then
    if args.rank >= args.ranks then failure(2, "--rank %d: there are %d ranks, from 0", args.rank, args.ranks) end
    core.pretend(args.rank, args.ranks)
  end
  local given = session.strictly(recipe.run, source)
  if not given then
    failure(2, "%s returns no table: check cannot look into a recipe that trains in code", source.path)
  end
  session.load_classes()
  local resolved = run.resolve(args, source, given)
  local trainer, stats, batch = session.blaming_recipe(source.path, always, rehearse, resolved.config)
  local key, reason = require("ganymede.schema").not_built(require("ganymede.context").current().plan)
  return {
    recipe = source.path, name = resolved.config.name, world = core.world(), dtype = resolved.config.dtype,
    rank = core.rank(), mesh = core.mesh(), not_built = key and ("%s: %s"):format(key, reason) or nil,
    settings = resolved:rows(), parameters = parameters_of(trainer.engine.model), batch = batch,
    totals = totals(resolved.config, trainer, stats), places = places(), sent = traffic(stats),
  }
end

-- ---------------------------------------------------------------- printing

local function columns(rows)
  local width = {}
  for _, row in ipairs(rows) do
    for i = 1, #row - 1 do width[i] = math.max(width[i] or 0, #row[i]) end
  end
  for _, row in ipairs(rows) do
    local line = {}
    for i, cell in ipairs(row) do line[i] = i < #row and cell .. (" "):rep(width[i] - #cell) or cell end
    print("  " .. table.concat(line, "  "))
  end
end

local function thousands(n)
  local text = ("%d"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

local function print_settings(found)
  local rows = {}
  for i, row in ipairs(found.settings) do rows[i] = { row.path, options.literal(row.value), row.origin } end
  print "settings"
  columns(rows)
end

local function print_parameters(found)
  local rows = {}
  for i, p in ipairs(found.parameters) do
    rows[i] = { p.name, "(" .. table.concat(p.shape, ", ") .. ")", p.tied and "tied" or thousands(p.count) }
    if found.world > 1 then table.insert(rows[i], 3, p.layout or "") end
  end
  print "\nparameters"
  columns(rows)
end

local function print_ranks(found)
  if found.world == 1 then return end
  local rows = {}
  for i, axis in ipairs(found.mesh) do rows[i] = { axis.name, ("%d of %d"):format(axis.coordinate, axis.size) } end
  print(("\nmesh, and where rank %d is on it (from 0)"):format(found.rank))
  columns(rows)
  if found.not_built then print("  " .. found.not_built .. "; what follows is of whole models") end
  rows = {}
  for _, name in ipairs { "x", "y" } do
    local t = found.batch[name]
    local function shown(shape) return "(" .. table.concat(shape, ", ") .. ")" end
    if t then rows[#rows + 1] = { name, shown(t.shape), t.layout, "here " .. shown(t.local_shape) } end
  end
  print "\na batch"
  columns(rows)
  rows = {}
  for i, e in ipairs(found.sent) do
    rows[i] = { e.op, e.phase, table.concat(e.axes, "."), thousands(e.calls) .. " calls", machine.bytes(e.bytes) }
  end
  print "\nsent by this rank in a step"
  columns(rows)
end

local function print_totals(found)
  local t = found.totals
  local rows = {
    { "parameters", thousands(t.parameters) .. ", " .. machine.bytes(t.parameter_bytes) },
    { "gradients", machine.bytes(t.gradient_bytes) },
    { "optimizer", machine.bytes(t.optimizer_bytes) },
    { "activations, at most", machine.bytes(t.activation_peak_bytes) },
    { "all tensors, at most", machine.bytes(t.peak_bytes) },
    { "one step", ("%.3g GFLOP on %d samples"):format(t.flops_per_step / 1e9, t.samples_per_step) },
  }
  if t.steps then rows[#rows + 1] = { "the run", ("%s steps"):format(thousands(t.steps)) } end
  print(found.world == 1 and "\none rank" or ("\nrank %d"):format(found.rank))
  columns(rows)
  rows = {}
  for i, place in ipairs(found.places) do rows[i] = { place.place, machine.bytes(place.peak_bytes) } end
  print "\nlargest at their peaks"
  columns(rows)
end

local function print_json(found)
  local stats = require "ganymede.stats"
  for i, row in ipairs(found.settings) do
    found.settings[i] = { key = row.path, value = stats.jsonable(row.value), origin = row.origin }
  end
  for _, list in ipairs { "settings", "parameters", "places", "mesh", "sent" } do
    found[list] = json.array(found[list])
  end
  print(json.encode(found, { indent = true }))
end

function verb.run(args)
  run.refuse_unserved(args)
  local found = session.with_signals({}, verb.examine, args)
  if args.json then return print_json(found) end
  print(("%s: %s, %s on %d rank%s\n"):format(found.recipe, found.name, found.dtype, found.world,
    found.world == 1 and "" or "s"))
  print_settings(found)
  print_parameters(found)
  print_ranks(found)
  print_totals(found)
end

return verb
