--- Keys and values of the positions that a model has seen, so that the next token costs one position and not all.
--
--     local kept = cache.new()
--     cache.with(kept, s, model, ids)         -- (b, s): the prompts
--     cache.with(kept, 1, model, next)        -- (b, 1): sees what was kept
--     kept:close()
--
-- While `with` runs, attention appends its keys and values to those kept and attends to all of them, and layers that
-- know positions count on from there. Nothing is recorded for gradients. Prompts of different lengths stand at the end
-- of their rows (`starts`): what is before a prompt's first token is hidden, and its positions count from that token.
-- The kept tensors have the layouts of the layers' own keys: heads that are cut stay cut. Room is doubled when it is
-- full. Where ranks share a sequence, `new` makes one of ganymede.nn.shared_cache.
-- @module ganymede.nn.cache
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local ops = require "ganymede.tensor.ops"
local rooms = require "ganymede.nn.rooms"
local rotary = require "ganymede.nn.rotary"
local Shared = require "ganymede.nn.shared_cache"
local tensors = require "ganymede.tensor"

local M = {}

local Cache = {}
Cache.__index = Cache

local live -- the cache of the call that runs

--- Returns the cache of the call that runs, or nil.
function M.current() return live end

--- An empty cache. starts: for each row of a batch, how many of its first positions are no part of its prompt; nil:
-- none. room: positions to make room for at first. positions: how many the model has; a row that goes on beyond them,
-- because others of its batch do, stays at the last one, and what it gives means nothing. nil: any.
function M.new(starts, room, positions)
  local shifted = false
  for _, n in ipairs(starts or {}) do shifted = shifted or n > 0 end
  starts, room = shifted and starts or nil, room or 64
  if Shared.is_needed() then return Shared.new(starts, room, positions) end
  return setmetatable({ starts = starts, room = room, most = positions, length = 0, entries = {} }, Cache)
end

-- Positions first to last of each row, counted from its start, as a tensor (b, last - first + 1).
local function positions_of(cache, first, last)
  local rows, most = {}, (cache.most or math.huge) - 1
  for r, start in ipairs(cache.starts) do
    rows[r] = {}
    for at = first, last do rows[r][at - first + 1] = math.min(math.max(0, at - start), most) end
  end
  return tensors.tensor(rows, { dtype = "i64" })
end

local function mask(starts, length)
  local rows = {}
  for r, start in ipairs(starts) do
    rows[r] = {}
    for at = 1, length do rows[r][at] = at > start and 1 or 0 end
  end
  return tensors.tensor(rows, { dtype = "u8" })
end

-- What a cache without a `run` of its own does with a call.
local function plainly(_, _, fn, ...) return fn(...) end

--- Runs fn(...), which handles the next `count` tokens of each row, with this cache.
function M.with(cache, count, fn, ...)
  local before = live
  if cache.starts then
    cache.positions = positions_of(cache, cache.length, cache.length + count - 1):keep()
    cache.mask = mask(cache.starts, cache.length + count):keep()
  end
  cache.lengths, cache.kept = rotary.texts(cache.starts, cache.length, count, cache.idle)
  live = cache
  local results = { pcall(tensors.no_grad, cache.run or plainly, cache, count, fn, ...) }
  live = before
  if cache.starts then
    cache.positions:release()
    cache.mask:release()
    cache.positions, cache.mask = nil, nil
  end
  if not results[1] then error(results[2], 0) end
  if cache.took then cache:took(count) else cache.length = cache.length + count end
  return unpack(results, 2, table.maxn(results))
end

--- The place of this call as Rotary:turn takes it: with offset = n or positions = a tensor. cache.idle: the set of rows
-- of which nobody reads what they give.
function Cache:place()
  local offset = not self.positions and self.length or nil
  return { positions = self.positions, offset = offset, lengths = self.lengths, kept = self.kept }
end

-- Room for `size` positions with the shape and layout of x (b, s, heads, d).
local function room_like(x, size)
  local shape = x:shape()
  shape[2] = size
  return ops.expand(ops.narrow(x, 2, 1, 1), shape):contiguous():keep()
end

--- Appends keys and values (b, s, key heads, d) of a layer -> all of them (b, length + s, key heads, d).
function Cache:extend(layer, k, v)
  if #core.layout(k).cuts[2] > 0 then
    error("a cache keeps whole sequences, but this one is cut; generate without parallel.tensor.sequence", 0)
  end
  local count = k:size(2)
  local entry = rooms.entry(self, layer, { k = k, v = v }, self.length + count, self.length, room_like)
  ops.narrow(entry.k, 2, self.length + 1, count):copy_(k)
  ops.narrow(entry.v, 2, self.length + 1, count):copy_(v)
  return ops.narrow(entry.k, 2, 1, self.length + count), ops.narrow(entry.v, 2, 1, self.length + count)
end

--- Forgets the last `count` positions.
function Cache:back(count) self.length = self.length - count end

--- Bytes on this rank of keys and values: entries { k, v } by layer.
function M.bytes_of(entries)
  local sum = 0
  for _, entry in pairs(entries) do
    for _, t in ipairs { entry.k, entry.v } do sum = sum + t:local_tensor():numel() * dtypes.bytes[t:dtype()] end
  end
  return sum
end

--- Frees them.
function M.release(entries)
  for _, entry in pairs(entries) do
    entry.k:release()
    entry.v:release()
  end
end

--- Bytes of what this rank keeps, room included.
function Cache:bytes() return M.bytes_of(self.entries) end

--- Frees what is kept.
function Cache:close()
  M.release(self.entries)
  self.entries, self.length = {}, 0
end

for _, name in ipairs { "bytes", "close" } do Shared[name] = Cache[name] end

return M
