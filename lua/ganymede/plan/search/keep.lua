--- The parts of a setting that a search keeps: `--keep key=value`.
--
--     keep.parse { "parallel.pipeline=2", "parallel.tensor={size=4,mode='2d'}", "parallel.data.bucket_mb=16" }
--     --> { pipeline = 2, tensor_size = 4, tensor_mode = "2d", more = { ["data.bucket_mb"] = 16 }, stored = {} }
--
-- Keys are those of a recipe. What a search does not choose (transport, bucket sizes and so on) goes into every setting
-- as it is; what is about stage 3 of ZeRO (zero.keep) goes into those of stage 3. Unknown keys and values without a
-- meaning are status 2.
-- @module ganymede.plan.search.keep
local failure = require "ganymede.base.failure"
local literal = require "ganymede.base.literal"
local options = require "ganymede.base.options"
local parallel = require "ganymede.job.parallel"
local zero = require "ganymede.optim.zero_setting"

local keep = {}

-- Key of a recipe -> name in a search.
local parts = {
  ["parallel.data"] = "data", ["parallel.data.size"] = "data", ["parallel.expert"] = "expert",
  ["parallel.expert.size"] = "expert", ["parallel.pipeline"] = "pipeline", ["parallel.pipeline.size"] = "pipeline",
  ["parallel.pipeline.chunks"] = "chunks", ["parallel.pipeline.split"] = "split",
  ["parallel.tensor"] = "tensor_size", ["parallel.tensor.size"] = "tensor_size",
  ["parallel.tensor.mode"] = "tensor_mode", ["parallel.tensor.depth"] = "tensor_depth",
  ["parallel.tensor.sequence"] = "tensor_sequence", ["parallel.sequence"] = "sequence_size",
  ["parallel.sequence.size"] = "sequence_size", ["parallel.sequence.mode"] = "sequence_mode",
  ["parallel.order"] = "order", num_microbatches = "micro", schedule = "schedule", ["schedule.order"] = "schedule",
  zero = "zero", ["zero.stage"] = "zero", recompute = "recompute", gradient_accumulation = "accumulation",
}

-- What every setting takes as it is: a part of the table parallel, or a setting of its own.
local through = { ["parallel.transport"] = true, ["parallel.data.bucket_mb"] = true, ["parallel.data.overlap"] = true,
  ["parallel.data.shard"] = true, ["parallel.tensor.keep_gathered"] = true, ["zero.whole_below"] = true,
  ["zero.keep"] = true, ["zero.ahead"] = true }

-- The declaration of a key, such as parallel.data.bucket_mb; nil: it is none of parallel and zero.
local function entry_of(key)
  local entry = { fields = { parallel = { fields = parallel.fields }, zero = { fields = zero.fields } } }
  for name in key:gmatch "[^.]+" do entry = entry and entry.fields and entry.fields[name] end
  return entry
end

-- Refuses what no recipe may say. in_table: a table parallel with the value alone, or nothing.
local function check_declared(key, value, in_table)
  local entry = entry_of(key)
  local of_zero = key:match "^zero%.([^.]+)$"
  local why = entry and options.problem(entry, value) or of_zero and zero.problem { stage = 3, [of_zero] = value }
  if why then failure(2, "--keep %s: %s", key, why) end
  if not in_table then return end
  local plan, _, _, wrong = parallel.resolve(in_table, 1)
  if not plan then failure(2, "--keep %s: %s", key, wrong) end
end

local words = { data = "integer", expert = "integer", pipeline = "integer", chunks = "integer", tensor_size = "integer",
  tensor_depth = "integer", sequence_size = "integer", micro = "integer", zero = "integer", accumulation = "integer",
  tensor_mode = { "1d", "2d", "2.5d", "3d" }, sequence_mode = { "ring", "ulysses" },
  recompute = { "none", "attention", "block" },
  schedule = { "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v" } }

local function check(key, name, value)
  local wanted = words[name]
  if not wanted then
    return check_declared(key, value, name == "order" and { order = value } or name == "split"
      and { pipeline = { split = value } })
  end
  if wanted == "integer" then
    local least = name == "zero" and 0 or 1
    if type(value) == "number" and value >= least and value % 1 == 0 and (name ~= "zero" or value <= 3) then return end
    failure(2, "--keep %s: an integer of at least %d%s was expected; got %s", key, least,
      name == "zero" and ", at most 3," or "", options.literal(value))
  end
  for _, word in ipairs(type(wanted) == "table" and wanted or {}) do
    if word == value then return end
  end
  if type(wanted) == "table" then
    failure(2, "--keep %s: one of %s was expected; got %s", key, table.concat(wanted, ", "), options.literal(value))
  end
end

local function names()
  local list = {}
  for _, known in ipairs { parts, through } do
    for key in pairs(known) do list[#list + 1] = key end
  end
  table.sort(list)
  return list
end

local take -- forward

local function take_table(out, key, value)
  if next(value) == nil then failure(2, "--keep %s: an empty table keeps nothing", key) end
  for _, own in ipairs(options.sorted_keys(value)) do take(out, key .. "." .. own, value[own]) end
end

function take(out, key, value)
  local splits = key == "parallel.order" or key == "parallel.pipeline.split"
  if key == "schedule.type" and value == "PipelineSchedule" then return end
  if type(value) == "table" and not splits then return take_table(out, key, value) end
  if through[key] then
    check_declared(key, value)
    local path = key:match "^parallel%.(.+)$"
    if path then out.more[path] = value else out.stored[key:match "^zero%.(.+)$"] = value end
    return
  end
  local name = parts[key]
  if not name then failure(2, "--keep %s: a plan chooses no such key%s", key, options.hint(key, names())) end
  check(key, name, value)
  if out[name] ~= nil and out[name] ~= value then failure(2, "--keep %s is given twice", key) end
  out[name] = value
end

--- Returns the parts that a list of "key=value" keeps.
function keep.parse(list)
  local out = { more = {}, stored = {} }
  for _, text in ipairs(list or {}) do
    local key, value = text:match "^([^=]+)=(.*)$"
    if not key then failure(2, "--keep %s: expected key=value, such as parallel.pipeline=2", text) end
    local ok, parsed = pcall(literal.parse, value)
    if not ok then failure(2, "--keep %s: %s", key, tostring(parsed)) end
    take(out, key, parsed)
  end
  if next(out.stored) and (out.zero or 3) ~= 3 then
    failure(2, "--keep zero.%s is about parameters that stage 3 of ZeRO divides, and zero=%d is kept; leave one of "
      .. "them out", next(out.stored), out.zero)
  end
  return out
end

--- Returns the keys of which a plan chooses the values, for messages: parallel, zero and so on.
function keep.chooses(key)
  local first = key:match "^[^.]+"
  return first == "parallel" or parts[first] ~= nil or first == "schedule"
end

return keep
