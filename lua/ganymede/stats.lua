--- The JSON document of --stats (version 1): what a run was and how it went, also when it failed.
--
-- The trainer fills `run` while it works; what it did not reach stays out or empty. Scripts rely on the names.
-- `loss` holds the global loss before each update, with all digits.
local core = require "ganymede.core"
local json = require "ganymede.json"
local literal = require "ganymede.literal"

local stats = {}

stats.status = { [0] = "done", [1] = "error", [2] = "wrong", [4] = "does not fit", [5] = "damaged", [6] = "rank died",
  [7] = "hung", [8] = "diverged", [75] = "preempted", [130] = "interrupted", [143] = "terminated" }

-- Settings as JSON: what has no such form (functions, objects) is named by its type.
local function jsonable(v)
  if type(v) == "table" and getmetatable(v) == nil then
    local out, is_list = {}, #v > 0
    for key, value in pairs(v) do out[is_list and key or tostring(key)] = jsonable(value) end
    for key in pairs(out) do
      if is_list and type(key) ~= "number" then return literal.show(v) end -- positions and names together
    end
    return out
  end
  if type(v) == "number" or type(v) == "string" or type(v) == "boolean" then return v end
  return "(a " .. type(v) .. ")"
end
stats.jsonable = jsonable

local function list(t)
  local out = {}
  for i, v in ipairs(t or {}) do out[i] = v end
  return json.array(out)
end

local function rank(run)
  local memory, counters = core.memory(), core.counters()
  local given = run.ranks and run.ranks[1] or run.rank or {}
  local out = { rank = core.rank(), peak_bytes = memory.peak, flops = counters.flops, kernels = counters.calls,
    parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, activation_peak_bytes = 0 }
  for key, value in pairs(given) do out[key] = value end
  out.comm = list(given.comm)
  return out
end

local function per_second(amount, seconds) return amount and seconds > 0 and amount / seconds or json.null end

local function metrics_of(run)
  local given = run.metrics or {}
  return { train = given.train or {}, test = given.test or {} }
end

--- The document.
-- @param run what the trainer filled: loss, metrics, steps, seconds, samples, tokens, global_batch, rank, ...
-- @param about exit_code, error (text or nil), settings (resolved, or nil), recipe_hash, started (core.now())
function stats.document(run, about)
  local device = core.device()
  local seconds = run.seconds or (about.started and core.now() - about.started) or 0
  local settings = about.settings
  local data = settings and settings.data or {}
  local document = {
    version = 1, status = stats.status[about.exit_code] or "error", exit_code = about.exit_code,
    error = about.error or json.null, recipe_hash = about.recipe_hash or json.null,
    resolved = settings and jsonable(settings) or {},
    world = core.world(), mesh = {}, device = device.name, dtype = core.default_dtype(), threads = device.threads,
    seed = core.seed(),
    global_batch = run.global_batch or data.batch_size or json.null,
    steps = run.steps or #(run.loss or {}), seconds = seconds,
    samples_per_second = run.samples_per_second or per_second(run.samples, seconds),
    tokens_per_second = run.tokens_per_second or per_second(run.tokens, seconds),
    loss = list(run.loss), metrics = metrics_of(run), ranks = json.array { rank(run) },
  }
  for key, value in pairs(run.more or {}) do document[key] = value end
  return document
end

--- Writes the document whole or not at all.
function stats.write(path, document)
  core.write_whole(path, json.encode(document, { indent = true }) .. "\n")
end

return stats
