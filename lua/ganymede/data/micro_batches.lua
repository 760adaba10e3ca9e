--- Micro-batches: the pieces of a loader batch that a pipeline works on one after the other.
--
--     local list = micro_batches.split(x, 4)      -- list[1] ... list[4], each a tensor, or a table of tensors as x is
--     local sizes, total = list:samples()
--
-- A batch of n samples has min(m, n) pieces of sizes that differ by one at most, the larger first, each of consecutive
-- samples in the batch's order; each is cut over the batch axes as a batch is. So (samples before a piece, its samples)
-- say where it lies in the batch, as core.set_batch wants to know. Loaders of ganymede.data read pieces at once
-- (loader:next_pieces); split is for batches from elsewhere. The trap: pieces of a cut batch lie on other ranks than
-- the batch did, so split gathers it, and is collective then.
-- @module ganymede.data.micro_batches
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"

local micro_batches = {}

local List = {}
List.__index = List

-- Keys of a table of tensors, places before names, each in order.
local function sorted_keys(t)
  for key in pairs(t) do
    if type(key) ~= "number" and type(key) ~= "string" then
      error(("a batch has a key that is a %s; use names or places"):format(type(key)), 0)
    end
  end
  return options.sorted_keys(t)
end

-- fn(tensor, path) on every tensor of a batch, in an order that is the same on all ranks.
local function each_tensor(x, fn, path)
  if core.is_tensor(x) then return fn(x, path) end
  if type(x) ~= "table" then return end
  for _, key in ipairs(sorted_keys(x)) do each_tensor(x[key], fn, path .. "[" .. tostring(key) .. "]") end
end

-- The batch with fn(tensor) in place of every tensor that has samples.
local function mapped(x, fn)
  if core.is_tensor(x) then return x:dim() > 0 and fn(x) or x end
  if type(x) ~= "table" then return x end
  local out = {}
  for _, key in ipairs(sorted_keys(x)) do out[key] = mapped(x[key], fn) end
  return out
end

--- Samples of a batch or piece: the first dimension of its tensors, which must agree; those of no dimension are one
-- for the whole batch.
function micro_batches.count(x)
  local n, named
  each_tensor(x, function(t, path)
    if t:dim() == 0 then return end
    n, named = n or t:size(1), named or path
    if t:size(1) ~= n then
      error(("a batch has %d samples in %s and %d in %s; the first dimension of every tensor is its samples")
        :format(n, named, t:size(1), path), 0)
    end
  end, "x")
  if not n then error("a batch is a tensor, or a table of tensors, whose first dimension is its samples", 0) end
  return n
end

--- The pieces given, in order: tensors, or tables of tensors -> List: list[k], #list.
function micro_batches.List(pieces) return setmetatable(pieces, List) end

function micro_batches.is_list(x) return getmetatable(x) == List end

--- -> list of the samples of each piece, and of all.
function List:samples()
  local sizes, total = {}, 0
  for k, piece in ipairs(self) do
    sizes[k] = micro_batches.count(piece)
    total = total + sizes[k]
  end
  return sizes, total
end

function List:__tostring()
  local said = {}
  for k, piece in ipairs(self) do said[k] = micro_batches.signature(piece) end
  return ("%d micro-batches: %s"):format(#self, table.concat(said, ", "))
end

-- " cut (data, -)" where ranks hold blocks, else "".
local function said_cuts(t)
  local said, any = {}, false
  for d, axes in ipairs(core.layout(t).cuts) do
    said[d], any = #axes > 0 and table.concat(axes, ".") or "-", any or #axes > 0
  end
  return any and (" cut (%s)"):format(table.concat(said, ", ")) or ""
end

--- What a piece is made of, as text: structure, dtypes, global shapes and cuts. Pieces of one signature have equal
-- shapes.
function micro_batches.signature(x)
  if core.is_tensor(x) then
    return ("%s(%s)%s"):format(x:dtype(), table.concat(x:shape(), ", "), core.world() > 1 and said_cuts(x) or "")
  end
  if type(x) == "string" then return ("%q"):format(x) end
  if type(x) ~= "table" then return tostring(x) end
  local said = {}
  for k, key in ipairs(sorted_keys(x)) do
    said[k] = tostring(key) .. " = " .. micro_batches.signature(x[key])
  end
  return "{ " .. table.concat(said, ", ") .. " }"
end

-- ---------------------------------------------------------------- cutting

-- Rows first + 1 ... first + n of a whole tensor, as every batch of n samples is cut: a block for this rank, in which
-- its last sample (the piece's, where it has none) is repeated until blocks are of equal size.
local function cut_rows(whole, first, n)
  local begin, own, rows = core.batch_rows(n)
  local last = own > 0 and first + begin + own or first + n
  local parts = {}
  if own > 0 then parts[1] = whole:narrow(1, first + begin + 1, own) end
  for _ = own + 1, rows do parts[#parts + 1] = whole:narrow(1, last, 1) end
  return core.batch_value(#parts == 1 and parts[1]:contiguous() or ops.cat(parts, 1), n)
end

local function is_cut(cuts)
  for _, axes in ipairs(cuts) do
    if #axes > 0 then return true end
  end
  return false
end

-- fn(first, n) -> that piece of t, laid out as t is.
local function cutter(t)
  local layout = core.layout(t)
  if #layout.partial > 0 then
    error("a batch holds a sum over ranks that has not been made; redistribute it first", 0)
  end
  local whole = is_cut(layout.cuts) and core.gather(t) or t
  return function(first, n)
    local piece = #layout.cuts[1] > 0 and cut_rows(whole, first, n) or whole:narrow(1, first + 1, n)
    return whole ~= t and core.redistribute(piece, layout) or piece
  end
end

--- At most m pieces of a batch -> List. x: a tensor, or a table of them (also nested), the first dimension being the
-- samples; what is no tensor, or a tensor without dimensions, goes into every piece. Collective where x is cut.
function micro_batches.split(x, m)
  if type(m) ~= "number" or m < 1 or m ~= math.floor(m) then
    error("a batch is split into a whole number of pieces, not " .. tostring(m), 2)
  end
  local n = micro_batches.count(x)
  if n < 1 then error("a batch without samples cannot be split", 2) end
  local cutters, pieces = {}, {}
  each_tensor(x, function(t)
    if t:dim() > 0 then cutters[t] = cutters[t] or cutter(t) end
  end, "x")
  for k = 1, math.min(m, n) do
    local first, size = core.batch_piece(n, math.min(m, n), k - 1)
    pieces[k] = mapped(x, function(t) return cutters[t](first, size) end)
  end
  return micro_batches.List(pieces)
end

return micro_batches
