--- The loader returns the batches of a dataset in an order that depends on (seed, epoch).
--
-- It has two kinds of sources: a `native` dataset is read and transformed in C on a prefetch thread; a dataset written
-- in Lua is called on the main thread. Batches count from 0, as in loader:seek.
--
-- On several ranks a batch is one tensor, cut along its samples by the axes data and expert of the mesh. Each rank
-- reads only its own block, for the mesh that is set when the batch is read. `samples` and `sample_numbers` describe
-- the whole batch. A transform written in Lua receives the cut tensors, whose shapes are those of the whole batch.
-- Samples are made and transformed in f32 or f64; for a model of 16 bits they are rounded at the end.
-- @module ganymede.data.loader
local checked = require "ganymede.data.failing"
local at_path = require "ganymede.tensor.at_path"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm_tensor = require "ganymede.tensor"
local log = require "ganymede.base.log"
local micro_batches = require "ganymede.data.micro_batches"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local precision = require "ganymede.tensor.precision"
local signature = require "ganymede.base.signature"

-- ---------------------------------------------------------------- native: host/data/loader.h

-- The type in which x is made, before it is rounded to 16 bits.
local function made_in(opt)
  local dtype = opt.dtype or core.default_dtype()
  return precision.is_narrow(dtype) and "f32" or dtype
end

local Native = {}
Native.__index = Native

function Native.new(opt, transforms, blends)
  local handle = checked(nil, core.loader_new(opt.dataset.handle, transforms, {
    batch_size = opt.batch_size, shuffle = opt.shuffle, drop_last = opt.drop_last, seed = opt.seed,
    prefetch = opt.prefetch, threads = opt.threads, dtype = made_in(opt), blends = blends,
  }))
  return setmetatable({ handle = handle, dataset = opt.dataset, opt = opt, transforms = transforms, blends = blends,
    first = 0 }, Native)
end

function Native:with(opt) return Native.new(opt, self.transforms, self.blends) end

-- Says which samples were found damaged and left out since the last time; what is read ahead counts already.
local function tell_damage(dataset)
  for _, part in ipairs(dataset.parts or {}) do
    if part.skips then tell_damage(part) end
  end
  local count, new = core.dataset_damage(dataset.handle)
  for _, text in ipairs(new) do log.warn("%s: left out: %s", dataset.name, text) end
  if #new > 0 then log.warn("%s: %d damaged samples were left out so far", dataset.name, count) end
end

-- order: the list of samples from 0, or nil for the sampler in C.
function Native:start(epoch, order)
  if self.first > 0 then self:begin(0) end
  checked(nil, core.loader_seek(self.handle, epoch, 0))
  if order then checked(nil, core.loader_order(self.handle, order)) end
end

function Native:begin(first)
  checked(nil, core.loader_begin(self.handle, first))
  self.first = first
end

function Native:seek(epoch, batch) checked(nil, core.loader_seek(self.handle, epoch, batch)) end
function Native:length() return core.loader_length(self.handle) end
-- pieces: nil, or the number of pieces; the results are then lists of tensors.
function Native:next(pieces)
  if self.dataset.skips then tell_damage(self.dataset) end
  return checked(nil, core.loader_next(self.handle, pieces))
end
function Native:close() core.loader_close(self.handle) end

-- ---------------------------------------------------------------- datasets written in Lua

local Slow = {}
Slow.__index = Slow

-- Calls dataset.get(i) of a plain table, and dataset:get(i) of an object (a table with a metatable).
local function ask(dataset, name, ...)
  local member = dataset[name]
  if type(member) ~= "function" then return member end
  if getmetatable(dataset) then return member(dataset, ...) end
  return member(...)
end

local function samples_of(dataset)
  local n = ask(dataset, "length")
  if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
    error("data.loader: the length of the dataset must be a whole number; got " .. tostring(n), 0)
  end
  return n
end

function Slow.new(opt)
  return setmetatable({ opt = opt, dataset = opt.dataset, n = samples_of(opt.dataset), batch = 0, epoch = 0,
    first = 0 }, Slow)
end

function Slow.with(_, opt) return Slow.new(opt) end

function Slow:start(epoch, order) self.epoch, self.order, self.batch, self.first = epoch, order, 0, 0 end

function Slow:begin(first)
  if first < 0 or first > (self.order and #self.order or self.n) then
    error(("sample %d of an epoch of %d"):format(first, self.order and #self.order or self.n), 0)
  end
  self.first, self.batch = first, 0
end

function Slow:seek(epoch, batch)
  if batch < 0 or batch > self:length() then
    error(("batch %d of an epoch of %d"):format(batch, self:length()), 0)
  end
  self.epoch, self.batch = epoch, batch
end

function Slow:total() return (self.order and #self.order or self.n) - self.first end

function Slow:length()
  return (self.opt.drop_last and math.floor or math.ceil)(self:total() / self.opt.batch_size)
end

local whole_types = { u8 = true, i32 = true, i64 = true }

-- Returns the first number of a tensor that a type of whole numbers would change; nil: there is none.
local function first_lost(t, dtype)
  if whole_types[t:dtype()] or not core.device().has_data then return nil end
  local changed = ops.reshape(ops.ne(ops.cast(ops.cast(t, dtype), t:dtype()), t), { t:numel() })
  if t:numel() == 0 or ops.max(ops.cast(changed, "f32"), 1):item() == 0 then return nil end
  return ops.reshape(t, { t:numel() }):totable()[ops.argmax(ops.cast(changed, "f32"), 1):item() + 1]
end

-- Refuses what is no whole number in x or y (what) of sample i, where the batch has a type of whole numbers.
local function check_whole(what, v, i, dtype)
  if core.is_tensor(v) then v = first_lost(v, dtype) end
  if v == nil then return end
  if type(v) == "table" then
    for _, w in ipairs(v) do check_whole(what, w, i, dtype) end
  elseif type(v) ~= "number" then
    error(("data.loader: %s of sample %d holds %s, which is a %s and not a number"):format(what, i, options.literal(v),
      type(v)), 0)
  elseif v ~= math.floor(v) then
    error(("data.loader: %s of sample %d holds %s; it is %s unless the dataset says %s_dtype = \"f32\" or another")
      :format(what, i, tostring(v), dtype, what), 0)
  end
end

local function shape_of(value, dtype)
  if core.is_tensor(value) then return table.concat(value:shape(), ", ") end
  return table.concat(gm_tensor.tensor({ value }, { dtype = dtype }):shape(), ", ", 2)
end

-- Raises an error for the first of these samples that cannot be a tensor, or has another shape than the first one.
local function blame_sample(what, list, samples, dtype, why)
  local first
  for k, value in ipairs(list) do
    if core.is_tensor(value) ~= core.is_tensor(list[1]) then
      error(("data.loader: of samples %d and %d one gives %s as a tensor, and the other as a number or list"):format(
        samples[1] + 1, samples[k] + 1, what), 0)
    end
    local ok, shape = pcall(shape_of, value, dtype)
    if not ok then -- the message without the line of this file
      local text = failure.text(shape):gsub("^%S+:%d+: ", "")
      error(("data.loader: %s of sample %d: %s"):format(what, samples[k] + 1, text), 0)
    end
    first = first or shape
    if shape ~= first then
      error(("data.loader: %s of sample %d has the shape (%s), that of sample %d (%s)"):format(what, samples[k] + 1,
        shape, samples[1] + 1, first), 0)
    end
  end
  error(why, 0)
end

-- Makes the tensor (count, ...) of a list of numbers, nested lists or tensors. what: x or y; samples: their numbers
-- from 0.
local function stacked(what, list, samples, dtype)
  if not core.is_tensor(list[1]) then
    local ok, made = pcall(gm_tensor.tensor, list, { dtype = dtype })
    return ok and made or blame_sample(what, list, samples, dtype, made)
  end
  local rows, alike = {}, shape_of(list[1])
  for i, t in ipairs(list) do
    if not core.is_tensor(t) or shape_of(t) ~= alike then return blame_sample(what, list, samples, dtype) end
    local shape = t:shape()
    table.insert(shape, 1, 1)
    rows[i] = ops.reshape(t:dtype() == dtype and t or ops.cast(t, dtype), shape)
  end
  return ops.cat(rows, 1)
end

local function ask_sample(dataset, i, x_dtype, y_dtype, width)
  core.set_path("data." .. i) -- what is drawn for a sample is the same on whichever rank reads it
  local x, y = ask(dataset, "get", i, width)
  if x == nil or y == nil then
    error(("data.loader: get(%d) of the dataset returned no %s"):format(i, x == nil and "x" or "y"), 0)
  end
  if whole_types[x_dtype] then check_whole("x", x, i, x_dtype) end
  if whole_types[y_dtype] then check_whole("y", y, i, y_dtype) end
  return x, y
end

-- Reads the first `asked` samples. The others only fill the block up to its size and repeat the last of them. width: of
-- the samples, where the dataset chooses it for each batch.
local function gather(dataset, dtype, width, picked, asked)
  local xs, ys = {}, {}
  local x_dtype, y_dtype = dataset.x_dtype or dtype, dataset.y_dtype or "i64"
  for k, sample in ipairs(picked) do
    if k > asked then
      xs[k], ys[k] = xs[k - 1], ys[k - 1]
    else
      xs[k], ys[k] = ask_sample(dataset, sample + 1, x_dtype, y_dtype, width)
    end
  end
  return stacked("x", xs, picked, x_dtype), stacked("y", ys, picked, y_dtype)
end

function Slow:picked()
  local done = self.batch * self.opt.batch_size
  local first, count = self.first + done, math.min(self.opt.batch_size, self:total() - done)
  if not self.order then
    return core.data_order(self.n, self.opt.shuffle, self.opt.seed, self.epoch, first, count)
  end
  local picked = {}
  for k = 1, count do picked[k] = self.order[first + k] end
  return picked
end

-- Returns the block of a batch that this rank holds, as a list of samples: its own, then the last of them again (the
-- last of the batch, if it has none) until blocks have equal size; batch_value makes those zero. Also returns how many
-- of them to read: at least one, which has the shape of all.
local function block_of(picked)
  local first, own, rows = core.batch_rows(#picked)
  local block, padding = {}, picked[own > 0 and first + own or #picked]
  for k = 1, rows do block[k] = k <= own and picked[first + k] or padding end
  return block, math.max(own, 1)
end

-- The width of the rows of a batch, the same on all ranks and for all its pieces; nil: samples have one of their own.
local function width_of(dataset, picked)
  if type(dataset.width_of) ~= "function" then return nil end
  local samples = {}
  for k, i in ipairs(picked) do samples[k] = i + 1 end
  return ask(dataset, "width_of", samples)
end

-- Returns x and y of the batch of these samples.
function Slow:read(picked, width)
  local x, y = at_path("data", gm_tensor.scope, gm_tensor.no_grad, gather, self.dataset, made_in(self.opt), width,
    block_of(picked))
  for _, t in ipairs { x, y } do core.forget(t) end -- on the meta device a batch has no values, whatever its size
  return core.batch_value(x, #picked), core.batch_value(y, #picked)
end

-- Returns the lists of x and of y of the pieces of a batch: `pieces` of them, or fewer if there are fewer samples.
function Slow:read_pieces(picked, width, pieces)
  local xs, ys = {}, {}
  for k = 1, math.min(pieces, #picked) do
    local first, n = core.batch_piece(#picked, math.min(pieces, #picked), k - 1)
    local piece = {}
    for i = 1, n do piece[i] = picked[first + i] end
    xs[k], ys[k] = self:read(piece, width)
  end
  return xs, ys
end

function Slow:next(pieces)
  if self.batch >= self:length() then return nil end
  local picked, read = self:picked(), pieces and self.read_pieces or self.read
  local x, y = read(self, picked, width_of(self.dataset, picked), pieces)
  self.batch = self.batch + 1
  return x, y, #picked, picked
end

function Slow.close() end

-- ---------------------------------------------------------------- the face

local Loader = {}
Loader.__index = Loader

--- Makes a loader. opt: as data.loader has checked it; native: the list of transforms in C; own: that of Lua functions;
-- blends: how samples are mixed with others.
function Loader.new(opt, native, own, blends)
  local source = opt.dataset.handle and Native.new(opt, native, blends) or Slow.new(opt)
  local self = setmetatable({ opt = opt, dataset = opt.dataset, batch_size = opt.batch_size, source = source,
                              own = own, epoch = 0, count = 0 }, Loader)
  self:set_epoch(0)
  return self
end

--- Returns the number of batches in an epoch.
function Loader:length() return self.source:length() end

--- Returns the number of samples of the dataset, of which a sampler may leave out some.
function Loader:samples_of_dataset() return samples_of(self.dataset) end

--- Returns what must be equal on all ranks, because they read their parts of the same batches: plain values, with a
-- checksum if the dataset has one.
function Loader:fingerprint()
  local dataset, ok, sum = self.dataset, true, nil
  if type(dataset.checksum) == "function" then ok, sum = failure.try(ask, dataset, "checksum") end
  return { batches = self:length(), samples = samples_of(dataset), contents = ok and sum or failure.text(sum) }
end

-- Returns the order of a sampler that the user wrote, as numbers from 0, and its checksum; nil without such a sampler.
local function order_of(self, epoch)
  local sampler = self.opt.sampler
  if not sampler or not sampler.order then return nil end
  local n, order, sum = samples_of(self.dataset), {}, 0
  local chosen = sampler:order(epoch, n)
  if type(chosen) ~= "table" then
    error(("data.loader: order(self, epoch, length) of the sampler must return a list of samples from 1; it returned "
      .. "%s"):format(chosen == nil and "nothing" or options.brief(chosen)), 0)
  end
  for k, i in ipairs(chosen) do
    if type(i) ~= "number" or i < 1 or i > n or i ~= math.floor(i) then
      error(("data.loader: the sampler chose sample %s; samples are 1 to %d"):format(tostring(i), n), 0)
    end
    order[k], sum = i - 1, (31 * sum + i) % 2 ^ 40
  end
  return order, sum
end

--- Goes to the first batch of epoch e >= 0. Its order depends on (seed, e) alone.
function Loader:set_epoch(e)
  local order, sum = order_of(self, e)
  self.order_sum = sum
  self.of_epoch = order and #order or samples_of(self.dataset)
  self.source:start(e, order)
  self.epoch, self.position = e, 0
end

--- Goes to a batch of this epoch, from 0, without reading those before it.
function Loader:seek(batch)
  self.source:seek(self.epoch, batch)
  self.position = batch
end

--- Returns the number of samples of this epoch, whatever was read of them.
function Loader:samples_of_epoch() return self.of_epoch end

--- Lets this epoch begin at a sample of its order, from 0: its batches count from there. The next epoch, and set_epoch,
-- begin at the first one again.
function Loader:begin_at(first)
  self.source:begin(first)
  self.position = 0
end

--- From now on batches have another size. Goes to the first batch of the epoch, which begins at its first sample.
function Loader:set_batch(size)
  if type(size) ~= "number" or size < 1 or size > 2 ^ 31 or size ~= math.floor(size) then
    error("loader:set_batch: a batch has a whole number of samples from 1 to 2^31; got " .. tostring(size), 2)
  end
  local opt = {}
  for key, value in pairs(self.opt) do opt[key] = value end
  opt.batch_size = size
  local source = self.source:with(opt)
  self.source:close()
  self.opt, self.batch_size, self.source = opt, size, source
  self:set_epoch(self.epoch)
end

-- Returns the next batch of the source, whole or in pieces, and notes it for samples and sample_numbers.
local function advance(self, pieces)
  local x, y, count, picked = self.source:next(pieces)
  if x ~= nil then self.count, self.picked, self.position = count, picked, self.position + 1 end
  return x, y
end

local function transformed(self, x, y)
  for k, transform in ipairs(self.own) do
    local new_x, new_y = transform(x, y)
    if new_x == nil then -- the epoch would end here
      error(("data.loader: a transform in Lua (%d of %d) returned nothing; it must return x, or x and y"):format(k,
        #self.own), 0)
    end
    x, y = new_x, new_y == nil and y or new_y
  end
  return core.is_tensor(x) and gm_tensor.no_grad(precision.fitted, x, self.opt.dtype or core.default_dtype()) or x, y
end

--- Returns the next x (b, ...) and y (b, ...), or nil at the end of the epoch.
function Loader:next()
  local x, y = advance(self)
  if x ~= nil then return transformed(self, x, y) end
end

--- Returns the next batch as min(m, number of samples) pieces: x and y, each a micro_batches.List, or nil at the end of
-- the epoch. Joined they are what next() returns. Transforms written in Lua receive the whole batch, so that they draw
-- and compute what they do without pieces; what they return is split, which is collective where ranks share the batch.
-- The trap: a loader that is asked in turns for batches and for pieces, or for different numbers of them, drops what it
-- has read ahead each time.
function Loader:next_pieces(m)
  if type(m) ~= "number" or m < 1 or m ~= math.floor(m) then
    error("loader:next_pieces: the number of pieces must be a whole number from 1; got " .. tostring(m), 2)
  end
  if #self.own > 0 then
    local x, y = self:next()
    if x ~= nil then return micro_batches.split_both(x, y, m) end
    return nil
  end
  local xs, ys = advance(self, m)
  if xs == nil then return nil end
  for k = 1, #xs do xs[k], ys[k] = transformed(self, xs[k], ys[k]) end
  return micro_batches.List(xs), micro_batches.List(ys)
end

--- Returns the number of samples in the last batch.
function Loader:samples() return self.count end

--- Returns the list of the numbers of these samples, from 1. It is empty on meta devices.
function Loader:sample_numbers()
  local numbers = {}
  for k, i in ipairs(self.picked or {}) do numbers[k] = i + 1 end
  return numbers
end

--- Returns an iterator from the next batch to the end of the epoch: for x, y in loader:batches() do. A loader at the
-- end of the epoch begins it again. Run the loop inside gm.scope; otherwise batches stay until the collector frees
-- them.
function Loader:batches()
  if self.position >= self:length() then self:seek(0) end
  return function() return self:next() end
end

--- Returns the shapes of a sample as batches hold it, { x_dtype, x_shape, y_shape }; nil: they are not known before one
-- is read.
function Loader:shapes()
  if not self.source.handle or #self.own > 0 then return nil end
  return core.loader_shapes(self.source.handle)
end

--- Stops the prefetch thread and frees its buffers.
function Loader:close() self.source:close() end

return signature.export("loader", Loader, ":")
