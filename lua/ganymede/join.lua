--- join(list): the pieces of a batch, or the batches of a step, as one: tensors along their first dimension, tables of
-- tensors (also nested) entry by entry, micro_batches.List one after the other. What is no tensor is the first piece's.
--
-- Pieces of cut batches do not make a piece of the whole, so what is cut is gathered first. The trap: then it is
-- collective over the ranks that share it, and the result is whole on each of them.
-- @module ganymede.join
local core = require "ganymede.core"
local micro_batches = require "ganymede.micro_batches"
local ops = require "ganymede.ops"

-- Keys in an order that all ranks have.
local function keys_of(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function flattened(list)
  local out = {}
  for _, entry in ipairs(list) do
    if not micro_batches.is_list(entry) then entry = { entry } end
    for _, piece in ipairs(entry) do out[#out + 1] = piece end
  end
  return out
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
  local out = {}
  for _, key in ipairs(keys_of(first)) do
    local entries = {}
    for i, piece in ipairs(pieces) do entries[i] = piece[key] end
    out[key] = joined(entries)
  end
  return out
end

return function(list) return joined(flattened(list)) end
