--- Kept keys and values where ranks share a sequence (parallel.sequence): each rank of the axis keeps those of some
-- positions, so that a longer text fits than one rank could keep.
--
-- The first call, of the prompts, is cut as in training: the ring or Ulysses computes it, and a rank keeps the keys and
-- values of its own block. From then on a call is of one position. It is the same on all ranks of the axis and cut by
-- none; one of them, in turn, keeps its keys and values. Each rank attends to what it keeps, and the results are put
-- together by their shares of the sum of exp (Milakov, Gimelshein 2018; as tree attention does, Shyam et al.
-- arXiv:2408.04093). A layer sends heads (d + 1) numbers of each row for that.
--
-- The interface is that of ganymede.nn.cache, whose `with` runs both.
-- @module ganymede.nn.shared_cache
local comm = require "ganymede.job.comm"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local rooms = require "ganymede.nn.rooms"
local sequence_parallel = require "ganymede.nn.sequence_parallel"
local stream = require "ganymede.nn.stream"
local tensors = require "ganymede.tensor"

local Shared = {}
Shared.__index = Shared

--- Is the sequence shared by ranks in this job?
function Shared.is_needed() return context.current().plan.sequence.size > 1 end

--- An empty cache; starts, room, positions: those of ganymede.nn.cache.
function Shared.new(starts, room, positions)
  local live = context.current()
  local size = live.plan.sequence.size
  return setmetatable({ starts = starts, room = math.ceil(room / size), most = positions, length = 0, entries = {},
    size = size, here = live.coordinate.sequence or 0, own = {} }, Shared)
end

-- ---------------------------------------------------------------- whose positions

-- The positions, from 0, of the next `count` that this rank keeps, as a list.
local function own_of(self, count)
  local list = {}
  if self.length > 0 then
    if self.length % self.size == self.here then list[1] = self.length end
    return list
  end
  local block = math.ceil(count / self.size)
  for at = self.here * block, math.min(count, (self.here + 1) * block) - 1 do list[#list + 1] = at end
  return list
end

-- Which of the positions of a list a query at position `at` sees, for each of b rows (b, n); nil: all.
local function seen(self, list, b, at, window)
  local rows, whole = {}, true
  for r = 1, b do
    local first = math.max(self.starts and self.starts[r] or 0, window and at - window + 1 or 0)
    rows[r] = {}
    for i, position in ipairs(list) do
      rows[r][i] = position >= first and 1 or 0
      whole = whole and position >= first
    end
  end
  return not whole and tensors.tensor(rows, { dtype = "u8" }) or nil
end

--- The place of this call: as in ganymede.nn.cache.
function Shared:place()
  local positions = self.positions and stream.enter(self.positions) or nil
  local offset = not positions and self.length or nil
  return { positions = positions, offset = offset, lengths = self.lengths, kept = self.kept }
end

--- Runs fn(...), a call of `count` positions, in the way in which ranks share it.
function Shared:run(count, fn, ...)
  if self.length > 0 and count > 1 then
    error("a sequence that ranks share grows by one position at a time", 0)
  end
  self.new = own_of(self, count)
  if self.length == 0 then return fn(...) end
  return stream.with_whole_sequences(fn, ...)
end

--- The call has run.
function Shared:took(count)
  for _, at in ipairs(self.new) do self.own[#self.own + 1] = at end
  self.length = self.length + count
end

--- Forgets the last `count` positions.
function Shared:back(count)
  self.length = self.length - count
  while #self.own > 0 and self.own[#self.own] >= self.length do self.own[#self.own] = nil end
end

-- ---------------------------------------------------------------- keeping

-- Room for `size` positions of this rank, of the batch and the heads of its block x (b, s, heads, d).
local function room_like(x, size)
  local shape = x:shape()
  shape[2] = size
  return tensors.zeros(shape, { dtype = x:dtype() }):keep()
end

-- Keeps what is this rank's of the keys and values (b, s, heads, d) of a call.
local function keep(self, layer, k, v)
  local count, before = #self.new, #self.own
  local blocks = { k = k:local_tensor(), v = v:local_tensor() }
  local entry = rooms.entry(self, layer, blocks, before + count, before, room_like)
  if count == 0 then return entry end
  for name, block in pairs(blocks) do
    ops.narrow(entry[name], 2, before + 1, count):copy_(ops.narrow(block, 2, 1, count))
  end
  return entry
end

-- ---------------------------------------------------------------- attention

-- Attention of the block q (b, 1, heads, d) to what this rank keeps: it, and the log of its sums of exp (b, heads, 1).
local function part(self, entry, q, options)
  local b, list = q:size(1), { unpack(self.own) }
  list[#list + 1] = self.new[1]
  if #list == 0 then
    return tensors.zeros(q:shape(), { dtype = q:dtype() }),
      tensors.full({ b, q:size(3), 1 }, -math.huge, { dtype = q:dtype() == "f64" and "f64" or "f32" })
  end
  return core.attention_part(q, ops.narrow(entry.k, 2, 1, #list), ops.narrow(entry.v, 2, 1, #list),
    { scale = options.scale, softcap = options.softcap, key_mask = seen(self, list, b, self.length, options.window) })
end

-- The parts of all ranks of the axis, put together.
local function joined(o, lse)
  local all = comm.all_gather(o:to(lse:dtype()), "sequence", 2)                -- (b, ranks, heads, d)
  local shares = ops.softmax(comm.all_gather(lse, "sequence", 3), 3)           -- (b, heads, ranks)
  shares = ops.reshape(ops.permute(shares, { 1, 3, 2 }), { o:size(1), all:size(2), o:size(3), 1 })
  return ops.sum(all * shares, 2, true):to(o:dtype())
end

--- Keeps keys and values (b, s, key heads, d) of a layer -> attention of the queries q (b, s, heads, d) to all of a
-- row's. options: those of ops.attention.
function Shared:attend(layer, q, k, v, options)
  local entry = keep(self, layer, k, v)
  if self.length == 0 then
    options.key_mask = self.mask
    return sequence_parallel.attention(q, k, v, options)
  end
  local o = q:clone()
  local here = o:local_tensor()
  here:copy_(joined(part(self, entry, q:local_tensor():contiguous(), options)))
  return o
end

return Shared
