-- step.lua - predicts a step of a published setting: rehearses one rank of each stage, rewrites the records as the
-- published software works (software.lua), and replays all ranks on a machine.
--
--     local found = step.predict(setting, machine, software, folder)   -- { seconds, bytes, ranks, rehearsals }
--
-- setting: model (options of GPT or Llama, with type), sequence, data, tensor, pipeline, chunks, micro (sequences of a
-- micro-batch), pieces (micro-batches of a step), zero, recompute, sequence_parallel, overlap and bucket (megabytes) of
-- gradients, gradients (their dtype: "f32", or "auto" for that of the parameters), split (sections of each stage, a
-- list; without it FLOPs are balanced), and overrides (more settings, a list of texts).
-- In these models all data and tensor ranks of a stage do the same, so each stage is rehearsed once. A step's time is
-- linear in the number of micro-batches once the pipeline is full: two numbers are rehearsed, and the rest follows
-- (`run.lua --set whole=true` rehearses all of them, to see that this is so). What was rehearsed is kept in the folder.
local core = require "ganymede.core"
local files = require "ganymede.base.machine"
local json = require "ganymede.base.json"
local machines = require "ganymede.plan.machine"
local parallel = require "ganymede.job.parallel"
local rehearsal = require "ganymede.job.rehearsal"
local software = require "software"

local step = {}

local function option(v)
  if type(v) ~= "table" then return type(v) == "string" and ("'%s'"):format(v) or tostring(v) end
  local keys, words = {}, {}
  for key in pairs(v) do keys[#keys + 1] = key end
  table.sort(keys)
  for i, key in ipairs(keys) do words[i] = key .. "=" .. option(v[key]) end
  return "{" .. table.concat(words, ",") .. "}"
end

-- Returns the settings of a rehearsal of so many micro-batches.
local function settings_of(s, pieces)
  local set = { "model=" .. option(s.model), "data.train.sequence_length=" .. s.sequence }
  local function add(...) set[#set + 1] = (...):format(select(2, ...)) end
  if s.data > 1 or s.overlap == false then
    add("parallel.data={size=%d,overlap=%s%s}", s.data, tostring(s.overlap ~= false),
      s.bucket and s.data > 1 and (",bucket_mb=%d"):format(s.bucket) or "")
  end
  if s.tensor > 1 then
    add("parallel.tensor={size=%d,mode='1d',sequence=%s}", s.tensor, tostring(s.sequence_parallel ~= false))
  end
  if s.pipeline > 1 then
    local split = s.split and ("{%s}"):format(table.concat(s.split, ",")) or "'flops'"
    add("parallel.pipeline={size=%d,split=%s%s}", s.pipeline, split,
      s.chunks and s.chunks > 1 and (",chunks=%d"):format(s.chunks) or "")
    add("schedule={type='PipelineSchedule',order='%s'}", s.chunks and s.chunks > 1 and "interleaved" or "1f1b")
    add("num_microbatches=%d", pieces)
    add("data.batch_size=%d", s.data * s.micro * pieces)
  else
    add("gradient_accumulation=%d", pieces)
    add("data.batch_size=%d", s.data * s.micro)
  end
  if (s.zero or 0) > 0 and s.data > 1 then add("zero=%d", s.zero) end
  if s.recompute then add("recompute=%s", s.recompute) end
  for _, more in ipairs(s.overrides or {}) do set[#set + 1] = more end
  if s.gradients == "auto" then add("gradient_dtype=%s", s.gradients) end -- the recipe's is f32
  return set
end

-- The file of tokens that rehearsals read: zeros, as long as its longest sequence and batch need.
local function tokens_of(folder)
  local path = folder .. "/tokens"
  if not files.read(path) then core.write_whole(path, ("\0"):rep(2 ^ 19)) end
  return "data.train.path=" .. path
end

local function rehearse(s, pieces, rank, folder, path)
  local kept = files.read(path .. ".json")
  if not kept and step.kept_only then error("it has not been rehearsed", 0) end
  if kept then return json.decode(kept, path) end
  local set = settings_of(s, pieces)
  set[#set + 1] = tokens_of(folder)
  local found, failed = rehearsal { recipe = GANYMEDE_ROOT .. "/spec/bench/published/recipe.lua",
    ranks = s.data * s.tensor * s.pipeline, rank = rank, set = set, device = "cuda", step_file = path .. ".raw" }
  if not found then error(("%s\n  settings: %s"):format(failed.text, table.concat(set, " ")), 0) end
  software.strip(path .. ".raw", path)
  os.remove(path .. ".raw")
  local kept_figures = { mesh = found.mesh, peak = found.totals.peak_bytes,
    parameters = found.totals.parameters, products = found.totals.product_flops_per_step }
  core.write_whole(path .. ".json", json.encode(kept_figures))
  return kept_figures
end

-- FNV-1a, 32 bits, as a name of files.
local function name_of(text)
  local bit = require "bit"
  local h = 2166136261
  for i = 1, #text do h = bit.tobit(bit.bxor(h, text:byte(i)) * 403 + bit.lshift(h, 24)) end
  return bit.tohex(h)
end

-- Returns the role of each rank of the mesh in the order of axes of the software: its stage + 1.
local function roles_of(mesh)
  local stages, stride = parallel.stages(mesh)
  local world, out = 1, {}
  for _, axis in ipairs(mesh) do world = world * axis.size end
  for rank = 0, world - 1 do out[rank + 1] = math.floor(rank / stride) % stages + 1 end
  return out
end

-- Simulates so many micro-batches -> seconds, the most bytes of a rank, the number of rehearsals.
local function simulated(s, pieces, about, how, folder)
  local key = name_of(table.concat(settings_of(s, pieces), " "))
  local first = rehearse(s, pieces, 0, folder, ("%s/%s.1"):format(folder, key))
  local stages, stride = parallel.stages(first.mesh)
  local paths, bytes = {}, 0
  for i = 1, stages do
    local path = ("%s/%s.%d"):format(folder, key, i)
    local found = i == 1 and first or rehearse(s, pieces, (i - 1) * stride, folder, path)
    bytes = math.max(bytes, found.peak + (i == stages and software.bytes_of_losses(s, how) or 0))
    paths[i] = os.tmpname()
    software.rewrite(path, paths[i], software.with(how, software.place(about, i - 1, s.chunks)))
  end
  local mesh = software.order(first.mesh, how)
  local replay = core.simulate(about, paths, roles_of(mesh))
  for _, path in ipairs(paths) do os.remove(path) end
  return replay.seconds, bytes, replay
end

--- Predicts. about: a machine of machines.read; how: a table of software.lua; whole: rehearse all micro-batches.
function step.predict(s, about, how, folder, whole)
  core.make_folders(folder)
  machines.peak_of(about, "bf16")
  about = software.machine(about, how)
  local low = s.pipeline > 1 and s.pipeline or 1
  local high = low + (s.pipeline > 1 and (s.chunks or 1) > 1 and s.pipeline or s.pipeline > 1 and 2 or 1)
  if s.pieces <= high or whole then
    local seconds, bytes = simulated(s, s.pieces, about, how, folder)
    return { seconds = seconds, bytes = bytes }
  end
  local first = simulated(s, low, about, how, folder)
  local second, bytes = simulated(s, high, about, how, folder)
  return { seconds = second + (s.pieces - high) * (second - first) / (high - low), bytes = bytes }
end

return step
