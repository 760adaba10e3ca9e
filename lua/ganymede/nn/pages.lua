--- Kept keys and values in pages of a fixed number of positions, from one pool for all prompts (Kwon et al., "Efficient
-- Memory Management for Large Language Model Serving with PagedAttention", 2023).
--
--     local pool = pages.new { page = 16, pages = 100 }
--     local row = pool:row()
--     if pool:reserve(row, 7) then                                    -- are there pages for 7 positions?
--       pages.with(pool, { row }, { 7 }, 7, model, ids)               -- (1, 7): the prompt
--     end
--     pool:drop(row)                                                  -- its pages are free again
--
-- A page holds so many positions of one row, in all layers. So a row wastes less than a page, rows of any lengths run
-- together, and a row that ends makes place for another. `with` is that of ganymede.nn.cache for these rows: attention
-- writes into the pages and reads from them, and each row counts its own positions. All ranks make the same calls;
-- heads that are cut stay cut. The trap: a row must have reserved what it is given.
-- @module ganymede.nn.pages
local caches = require "ganymede.nn.cache"
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local ops = require "ganymede.tensor.ops"
local sequence_parallel = require "ganymede.nn.sequence_parallel"
local tensors = require "ganymede.tensor"

local M = {}

local Pool = {}
Pool.__index = Pool

--- A pool of `pages` pages with `page` positions each. Its memory is taken when a layer first keeps something.
function M.new(opt)
  local free = {}
  for i = opt.pages, 1, -1 do free[#free + 1] = i - 1 end
  return setmetatable({ page = opt.page, pages = opt.pages, free = free, entries = {}, length = 0 }, Pool)
end

--- Pages that so many positions take.
function Pool:wanted(positions) return math.ceil(positions / self.page) end

--- A row that keeps nothing yet: { pages = a list of numbers from 0, length = positions kept }.
function Pool.row() return { pages = {}, length = 0 } end

--- Takes pages for so many positions of the row in all -> are they there? If not, nothing is taken.
function Pool:reserve(row, positions)
  local more = self:wanted(positions) - #row.pages
  if more > #self.free then return false end
  for _ = 1, more do row.pages[#row.pages + 1] = table.remove(self.free) end
  return true
end

--- Gives the pages of a row back.
function Pool:drop(row)
  for i = #row.pages, 1, -1 do self.free[#self.free + 1] = row.pages[i] end
  row.pages, row.length = {}, 0
end

-- ---------------------------------------------------------------- a call of the model

local function whole(list) return tensors.tensor(list, { dtype = "i64" }):keep() end

-- The pages of each row (b, n), page 0 behind the last one, which nobody reads; positions of each row (b).
local function tables(rows, taken)
  local index, count, most = {}, {}, 1
  for _, row in ipairs(rows) do most = math.max(most, #row.pages) end
  for r, row in ipairs(rows) do
    index[r], count[r] = {}, row.length + taken[r]
    for n = 1, most do index[r][n] = row.pages[n] or 0 end
  end
  return whole(index), whole(count)
end

-- Position of each of the s places of a row, and of rows that keep nothing a mask of the places that are none.
local function places(rows, taken, s)
  local at, mask, fresh, shifted = {}, {}, true, false
  for r, row in ipairs(rows) do
    at[r], mask[r] = {}, {}
    for i = 1, s do
      at[r][i], mask[r][i] = math.max(0, row.length + taken[r] - s + i - 1), i > s - taken[r] and 1 or 0
    end
    fresh, shifted = fresh and row.length == 0, shifted or taken[r] < s
  end
  return whole(at), fresh, shifted and tensors.tensor(mask, { dtype = "u8" }):keep() or nil
end

-- How many positions each row has kept, and has with taken[r] more.
local function lengths_of(rows, taken)
  local kept, lengths = {}, {}
  for r, row in ipairs(rows) do kept[r], lengths[r] = row.length, row.length + (taken and taken[r] or 1) end
  return kept, lengths
end

--- The most positions that one of the rows has when it keeps taken[r] more; taken nil: one more each.
function M.longest(rows, taken)
  local most = 0
  for r, row in ipairs(rows) do most = math.max(most, row.length + (taken and taken[r] or 1)) end
  return most
end

--- Counts that the rows keep taken[r] more; nil: one more each.
function M.took(rows, taken)
  for r, row in ipairs(rows) do row.length = row.length + (taken and taken[r] or 1) end
end

--- Frees the tensors of a call.
function M.release(call)
  for _, name in ipairs { "index", "count", "positions", "mask" } do
    if call[name] then call[name]:release() end
  end
end

--- Runs fn(...), which handles s places of each row of a call; length: M.longest with them.
function M.within(pool, call, s, length, fn, ...)
  pool.call, pool.length = call, length - s
  local results = { pcall(caches.with, pool, s, fn, ...) }
  pool.call = nil
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, table.maxn(results))
end

--- Runs fn(...), which handles s places of each row: at the end of them are the next taken[r] tokens of row r.
function M.with(pool, rows, taken, s, fn, ...)
  local call = {}
  call.index, call.count = tables(rows, taken)
  call.positions, call.fresh, call.mask = places(rows, taken, s)
  call.kept, call.lengths = lengths_of(rows, taken)
  local results = { pcall(M.within, pool, call, s, M.longest(rows, taken), fn, ...) }
  M.release(call)
  if not results[1] then error(results[2], 0) end
  M.took(rows, taken)
  return unpack(results, 2, table.maxn(results))
end

--- A call of one place of each of b rows with at most `most` pages, on a CPU. Its tensors stay where they are;
-- M.fill says of which rows it is. The caller frees it by M.release.
function M.still(b, most)
  local function zeros(shape) return tensors.zeros(shape, { dtype = "i64" }):keep() end
  local call = { index = zeros { b, most }, count = zeros { b }, positions = zeros { b, 1 }, most = most }
  call.at = { index = call.index:data(), count = call.count:data(), positions = call.positions:data() }
  return call
end

--- Writes the pages and positions of rows, which have reserved one more position, into a call of M.still.
function M.fill(call, rows)
  local index, count, positions = call.at.index, call.at.count, call.at.positions
  call.kept, call.lengths = lengths_of(rows)
  for r, row in ipairs(rows) do
    for n, page in ipairs(row.pages) do index[(r - 1) * call.most + n - 1] = page end
    count[r - 1], positions[r - 1] = row.length + 1, row.length
  end
end

--- The place of this call as Rotary:turn takes it.
function Pool:place()
  return { positions = self.call.positions, lengths = self.call.lengths, kept = self.call.kept }
end

-- ---------------------------------------------------------------- what layers call

-- A pool (pages, heads, page, d) of zeros, its heads cut as those of x (b, s, heads, d) are.
local function pool_like(self, x)
  local one = ops.permute(ops.narrow(ops.narrow(x, 1, 1, 1), 2, 1, 1), { 1, 3, 2, 4 })
  return ops.expand(one, { self.pages, x:size(3), self.page, x:size(4) }):contiguous():keep():fill_(0)
end

local function entry_of(self, layer, k, v)
  local entry = self.entries[layer]
  if not entry then
    entry = { k = pool_like(self, k), v = pool_like(self, v) }
    self.entries[layer] = entry
  end
  return entry
end

local known = { causal = true, scale = true, window = true, softcap = true }

local function check(q, options)
  local cuts = core.layout(q).cuts
  if #cuts[1] + #cuts[2] > 0 then
    error("pages keep whole rows, but batches or sequences are shared by ranks here; leave cache out, or generate "
      .. "with parallel.tensor.mode = \"1d\" and parallel.sequence = 1", 0)
  end
  for name, value in pairs(options) do
    if not known[name] then
      error(("attention to pages knows no option %s (%s)"):format(name, tostring(value)), 0)
    end
  end
end

--- Keeps keys and values (b, s, key heads, d) of a layer -> attention of the queries q (b, s, heads, d) to all of a
-- row's, (b, s, heads, d). options: those of ops.attention, of which causal, scale, window and softcap can be.
function Pool:attend(layer, q, k, v, options)
  check(q, options)
  local entry, call = entry_of(self, layer, k, v), self.call
  core.pages_write(entry.k, k, call.index, call.count)
  core.pages_write(entry.v, v, call.index, call.count)
  if call.fresh and q:size(2) > 1 then -- nothing was kept: the keys of this call are all there are
    return sequence_parallel.attention(q, k, v, { causal = true, scale = options.scale, window = options.window,
      softcap = options.softcap, key_mask = call.mask })
  end
  return core.attention_paged(q, entry.k, entry.v, call.index, call.count, options.scale, options.window,
    options.softcap)
end

--- Bytes of this rank's pools.
function Pool:bytes() return caches.bytes_of(self.entries) end

--- Bytes that a page takes on this rank in all layers of a model that keep something, if its numbers have `dtype`.
function M.bytes_of_page(model, page, dtype)
  local sum = 0
  for _, m in ipairs(model:modules()) do
    if m.kv_heads and m.head_size and m.qkv then
      local weight = m.qkv:use "weight"
      local share = core.layout(weight).cuts[1] and weight:local_tensor():size(1) / weight:size(1) or 1
      sum = sum + 2 * page * m.kv_heads * share * m.head_size * dtypes.bytes[dtype or weight:dtype()]
    end
  end
  return sum
end

--- Frees what is kept.
function Pool:close()
  caches.release(self.entries)
  self.entries = {}
end

return M
