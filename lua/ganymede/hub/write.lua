--- Writes tensors as safetensors files, of one rank or of a model that is cut over ranks and stages.
--
--     gm.save_arrays("out/model.safetensors", { { "wte.weight", table }, { "wpe.weight", positions } })
--
-- One tensor after the other is gathered, and rank 0 writes it. So no rank ever holds the whole model. Files are made
-- beside their places and renamed when all is written; a failure leaves nothing.
-- The trap: what is written is collective: all ranks call it, with the same names in the same order; along a pipeline
-- each stage names the tensors that it holds.
-- @module ganymede.hub.write
local arrays = require "ganymede.hub.arrays"
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local failure = require "ganymede.base.failure"
local gathered = require "ganymede.nn.gathered"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local write = {}

local save_options = {
  dtype = { type = "string", one_of = dtypes.all, optional = true,
    doc = "the type of floating numbers in the file; left out: that of each tensor" },
  max_file_bytes = { type = "integer", min = 1, default = 5000000000,
    doc = "the bytes of arrays that a file has at most; what is larger becomes several files and an index" },
  metadata = { type = "table", optional = true, doc = "texts by name, which the file says of itself" },
}
write.save_options = save_options

-- Raises on all ranks what befell rank 0: said is nil, or "code\nmessage".
local function agree(said)
  said = ranks.from_first(function() return said end)
  if not said then return end
  local code, message = said:match "^(%d+)\n(.*)$"
  ranks.fail(tonumber(code), "%s", message)
end

-- first, message, kind of a call of C -> nil or "code\nmessage".
local function told(first, message, kind)
  if first ~= nil then return nil end
  return ("%d\n%s"):format(kind == "corrupt" and 5 or kind == "io" and 1 or 2, message)
end

-- The stages that hold each entry -> the lowest of them by entry, from 0; the group along the pipeline.
local function holders(entries)
  local _, stages = ranks.stage()
  local flags, out = {}, {}
  for i, entry in ipairs(entries) do flags[i] = entry.tensor and "1" or "0" end
  if stages == 1 then return {} end
  local group = core.comm_group "pipeline"
  for stage, text in ipairs(core.comm_exchange(group, table.concat(flags))) do
    for i = 1, #entries do
      if not out[i] and text:sub(i, i) == "1" then out[i] = stage - 1 end
    end
  end
  return out, group
end

-- The whole tensor of an entry on all ranks of its stage. It stays so while fn(tensor) runs.
local function with_whole(entry, fn)
  if type(entry.tensor) == "function" then return fn(entry.tensor()) end
  return gathered.gathered(entry.tensor, function() return fn(entry.tensor:detach():gather()) end)
end

-- A whole tensor on rank 0, which stage `holder` has; nil elsewhere.
local function on_first(whole, entry, holder, group)
  local stage = ranks.stage()
  if not holder or holder == 0 then return core.rank() == 0 and whole or nil end
  if not ranks.is_first_of_stage() then return nil end
  if stage == holder then core.comm_send(whole:local_tensor():contiguous(), group, 0) end
  if core.rank() ~= 0 then return nil end
  whole = core.empty(entry.shape, entry.dtype)
  core.comm_receive(whole, group, holder)
  return whole
end

local function put(writer, entry, whole)
  return told(core.arrays_writer_put(writer, whole, arrays.pieces(entry.pieces, #entry.shape)))
end

--- Writes the arrays of `list` ({ name, dtype, shape }) to path. entries, the same list on all ranks:
-- { tensor = tensor, or a function that makes it whole, or nil where this rank's stage does not hold it; shape, dtype:
-- those of the whole tensor; pieces = list of { name = array, and what Arrays:read_into takes } }. Collective.
function write.all(path, list, entries, how)
  local writer, said
  if core.rank() == 0 then
    local first, message, kind = core.arrays_writer_open(path, list, how.max_file_bytes,
      how.metadata and json.encode(how.metadata))
    writer, said = first, told(first, message, kind)
  end
  agree(said)
  local holder, group = holders(entries)
  local stage = ranks.stage()
  for i, entry in ipairs(entries) do
    local function take(whole)
      whole = on_first(whole, entry, holder[i], group)
      if whole and not said then said = put(writer, entry, whole) end
    end
    local mine = entry.tensor and (not holder[i] or stage == holder[i])
    tensors.scope(tensors.no_grad, function()
      if mine then with_whole(entry, take) else take() end
    end)
  end
  if writer then said = said or told(core.arrays_writer_close(writer, true)) end
  agree(said)
  return path
end

-- The names, shapes and dtypes of all stages, each once -> list, in the order of stages.
local function union(own)
  local _, stages = ranks.stage()
  if stages == 1 then return own end
  local seen, out = {}, {}
  for _, text in ipairs(core.comm_exchange(core.comm_group "pipeline", json.encode(json.array(own)))) do
    for _, entry in ipairs(json.decode(text, "list of tensors")) do
      if not seen[entry.name] then out[#out + 1] = entry end
      seen[entry.name] = true
    end
  end
  return out
end

local function floating(dtype) return dtype:match "^[bf]" ~= nil end

local function checked_entries(list)
  local own, by_name = {}, {}
  for i, entry in ipairs(list) do
    local name, tensor = entry.name or entry[1], entry.tensor or entry[2]
    if type(name) ~= "string" or not core.is_tensor(tensor) then
      error(("save_arrays: entry %d must be { name, tensor }"):format(i), 3)
    end
    if by_name[name] then failure(2, "save_arrays: two tensors have the name '%s'", name) end
    by_name[name] = tensor
    own[i] = { name = name, dtype = tensor:dtype(), shape = json.array(tensor:shape()) }
  end
  return own, by_name
end

--- Writes tensors as a file of safetensors, whole or not at all; larger ones as several files with an index.
-- Collective: rank 0 writes what it gathers, one tensor after the other.
function write.save(path, list, opt)
  opt = options.check("save_arrays", save_options, opt, 2)
  local own, by_name = checked_entries(list)
  local wanted, entries = union(own), {}
  for i, entry in ipairs(wanted) do
    entries[i] = { tensor = by_name[entry.name], dtype = entry.dtype, shape = entry.shape,
      pieces = { { name = entry.name } } }
    wanted[i] = { name = entry.name, shape = entry.shape,
      dtype = opt.dtype and floating(entry.dtype) and opt.dtype or entry.dtype }
  end
  return write.all(path, wanted, entries, opt)
end

return signature.export("write", write, nil, nil, { save = save_options })
