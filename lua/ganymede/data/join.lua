--- join(list) makes one of the pieces of a batch, or of the batches of a step: tensors along their first dimension,
-- tables of tensors (also nested) entry by entry, and each micro_batches.List piece by piece. Other values are those of
-- the first piece. Pieces that differ in more than their number of samples, such as sequences of other lengths, cannot
-- be joined; the result is then a micro_batches.List of them.
--
-- Blocks of cut pieces are not a block of the joined batch, so a cut tensor is gathered first. The trap: the call is
-- then collective over the ranks that share it, and the result is whole on each of them.
-- @module ganymede.data.join
local core = require "ganymede.core"
local micro_batches = require "ganymede.data.micro_batches"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local projection = require "ganymede.nn.projection"

local function flattened(list)
  local out = {}
  for _, entry in ipairs(list) do
    if not micro_batches.is_list(entry) then entry = { entry } end
    for _, piece in ipairs(entry) do out[#out + 1] = piece end
  end
  return out
end

-- Returns the entries of all pieces at a key; nil if a piece has none.
local function entries_of(pieces, key)
  local entries = {}
  for i, piece in ipairs(pieces) do
    if piece[key] == nil then return nil end
    entries[i] = piece[key]
  end
  return entries
end

-- The dtype, and the shape without the number of samples, as text.
local function kind_of(t)
  local shape = t:shape()
  return t:dtype() .. " " .. #shape .. " " .. table.concat(shape, ", ", 2)
end

-- Whether pieces differ only in their number of samples.
local function are_alike(pieces)
  local first = pieces[1]
  local is_tensor, is_table = core.is_tensor(first), type(first) == "table"
  for _, piece in ipairs(pieces) do
    if core.is_tensor(piece) ~= is_tensor or type(piece) ~= type(first) then return false end
    if is_tensor and kind_of(piece) ~= kind_of(first) then return false end
  end
  if is_tensor or not is_table then return true end
  local keys = options.sorted_keys(first)
  for _, piece in ipairs(pieces) do
    if #options.sorted_keys(piece) ~= #keys then return false end
  end
  for _, key in ipairs(keys) do
    local entries = entries_of(pieces, key)
    if not entries or not are_alike(entries) then return false end
  end
  return true
end

local function joined(pieces)
  local first = pieces[1]
  if #pieces <= 1 then return first end
  if core.is_tensor(first) then
    if first:dim() == 0 then return first end
    local whole = {}
    for i, t in ipairs(pieces) do whole[i] = core.world() > 1 and core.gather(t) or t end
    return ops.cat(whole, 1)
  end
  if type(first) ~= "table" then return first end
  if projection.is(first) then return projection.join(pieces, joined) end
  local out = {}
  for _, key in ipairs(options.sorted_keys(first)) do out[key] = joined(entries_of(pieces, key)) end
  return out
end

return function(list)
  local pieces = flattened(list)
  return are_alike(pieces) and joined(pieces) or #pieces > 0 and micro_batches.List(pieces) or nil
end
