--- Attention within windows of an image, with a learned bias for each difference of two places (Liu et al., Swin
-- Transformer, 2021).
--
-- The image is cut into windows of one size; each position attends to those of its window. With `shift` the image is
-- rolled first, so that windows lie across the borders of those without: then a window at the edge holds parts of the
-- image that were not neighbours, and a bias of -100 keeps these apart, as in Swin. Sides that windows do not tile are
-- padded with zeros behind, and a dimension that fits into one window is not rolled: as in torchvision.
--
-- All windows of a batch go through one attention whose bias (windows, heads, T, T) the batch shares, T being the
-- positions of a window; without a shift all windows share one. The rows of qkv are ordered by head, (heads, 3, head
-- size), as in MultiHeadAttention. Ranks may share samples, and in 1D heads.
-- @module ganymede.nn.window_attention
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local Dropout = require("ganymede.nn.dropout").Dropout
local Linear = require "ganymede.nn.linear"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local APART = -100 -- what is added between parts of a window that are no neighbours

local WindowAttention = module.class "WindowAttention"
WindowAttention.recompute_kind = "attention" -- what the setting recompute calls it
WindowAttention.matrices = {} -- a table of biases is none (ganymede.optim.muon)

WindowAttention.options = {
  width    = { type = "integer", min = 1, doc = "the width of x and y" },
  heads    = { type = "integer", min = 1, doc = "the number of heads, which must divide width" },
  window   = { type = { "integer", "list" }, min = 1, default = 7,
    doc = "the side of a window in positions, or { height, width }" },
  shift    = { type = { "integer", "list" }, min = 0, default = 0,
    doc = "by how many positions the image is rolled before it is cut, or { height, width }; less than window" },
  qkv_bias = { type = "boolean", default = true, doc = "whether queries, keys and values have a bias" },
  dropout  = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  output_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result is dropped in training" },
  weight_initializer = init.option "the initializer of both weights; default: that of nn.Linear",
  bias_initializer   = init.option "the initializer of both biases; default: that of nn.Linear",
  table_initializer  = init.option("the initializer of the biases of differences; default: normal with standard "
    .. "deviation 0.02, cut at two standard deviations"),
}

local function two(name, given)
  local a, b = given, given
  if type(given) == "table" then a, b = given[1], given[2] end
  for _, n in ipairs { a or false, b or false } do
    if type(n) ~= "number" or n % 1 ~= 0 or type(given) == "table" and #given ~= 2 then
      error(("WindowAttention: %s must be a whole number or { height, width }"):format(name), 4)
    end
  end
  return { a, b }
end

local function check(opt, window, shift)
  if opt.width % opt.heads ~= 0 then
    error(("WindowAttention: heads = %d must divide width = %d"):format(opt.heads, opt.width), 4)
  end
  for d = 1, 2 do
    if window[d] < 1 or shift[d] < 0 or shift[d] >= window[d] then
      error(("WindowAttention: a window of %d x %d has two sides, and shift = %d is not below them"):format(window[1],
        window[2], shift[d]), 4)
    end
  end
  tensor_parallel.check_heads("WindowAttention", opt.heads, opt.heads)
end

function WindowAttention:build(opt)
  self.window, self.shift = two("window", opt.window), two("shift", opt.shift)
  check(opt, self.window, self.shift)
  self.head_size = opt.width / opt.heads
  self.qkv = Linear { inputs = opt.width, outputs = 3 * opt.width, bias = opt.qkv_bias, partition = "column",
    weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer }
  self.qkv.row_parts = { self.head_size, self.head_size, self.head_size }
  self.qkv.part_names = { "query", "key", "value" }
  self.output = Linear { inputs = opt.width, outputs = opt.width, partition = "row",
    weight_initializer = opt.weight_initializer, bias_initializer = opt.bias_initializer }
  local rows = (2 * self.window[1] - 1) * (2 * self.window[2] - 1)
  self:param("table", { rows, opt.heads },
    init.resolve(opt.table_initializer, init.trunc_normal { std = 0.02, low = -0.04, high = 0.04 }))
  if opt.output_dropout > 0 then self.dropout = Dropout(opt.output_dropout) end
end

-- ---------------------------------------------------------------- what is added to scores

--- Returns the row of the table, from 0, for each pair of positions of a window { height, width }, query by query:
-- their difference, counted from (1 - height, 1 - width) on.
function WindowAttention.differences(window)
  local height, width, rows = window[1], window[2], {}
  for i = 0, height * width - 1 do
    for j = 0, height * width - 1 do
      local down = math.floor(i / width) - math.floor(j / width) + height - 1
      local right = i % width - j % width + width - 1
      rows[#rows + 1] = down * (2 * width - 1) + right
    end
  end
  return rows
end

-- Which part of a rolled dimension a place belongs to: windows before the last, and the two parts of the last.
local function part_of(place, size, window, shift)
  if shift == 0 or place < size - window then return 0 end
  return place < size - shift and 1 or 2
end

-- Numbers (windows, T, T), as a list: APART for two positions of a window that are no neighbours, else 0.
local function apart(sizes, window, shift)
  local list = {}
  for top = 0, sizes[1] - 1, window[1] do
    for left = 0, sizes[2] - 1, window[2] do
      local parts = {}
      for y = top, top + window[1] - 1 do
        for x = left, left + window[2] - 1 do
          parts[#parts + 1] = 3 * part_of(y, sizes[1], window[1], shift[1]) + part_of(x, sizes[2], window[2], shift[2])
        end
      end
      for _, a in ipairs(parts) do
        for _, b in ipairs(parts) do list[#list + 1] = a == b and 0 or APART end
      end
    end
  end
  return list
end

-- The bias of all windows: (1, heads, T, T), or (windows, heads, T, T) of an image that was rolled.
local function bias_of(self, sizes, shift, dtype)
  local positions = self.window[1] * self.window[2]
  local rows = core.tensor(WindowAttention.differences(self.window), "i64", { positions * positions })
  local bias = ops.reshape(ops.embedding(self:use "table", rows), { 1, positions, positions, self.opt.heads })
  bias = ops.permute(bias, { 1, 4, 2, 3 })
  if shift[1] == 0 and shift[2] == 0 then return bias end
  local windows = sizes[1] * sizes[2] / positions
  local mask = core.tensor(apart(sizes, self.window, shift), dtype, { windows, 1, positions, positions })
  return ops.add(bias, mask)
end

-- ---------------------------------------------------------------- windows

-- x (b, h, w, c) -> (b windows, T, c)
local function to_windows(x, window)
  local b, h, w, c = unpack(x:shape())
  local cut = ops.reshape(x, { b, h / window[1], window[1], w / window[2], window[2], c })
  return ops.reshape(ops.permute(cut, { 1, 2, 4, 3, 5, 6 }), { -1, window[1] * window[2], c })
end

-- The way back, to (b, h, w, c).
local function from_windows(y, window, b, h, w)
  local c = y:size(3)
  local cut = ops.reshape(y, { b, h / window[1], w / window[2], window[1], window[2], c })
  return ops.reshape(ops.permute(cut, { 1, 2, 4, 3, 5, 6 }), { b, h, w, c })
end

local function attend(self, x, bias)
  local opt = self.opt
  local qkv = ops.reshape(self.qkv(x), { x:size(1), x:size(2), opt.heads, 3, self.head_size })
  local dropout = self.training and opt.dropout > 0 and opt.dropout or nil
  local y = ops.attention_packed(qkv, { bias = bias, dropout = dropout })
  y = stream.whole(self.output(ops.reshape(y, { x:size(1), x:size(2), opt.width })), 2) -- a window stays together
  return self.dropout and self.dropout(y) or y
end

--- x (b, height, width, channels) -> the same shape, channels being the option `width`. Backward: dx is set, the
-- gradients of the projections and of the table are added to.
function WindowAttention:forward(x)
  if x:dim() ~= 4 or x:size(4) ~= self.opt.width then
    error(("x must be (batch, height, width, %d); got (%s)"):format(self.opt.width, table.concat(x:shape(), ", ")), 0)
  end
  x = stream.whole(x, 2) -- in Megatron's sequence mode an MLP leaves rows of the image cut
  local b, h, w = x:size(1), x:size(2), x:size(3)
  local sizes, shift = {}, {}
  for d, n in ipairs { h, w } do
    sizes[d] = math.ceil(n / self.window[d]) * self.window[d]
    shift[d] = self.window[d] < sizes[d] and self.shift[d] or 0
  end
  if sizes[1] > h or sizes[2] > w then x = ops.pad(x, { 0, 0, 0, sizes[2] - w, 0, sizes[1] - h }) end
  x = ops.roll(x, { -shift[1], -shift[2] }, { 2, 3 })
  local y = attend(self, to_windows(x, self.window), bias_of(self, sizes, shift, x:dtype()))
  y = ops.roll(from_windows(y, self.window, b, sizes[1], sizes[2]), shift, { 2, 3 })
  if sizes[1] > h then y = ops.narrow(y, 2, 1, h) end
  return sizes[2] > w and ops.narrow(y, 3, 1, w) or y
end

return WindowAttention
