--- Micro-batches are the pieces of a batch that go through a pipeline one after the other.
--
--     local list = micro_batches.split(x, 4)      -- list[1] ... list[4], each a tensor, or a table of tensors as x is
--     local sizes, total = list:samples()
--
-- A batch of n samples has min(m, n) pieces. Their sizes differ by one at most, larger ones first, and each holds
-- consecutive samples of the batch. Each piece is cut over the batch axes like a batch. So (samples before a piece, its
-- samples) say where it lies in the batch, as core.set_batch needs it. Loaders of ganymede.data read pieces directly
-- (loader:next_pieces); split is for batches from elsewhere. The trap: pieces of a cut batch lie on other ranks than
-- the batch did, so split gathers it, and the call is then collective.
-- @module ganymede.data.micro_batches
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"

local micro_batches = {}

local List = {}
List.__index = List

-- The keys of a table of tensors: positions in order, then names in order.
local function sorted_keys(t)
  for key in pairs(t) do
    if type(key) ~= "number" and type(key) ~= "string" then
      error(("a batch has a key that is a %s; use names or positions"):format(type(key)), 0)
    end
  end
  return options.sorted_keys(t)
end

-- Calls fn(tensor, path) for every tensor of a batch, in an order that is the same on all ranks.
local function each_tensor(x, fn, path)
  if core.is_tensor(x) then return fn(x, path) end
  if type(x) ~= "table" then return end
  for _, key in ipairs(sorted_keys(x)) do each_tensor(x[key], fn, path .. "[" .. tostring(key) .. "]") end
end

-- Returns the batch with fn(tensor) in place of every tensor that has samples.
local function mapped(x, fn)
  if core.is_tensor(x) then return x:dim() > 0 and fn(x) or x end
  if type(x) ~= "table" then return x end
  local out = {}
  for _, key in ipairs(sorted_keys(x)) do out[key] = mapped(x[key], fn) end
  return out
end

--- Returns the number of samples of a batch or piece: the first dimension of its tensors, which must agree. A tensor
-- without dimensions belongs to the whole batch.
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

--- Makes a List of the given pieces, in order; each is a tensor or a table of tensors. It has list[k] and #list.
function micro_batches.List(pieces) return setmetatable(pieces, List) end

function micro_batches.is_list(x) return getmetatable(x) == List end

--- Returns the list of the numbers of samples of the pieces, and their sum.
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

-- " cut (data, -)" if ranks hold blocks, otherwise "".
local function said_cuts(t)
  local said, any = {}, false
  for d, axes in ipairs(core.layout(t).cuts) do
    said[d], any = #axes > 0 and table.concat(axes, ".") or "-", any or #axes > 0
  end
  return any and (" cut (%s)"):format(table.concat(said, ", ")) or ""
end

--- Describes a piece as text: structure, dtypes, global shapes and cuts. Pieces with equal signatures have equal
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

-- Returns this rank's block of rows first + 1 ... first + n of a whole tensor, cut like any batch of n samples. Its
-- last sample (that of the piece, if it has none) is repeated until blocks have equal size.
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

-- Returns a function (first, n) that returns that piece of t, in the layout of t.
local function cutter(t)
  local layout = core.layout(t)
  if #layout.partial > 0 then
    error("a batch has a tensor that is not yet summed over ranks (partial); redistribute it first", 0)
  end
  local whole = is_cut(layout.cuts) and core.gather(t) or t
  return function(first, n)
    local piece = #layout.cuts[1] > 0 and cut_rows(whole, first, n) or whole:narrow(1, first + 1, n)
    return whole ~= t and core.redistribute(piece, layout) or piece
  end
end

--- Splits a batch into at most m pieces and returns their List. x: a tensor, or a table of tensors (also nested), whose
-- first dimension is the samples. Other values, and tensors without dimensions, go into every piece. Collective if x is
-- cut.
function micro_batches.split(x, m)
  if type(m) ~= "number" or m < 1 or m ~= math.floor(m) then
    error("the number of pieces of a batch must be a whole number from 1; got " .. tostring(m), 2)
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

--- Returns the Lists of the pieces of a batch and of its labels. Collective if one of them is cut.
function micro_batches.split_both(x, y, m)
  local samples, labels = micro_batches.count(x), micro_batches.count(y)
  if samples ~= labels then
    error(("a batch of %d samples has %d labels: micro-batches need equal numbers of both in the first dimension")
      :format(samples, labels), 0)
  end
  return micro_batches.split(x, m), micro_batches.split(y, m)
end

return micro_batches
