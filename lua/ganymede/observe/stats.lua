--- The JSON document of --stats (version 1): the settings of a run and its results, also if the run failed.
--
-- The trainer fills `run` while it works; what it did not reach is left out or empty. Scripts rely on the names. `loss`
-- is the list of the global losses before each update, with all digits. Rank 0 writes the document. `ranks` has an
-- entry for every rank if all of them reached the end; otherwise only that of rank 0.
local core = require "ganymede.core"
local energy = require "ganymede.observe.energy"
local held = require "ganymede.tensor.held"
local json = require "ganymede.base.json"
local literal = require "ganymede.base.literal"
local parallel = require "ganymede.job.parallel"
local ranks = require "ganymede.job.ranks"
local readable = require "ganymede.base.readable"
local slowest = require "ganymede.observe.slowest"

local stats = {}

stats.status = { [0] = "done", [1] = "error", [2] = "wrong", [4] = "does not fit", [5] = "damaged", [6] = "rank died",
  [7] = "hung", [8] = "diverged", [75] = "preempted", [130] = "interrupted", [143] = "terminated" }

-- Returns settings as JSON values. A value without such a form (a function, an object) becomes the name of its type.
-- Bytes that are no UTF-8 are shown as \xNN.
local function jsonable(v)
  if type(v) == "table" and getmetatable(v) == nil then
    local out, is_list = {}, #v > 0
    for key, value in pairs(v) do out[is_list and key or readable(tostring(key))] = jsonable(value) end
    for key in pairs(out) do
      if is_list and type(key) ~= "number" then return literal.show(v) end -- positions and names together
    end
    return out
  end
  if type(v) == "string" then return readable(v) end
  if type(v) == "number" or type(v) == "boolean" then return v end
  return "(a " .. type(v) .. ")"
end
stats.jsonable = jsonable

local function list(t)
  local out = {}
  for i, v in ipairs(t or {}) do out[i] = v end
  return json.array(out)
end

local function held_by(engine)
  local parameters, gradients = 0, 0
  for _, t in ipairs(engine.parameters) do
    parameters = parameters + held.bytes(t)
    gradients = gradients + held.gradient_bytes(t)
  end
  local ring = engine.ring_bytes or 0 -- of offload; counted with what passes through it first of all
  local scales = engine.float8 and engine.float8:bytes() or 0 -- from step to step, as the optimizer's state
  return parameters, gradients, engine.optimizer:bytes() + ring + scales
end

-- Returns what this rank has sent, by axes, op and phase.
local function traffic()
  local entries = {}
  for i, e in ipairs(core.world() > 1 and core.comm_traffic() or {}) do
    entries[i] = { axes = json.array(parallel.axis_names(e.group)), op = e.op, phase = e.phase, calls = e.calls,
      bytes_logical = e.bytes, bytes_copied = e.copied, seconds = e.seconds, seconds_exposed = e.exposed }
  end
  return json.array(entries)
end

-- Returns, in a pipeline, this rank's stage (from 0) and its parts of the model (from 1), by chunk.
local function place_of(engine)
  local stage = engine and engine.stage
  if not stage or stage.n_parts == 1 then return nil end
  return stage.rank, list(stage.parts)
end

--- Returns what this rank holds now, held at most, computed and sent. engine: the engine whose tensors are meant; nil:
-- nothing was built.
function stats.rank(engine)
  local memory, counters = core.memory(), core.counters()
  local parameters, gradients, moments = 0, 0, 0
  if engine then parameters, gradients, moments = held_by(engine) end
  local stage, parts = place_of(engine)
  return { rank = core.rank(), stage = stage, parts = parts,
    parameter_bytes = parameters, gradient_bytes = gradients, optimizer_bytes = moments,
    offload = engine and engine.tier and engine.tier:stats(),
    peak_bytes = memory.peak, activation_peak_bytes = math.max(0, memory.peak - parameters - gradients - moments),
    host_peak_bytes = core.device().apart and memory.host_peak or nil,
    host_scratch_peak_bytes = core.device().apart and memory.host_scratch_peak or nil,
    scratch_peak_bytes = memory.scratch_peak, pinned_bytes = memory.pinned,
    device_calls = core.device_counts(),
    flops = counters.flops, product_flops = counters.product_flops, kernels = counters.calls, comm = traffic() }
end

--- Sets run.ranks to the entries of all ranks, from their run.rank. Collective; called once in a run.
function stats.gather(run)
  if run.ranks then return end
  run.rank = run.rank or stats.rank()
  run.ranks = {}
  for i, text in ipairs(ranks.texts(json.encode(run.rank))) do
    run.ranks[i] = json.decode(text, "statistics")
    run.ranks[i].comm = list(run.ranks[i].comm)
    run.ranks[i].parts = run.ranks[i].parts and list(run.ranks[i].parts)
    for _, entry in ipairs(run.ranks[i].comm) do entry.axes = list(entry.axes) end
  end
end

--- Returns a line for the end of a run, with what this rank held and sent: the figures that `check` predicts. rank: the
-- result of stats.rank; steps: the number of steps.
function stats.summary(rank, steps)
  local bytes, sent = require("ganymede.base.machine").bytes, 0
  for _, e in ipairs(rank.comm) do
    if e.phase == "forward" or e.phase == "backward" or e.phase == "update" then sent = sent + e.bytes_logical end
  end
  local said = ("rank %d held %s of parameters, %s of gradients, %s of optimizer state, %s at most"):format(rank.rank,
    bytes(rank.parameter_bytes), bytes(rank.gradient_bytes), bytes(rank.optimizer_bytes), bytes(rank.peak_bytes))
  if rank.offload and rank.offload.tier == "disk" then
    said = ("%s, and %s on the disk"):format(said, bytes(rank.offload.placed_bytes))
  end
  if (rank.host_peak_bytes or 0) > 0 then
    said = ("%s, and %s of page-locked memory of the host"):format(said, bytes(rank.host_peak_bytes))
  end
  return core.world() == 1 and said or ("%s, and sent %s a step"):format(said, bytes(sent / math.max(1, steps)))
end

local function mesh()
  local sizes = {}
  for _, axis in ipairs(core.mesh()) do sizes[axis.name] = axis.size end
  return sizes
end

local function per_second(amount, seconds) return amount and seconds > 0 and amount / seconds or json.null end

-- Returns the entries of all ranks if they were gathered; otherwise that of this rank.
local function energy_of(run)
  local reports = {}
  for _, rank in ipairs(run.ranks or { run.rank }) do table.insert(reports, rank.energy) end
  return energy.total(reports, { tokens = run.tokens, samples = run.samples })
end

local function metrics_of(run)
  local given = run.metrics or {}
  return { train = given.train or {}, test = given.test or {} }
end

--- Returns the document. Collective if the exit status is 0 and the entries of the ranks were not gathered yet.
-- @param run what the trainer filled: loss, metrics, steps, seconds, samples, tokens, global_batch, rank, ...
-- @param about exit_code, error (text or nil), settings (resolved, or nil), recipe_hash, started (core.now())
function stats.document(run, about)
  local device = core.device()
  local seconds = run.seconds or (about.started and core.now() - about.started) or 0
  if about.exit_code == 0 then stats.gather(run) end
  local settings = about.settings
  local data = settings and settings.data or {}
  local document = {
    version = 1, status = stats.status[about.exit_code] or "error", exit_code = about.exit_code,
    error = about.error and readable(about.error) or json.null, recipe_hash = about.recipe_hash or json.null,
    resolved = settings and jsonable(settings) or {},
    world = core.world(), mesh = mesh(), device = device.name, dtype = core.default_dtype(), threads = device.threads,
    seed = core.seed(),
    global_batch = run.global_batch or data.batch_size or json.null,
    steps = run.steps or #(run.loss or {}), seconds = seconds,
    samples_per_second = run.samples_per_second or per_second(run.samples, seconds),
    tokens_per_second = run.tokens_per_second or per_second(run.tokens, seconds),
    energy = energy_of(run), loss_scaling = run.loss_scaling or json.null,
    loss = list(run.loss), metrics = metrics_of(run), ranks = json.array(run.ranks or { run.rank or stats.rank() }),
  }
  document.slowest = run.ranks and slowest.of_run(run.ranks, seconds) or json.null
  for key, value in pairs(run.more or {}) do document[key] = value end
  return document
end

--- Writes the document, whole or not at all. Only rank 0 writes.
function stats.write(path, document)
  if not ranks.is_first() then return end
  core.write_whole(path, json.encode(document, { indent = true }) .. "\n")
end

return stats
