--- Counts the elements of parameters and gradients by size, right in every layout and on every number of ranks.
--
--     local list = histograms.of(items, { gradients = true, scale = 1 })    -- COLLECTIVE over all ranks
--     list[1]     -- on rank 0: { name, count, min, max, sum, squares, zeros, not_finite, bins = { [bin] = count } }
--
-- Bins have fixed edges: 1 and 1.5 times the powers of 2, of both signs, so counts of ranks add up and those of steps
-- can be compared. Each rank counts what it holds at rest: its block, or with ZeRO its own part. Copies count once (on
-- the first rank along an axis that does not cut the tensor), and a tensor that several stages hold counts on the first
-- of them. Padding is zero and lies in no bin: zeros are what is left of the whole shape. Texts of the ranks' counts
-- are exchanged, no tensor is gathered.
-- The trap: not a number and infinity are in no bin either; they are counted in not_finite.
-- @module ganymede.observe.histograms
local bit = require "bit"
local core = require "ganymede.core"
local ffi = require "ffi"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local histograms = {}

local PIECE = 2 ^ 16 -- elements that are read at a time
local LEAST, MOST = -60, 60 -- powers of 2 of the first and the last edge; what is beyond is in the outermost bin

local bits = ffi.new "union { double number; uint32_t word[2]; }" -- x86-64 and arm64 are little-endian

-- Returns the bin of a number that is not 0: 2k - 1 from 2^e on, 2k from 1.5 * 2^e on; negative numbers have negative
-- bins. It reads the exponent's bits, because LuaJIT does not compile math.frexp.
local function bin_of(x)
  bits.number = x
  local high = bits.word[1]
  local e = bit.band(bit.rshift(high, 20), 0x7ff) - 1023
  local bin
  if e < LEAST then
    bin = 1
  elseif e > MOST then
    bin = 2 * (MOST - LEAST + 1)
  else
    bin = 2 * (e - LEAST) + 1 + bit.band(bit.rshift(high, 19), 1)
  end
  return x < 0 and -bin or bin
end

local function edge(bin) return (bin % 2 == 1 and 1 or 1.5) * 2 ^ (LEAST + math.floor((bin - 1) / 2)) end

--- Returns the limits of a bin, from the smaller to the larger; those of the outermost bins reach to 0 and to infinity.
function histograms.limits(bin)
  local b = math.abs(bin)
  local low, high = b == 1 and 0 or edge(b), b == 2 * (MOST - LEAST + 1) and math.huge or edge(b + 1)
  if bin > 0 then return low, high end
  return -high, -low
end

--- Adds the numbers of a list to a histogram: { bins, min, max, sum, squares, not_finite }.
function histograms.add(h, list, scale)
  local bins = h.bins
  for i = 1, #list do
    local x = list[i] * scale
    if x ~= x or x == math.huge or x == -math.huge then
      h.not_finite = h.not_finite + 1
    elseif x ~= 0 then
      local bin = bin_of(x)
      bins[bin] = (bins[bin] or 0) + 1
      h.sum, h.squares = h.sum + x, h.squares + x * x
      if x < h.min then h.min = x end
      if x > h.max then h.max = x end
    end
  end
end

--- Returns a histogram of nothing.
function histograms.new()
  return { bins = {}, min = math.huge, max = -math.huge, sum = 0, squares = 0, not_finite = 0 }
end

-- Whether this rank's block counts: it is the first along every axis that does not cut the tensor.
local function is_counted(cut)
  local cuts = {}
  for _, name in ipairs(cut) do cuts[name] = true end
  for _, axis in ipairs(core.mesh()) do
    if axis.name ~= "pipeline" and not cuts[axis.name] and axis.coordinate > 0 then return false end
  end
  return true
end

local function add_block(h, block, scale)
  local n = block:numel()
  if n == 0 then return end
  local flat = block:contiguous():reshape { n }
  for at = 1, n, PIECE do
    tensors.scope(function()
      histograms.add(h, flat:narrow(1, at, math.min(PIECE, n - at + 1)):totable(), scale)
    end)
  end
end

-- Returns this rank's counts of a parameter or of its gradient; nil: it has none, or others count it.
local function counted(t, gradient, scale)
  local cut, partial = core.held_axes(t, gradient)
  if not cut then return nil end
  if #partial > 0 then error("histograms: a gradient is not summed over its ranks yet; ask after the step", 0) end
  if not is_counted(cut) then return nil end
  local h = histograms.new()
  tensors.scope(tensors.no_grad, function()
    add_block(h, gradient and core.grad_part(t) or core.resting_part(t), scale)
  end)
  return h
end

local function whole_count(t)
  local n = 1
  for _, size in ipairs(t:shape()) do n = n * size end
  return n
end

-- The counts of this rank as JSON. Bins are a list of pairs; numbers keep all digits.
local function told(items, opt)
  local out = json.array()
  for _, item in ipairs(items) do
    local h = counted(item.tensor, opt.gradients or false, opt.scale or 1)
    if h then
      local bins = json.array()
      for bin, count in pairs(h.bins) do bins[#bins + 1] = json.array { bin, count } end
      local any = h.min <= h.max
      out[#out + 1] = { name = item.name, count = whole_count(item.tensor), bins = bins, sum = h.sum,
        squares = h.squares, not_finite = h.not_finite, min = any and h.min or nil, max = any and h.max or nil }
    end
  end
  return json.encode { stage = (ranks.stage()), list = out }
end

local function merge(into, h)
  for _, pair in ipairs(h.bins) do into.bins[pair[1]] = (into.bins[pair[1]] or 0) + pair[2] end
  into.min, into.max = math.min(into.min, h.min or math.huge), math.max(into.max, h.max or -math.huge)
  into.sum, into.squares = into.sum + h.sum, into.squares + h.squares
  into.not_finite = into.not_finite + h.not_finite
end

-- Zeros are in no bin, and padding is none of the elements.
local function complete(h)
  local n = h.not_finite
  for _, count in pairs(h.bins) do n = n + count end
  h.zeros = h.count - n
  if h.zeros > 0 then h.min, h.max = math.min(h.min, 0), math.max(h.max, 0) end
  return h
end

--- Counts the parameters of items ({ name, tensor }), or with gradients = true their gradients times `scale`. Returns
-- the list in the order in which ranks name them, on rank 0; nil elsewhere. COLLECTIVE over all ranks.
function histograms.of(items, opt)
  local texts = ranks.texts(told(items, opt or {}))
  if not ranks.is_first() then return nil end
  local by_name, order = {}, {}
  for _, text in ipairs(texts) do
    local said = json.decode(text, "the histograms of a rank")
    for _, h in ipairs(said.list) do
      local into = by_name[h.name]
      if not into then
        into = histograms.new()
        into.name, into.count, into.stage = h.name, h.count, said.stage
        by_name[h.name], order[#order + 1] = into, into
      end
      if into.stage == said.stage then merge(into, h) end -- a tied tensor counts once
    end
  end
  for _, h in ipairs(order) do complete(h) end
  return order
end

--- Returns a histogram as buckets: a list of { upper limit, count } in rising order, zeros in a bucket of their own,
-- empty ones left out except below the first. The limits end at the largest and begin at the smallest number.
function histograms.buckets(h)
  local bins, out = {}, {}
  for bin in pairs(h.bins) do bins[#bins + 1] = bin end
  if h.zeros > 0 then bins[#bins + 1] = 0 end
  table.sort(bins)
  local above = h.min
  for _, bin in ipairs(bins) do
    local low, high
    if bin == 0 then low, high = 0, 2 ^ -1074 else low, high = histograms.limits(bin) end
    if low > above then out[#out + 1] = { low, 0 } end
    high = math.min(high, math.max(h.max, low))
    out[#out + 1] = { high, bin == 0 and h.zeros or h.bins[bin] }
    above = high
  end
  return out
end

return histograms
