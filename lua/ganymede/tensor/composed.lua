--- Ops that are made of others: shapes (stack, chunk, flatten, roll, pad), numbers (var, std, sort,
-- one_hot) and images of another size (interpolate).
--
-- They have the gradients, the layouts and the devices of the ops that they call (sort has one of its own, for the
-- last dimension). Dimensions count from 1, or from -1 at the end. The trap: what takes places along a dimension by a
-- list (interpolate, pad that mirrors more than 8 places) puts that dimension first and makes one of the others, so
-- that of those ranks may share only the first. Where ranks share space, interpolate fetches what each needs.
-- @module ganymede.tensor.composed
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"
local space = require "ganymede.tensor.space"

local ops = core.ops
local M = {}

local function define(name, text, spec, fn) M[name] = signature.declare("ops." .. name, text, spec, fn) end

-- A dimension of x, from 1. new: one more is possible, where a dimension is to stand.
local function dimension(name, x, d, new)
  local n = x:dim() + (new and 1 or 0)
  if type(d) ~= "number" then error(("%s: a dimension is a whole number; got %s"):format(name, options.brief(d)), 4) end
  local at = d < 0 and d + n + 1 or d
  if at < 1 or at > n then error(("%s: there is no dimension %d in a tensor of %d"):format(name, d, n), 4) end
  return at
end

local function refuse(name, message, ...) error(("ops.%s: " .. message):format(name, ...), 4) end

-- Is it a table with a named field, or with a hole, which would be ignored?
local function is_no_list(value) return type(value) == "table" and not options.is_of_type("list", value) end

local no_list = "a list has no named fields and no holes; got %s"

-- ---------------------------------------------------------------- shapes

--- Makes one dimension of several that follow one another.
-- @param x any shape
-- @param first the first of these dimensions; left out: 1
-- @param last the last one; left out: -1
-- @return a view of the memory of x where that is possible, else a copy
-- @shape x (..., a, b, c, ...) -> (..., a b c, ...)
-- @dtype f32 f64 bf16 f16 i64 i32 u8
-- @gradient x
-- @formula y = x
-- @error there is no such dimension, or last is before first
-- @see ops.reshape, nn.Flatten
-- @example
--   gm.ones({ 2, 3, 4 }):flatten(2):shape() --> { 2, 12 }
define("flatten", "x tensor, first integer?, last integer?", nil, function(x, first, last)
  local shape, out, joined = x:shape(), {}, 1
  if #shape == 0 then return ops.reshape(x, { 1 }) end
  first, last = dimension("ops.flatten", x, first or 1), dimension("ops.flatten", x, last or -1)
  if last < first then refuse("flatten", "dimension %d, the last, is before %d, the first", last, first) end
  for d, n in ipairs(shape) do
    if d < first or d > last then out[#out + 1] = n else joined = joined * n end
    if d == last then out[#out + 1] = joined end
  end
  return ops.reshape(x, out)
end)

-- t with a new dimension of one element at `dim`. Behind all others its place is certain, and a permutation brings it
-- forward: between a cut dimension of one element and it, a reshape could not tell which is which.
local function with_new_dimension(t, dim)
  local shape, order = t:shape(), {}
  for d = 1, #shape do order[d] = d end
  table.insert(order, dim, #shape + 1)
  shape[#shape + 1] = 1
  t = ops.reshape(t, shape)
  return dim < #shape and ops.permute(t, order) or t
end

--- Joins tensors of one shape along a new dimension.
-- @param tensors a list of at least one tensor
-- @param dim where the new dimension stands; left out: 1
-- @return a new tensor
-- @shape n times (...) -> (..., n, ...)
-- @dtype f32 f64 bf16 f16 i64 i32 u8
-- @gradient tensors
-- @formula y[i] = x_i
-- @error a shape or a dtype differs from that of the first
-- @see ops.cat, ops.unbind
-- @example
--   ops.stack({ gm.tensor { 1, 2 }, gm.tensor { 3, 4 } }, 2) --> { { 1, 3 }, { 2, 4 } }
define("stack", "tensors table, dim integer?", nil, function(tensors, dim)
  local list = {}
  if is_no_list(tensors) then refuse("stack", no_list, options.brief(tensors)) end
  if #tensors == 0 or not core.is_tensor(tensors[1]) then refuse("stack", "a list of tensors is wanted") end
  dim = dimension("ops.stack", tensors[1], dim or 1, true)
  for i, t in ipairs(tensors) do
    if not core.is_tensor(t) then refuse("stack", "entry %d is %s and no tensor", i, options.brief(t)) end
    local shape = t:shape()
    if table.concat(shape, ",") ~= table.concat(tensors[1]:shape(), ",") then
      refuse("stack", "tensor %d is (%s), the first (%s)", i, table.concat(shape, ", "),
        table.concat(tensors[1]:shape(), ", "))
    end
    list[i] = with_new_dimension(t, dim)
  end
  return ops.cat(list, dim)
end)

--- Cuts a tensor into pieces of one size along a dimension; the last may be smaller.
-- @param x any shape
-- @param pieces how many; fewer come out where their rounded size fills the dimension earlier
-- @param dim the dimension; left out: 1
-- @return the pieces, one after the other: views of the memory of x
-- @shape x (..., n, ...) -> (..., ceil(n / pieces), ...), ...
-- @dtype f32 f64 bf16 f16 i64 i32 u8
-- @gradient x
-- @formula piece i has the places from i ceil(n / pieces) on
-- @error there is no such dimension, it is cut, or pieces is below 1
-- @see ops.narrow, ops.cat
-- @example
--   gm.arange(5):chunk(2) --> { 0, 1, 2 }, { 3, 4 }
define("chunk", "x tensor, pieces integer, dim integer?", nil, function(x, pieces, dim)
  dim = dimension("ops.chunk", x, dim or 1)
  if pieces < 1 then refuse("chunk", "pieces is %d, should be 1 or more", pieces) end
  local n, out = x:size(dim), {}
  local each = math.max(1, math.ceil(n / pieces))
  for start = 1, math.max(n, 1), each do
    out[#out + 1] = ops.narrow(x, dim, start, math.min(each, n - start + 1))
  end
  return unpack(out)
end)

local function rolled(x, shift, dim)
  local n = x:size(dim)
  if n == 0 or shift % n == 0 then return x end
  local moved = shift % n
  return ops.cat({ ops.narrow(x, dim, n - moved + 1, moved), ops.narrow(x, dim, 1, n - moved) }, dim)
end

--- Moves elements along dimensions; those that leave at one end come in at the other.
-- @param x any shape
-- @param shift by how many places, or a list with one for each of dim; negative: towards the first place
-- @param dim the dimension, or a list of them; left out: x is moved as one row
-- @return a new tensor, or x where nothing moves
-- @shape x (...) -> (...), the same
-- @dtype f32 f64 bf16 f16 i64 i32 u8
-- @gradient x
-- @formula y[i] = x[(i - shift) mod n]
-- @error shift and dim are lists of different length; the dimension is cut over ranks
-- @see ops.cat
-- @example
--   gm.arange(4):roll(1) --> { 3, 0, 1, 2 }
define("roll", "x tensor, shift integer|table, dim integer|table?", nil, function(x, shift, dim)
  if is_no_list(shift) or is_no_list(dim) then
    refuse("roll", no_list, options.brief(is_no_list(shift) and shift or dim))
  elseif dim == nil then
    if type(shift) == "table" then refuse("roll", "a list of shifts needs a list of dimensions") end
    return ops.reshape(rolled(ops.reshape(x, { -1 }), shift, 1), x:shape())
  end
  local shifts, dims = type(shift) == "table" and shift or { shift }, type(dim) == "table" and dim or { dim }
  if #shifts ~= #dims then refuse("roll", "%d shifts for %d dimensions", #shifts, #dims) end
  for i, s in ipairs(shifts) do
    if type(s) ~= "number" or s % 1 ~= 0 then refuse("roll", "shift %d is %s, no whole number", i, options.brief(s)) end
  end
  for i, d in ipairs(dims) do x = rolled(x, shifts[i], dimension("ops.roll", x, d)) end
  return x
end)

-- ---------------------------------------------------------------- places by a list

-- x as rows along dim, (size of dim, all the rest), and a function that makes of other rows what x is of these.
local function as_rows(x, dim)
  local order, back = { dim }, { [dim] = 1 }
  for d = 1, x:dim() do
    if d ~= dim then
      order[#order + 1] = d
      back[d] = #order
    end
  end
  local turned = ops.permute(x, order)
  local shape = turned:shape()
  return ops.reshape(turned, { shape[1], -1 }), function(rows)
    shape[1] = rows:size(1)
    return ops.permute(ops.reshape(rows, shape), back)
  end
end

-- The rows of these numbers (a list, from 0).
local function taken(rows, places) return ops.embedding(rows, core.tensor(places, "i64", { #places })) end

local function reflected(i, n)
  if i < 0 then return -i end
  return i >= n and 2 * (n - 1) - i or i
end

local function padded_by_places(x, dim, before, after)
  local n, places = x:size(dim), {}
  for i = -before, n + after - 1 do places[#places + 1] = reflected(i, n) end
  local rows, back = as_rows(x, dim)
  return back(taken(rows, places))
end

local SHORT = 8 -- places on a side, up to which each is a copy of another; beyond, all are taken by a list

-- x mirrored at its ends, or with its first and last places repeated.
local function bordered(x, before, after, mode)
  local most = 0
  for d = 1, x:dim() do
    local n, longest = x:size(d), math.max(before[d], after[d])
    if longest > 0 and (mode == "reflect" and longest >= n or n == 0) then
      refuse("pad", "dimension %d has %d places, too few to %s %d in front and %d behind", d, n, mode, before[d],
        after[d])
    end
    most = math.max(most, longest)
  end
  if mode == "replicate" or most <= SHORT then return core.pad(x, before, after, 0, mode) end
  for d = 1, x:dim() do
    if before[d] + after[d] > 0 then x = padded_by_places(x, d, before[d], after[d]) end
  end
  return x
end

-- x without -before places in front and -after behind; what is left to add.
local function cut_off(x, dim, before, after)
  if before >= 0 and after >= 0 then return x, before, after end
  local start, n = math.max(0, -before), x:size(dim)
  local left = n - start - math.max(0, -after)
  if left < 0 then refuse("pad", "dimension %d has %d places, and %d are taken away", dim, n, n - left) end
  return ops.narrow(x, dim, start + 1, left), math.max(0, before), math.max(0, after)
end

--- Puts elements around a tensor, or takes some away.
-- @param x any shape
-- @param sizes how many elements: { before, after } of the last dimension, then of the one before it, and so on;
--   negative: so many are taken away
-- @param options value and mode
-- @return a new tensor, or x where nothing is added
-- @shape x (..., n) -> (..., before + n + after)
-- @dtype f32 f64 bf16 f16
-- @gradient x
-- @formula constant: y = value outside of x; replicate: the nearest element; reflect: x mirrored at its first and last
-- @error sizes is no list of pairs; reflect has too few elements; the dimension is cut over ranks
-- @see ops.cat, ops.narrow
-- @example
--   ops.pad(gm.tensor { 1, 2, 3 }, { 1, 2 }) --> { 0, 1, 2, 3, 0, 0 }
--   ops.pad(gm.tensor { 1, 2, 3 }, { 2, 1 }, { mode = "reflect" }) --> { 3, 2, 1, 2, 3, 2 }
define("pad", "x tensor, sizes table, options options?", {
  value = { type = "number", default = 0, infinite = true, doc = "the elements that are put around, in mode constant" },
  mode = { type = "string", default = "constant", one_of = { "constant", "reflect", "replicate" },
    doc = "what is put around: the value, x mirrored without its edge, or the nearest element of x" },
}, function(x, sizes, opt)
  if is_no_list(sizes) then refuse("pad", no_list, options.brief(sizes)) end
  if #sizes == 0 or #sizes % 2 == 1 or #sizes > 2 * x:dim() then
    refuse("pad", "sizes is a list of pairs, at most one for each of %d dimensions; got %s", x:dim(),
      options.brief(sizes))
  end
  for i, n in ipairs(sizes) do
    if type(n) ~= "number" or n ~= math.floor(n) then
      refuse("pad", "size %d is %s, should be a whole number", i, options.brief(n))
    end
  end
  local before, after, more = {}, {}, 0
  for d = 1, x:dim() do
    local at = 2 * (x:dim() - d) + 1
    x, before[d], after[d] = cut_off(x, d, sizes[at] or 0, sizes[at + 1] or 0)
    more = more + before[d] + after[d]
  end
  if more == 0 then return x end
  if opt.mode ~= "constant" then return bordered(x, before, after, opt.mode) end
  return core.pad(opt.value == 0 and x or core.settle(x), before, after, opt.value)
end)

-- Where element i (from 0) of `out` lies among n: a place, from 0, and how far on to the next.
local function source_of(i, n, out, scale, opt)
  local at
  if opt.mode == "nearest" then return math.min(math.floor(i * scale), n - 1), 0 end
  if opt.align_corners then at = out > 1 and i * (n - 1) / (out - 1) or 0
  else at = math.max(0, (i + 0.5) * scale - 0.5) end
  local place = math.min(math.floor(at), n - 1)
  return place, math.min(at - place, 1)
end

-- The same where ranks share images: each fetches the rows that its own read (host/parallel/sharded/resize.h).
local function resized_on_ranks(x, dim, out, scale, opt)
  local n, part, shape = x:size(dim), {}, { out }
  local places = opt.mode == "nearest" and "nearest" or opt.align_corners and "corners" or "linear"
  local a = core.resized_rows(x, dim, out, places, scale, false)
  if opt.mode == "nearest" then return a end
  for i = 0, out - 1 do
    local _, rest = source_of(i, n, out, scale, opt)
    part[i + 1] = rest
  end
  for d = dim + 1, x:dim() do shape[d - dim + 1] = 1 end
  local b = core.resized_rows(x, dim, out, places, scale, true)
  return ops.add(a, ops.mul(ops.sub(b, a), core.tensor(part, x:dtype(), shape)))
end

local function resized(x, dim, out, scale, opt)
  local n, low, high, part = x:size(dim), {}, {}, {}
  if n == 0 or out < 1 then refuse("interpolate", "dimension %d goes from %d to %d elements", dim, n, out) end
  if space.is_cut(x) then return resized_on_ranks(x, dim, out, scale, opt) end
  for i = 0, out - 1 do
    local place, rest = source_of(i, n, out, scale, opt)
    low[i + 1], high[i + 1], part[i + 1] = place, math.min(place + 1, n - 1), rest
  end
  local rows, back = as_rows(x, dim)
  local a = taken(rows, low)
  if opt.mode == "nearest" then return back(a) end
  local share = core.tensor(part, x:dtype(), { out, 1 })
  return back(ops.add(a, ops.mul(ops.sub(taken(rows, high), a), share)))
end

local function each_of(name, given, dims)
  local list = {}
  for d = 1, dims do list[d] = type(given) == "table" and given[d] or type(given) == "number" and given end
  if type(given) == "table" and #given ~= dims then
    refuse("interpolate", "%s has %d numbers for images of %d dimension%s", name, #given, dims, dims == 1 and "" or "s")
  end
  for _, n in ipairs(list) do
    if type(n) ~= "number" or n <= 0 or name == "size" and n ~= math.floor(n) then
      refuse("interpolate", "%s is %s, should be %s above 0", name, options.brief(n),
        name == "size" and "a whole number" or "a number")
    end
  end
  return list
end

--- Gives images another size: the nearest element, or a mean of neighbours by distance (linear, in each dimension: with
-- two dimensions bilinear, with three trilinear).
-- @param x the images
-- @param options size or scale; mode; align_corners
-- @return a new tensor of the dtype of x
-- @shape x (n, c, ...) with one to three dimensions d behind the channels -> (n, c, size...), size = floor(scale d)
-- @dtype f32 f64 bf16 f16
-- @gradient x
-- @layout a dimension behind the channels may be cut: ranks then send each other the rows that they need of it
-- @formula nearest: y[i] = x[floor(i / scale)]; linear: x between its places at (i + 0.5) / scale - 0.5, with
--   align_corners at i (d - 1) / (size - 1); scale is size / d unless it is given
-- @error both size and scale are given, or neither; align_corners in mode nearest
-- @see ops.pad, ops.avg_pool
-- @example
--   ops.interpolate(gm.tensor { { { 1, 3 } } }, { size = 4 }) --> { { { 1, 1, 3, 3 } } }
--   x = gm.tensor { { { 1, 3 } } }
--   ops.interpolate(x, { size = 3, mode = "linear", align_corners = true }) --> { { { 1, 2, 3 } } }
define("interpolate", "x tensor, options options", {
  size = { type = { "integer", "list" }, optional = true,
    doc = "the sizes of the result: a number, or a list with one for each dimension" },
  scale = { type = { "number", "list" }, optional = true, doc = "how many times as large the result is, likewise" },
  mode = { type = "string", default = "nearest", one_of = { "nearest", "linear" },
    doc = "the nearest element, or a mean of neighbours by distance" },
  align_corners = { type = "boolean", default = false,
    doc = "linear: whether the first and last elements of x and of the result lie at the same places" },
}, function(x, opt)
  local dims = x:dim() - 2
  if dims < 1 or dims > 3 then
    refuse("interpolate", "x is (%s), should be (batch, channels, ...) with one to three dimensions behind them",
      table.concat(x:shape(), ", "))
  end
  if (opt.size == nil) == (opt.scale == nil) then refuse("interpolate", "give size or scale, and not both") end
  if opt.align_corners and opt.mode == "nearest" then refuse("interpolate", "align_corners needs mode = \"linear\"") end
  local given = each_of(opt.size and "size" or "scale", opt.size or opt.scale, dims)
  for d = 1, dims do
    local n = x:size(d + 2)
    local out = opt.size and given[d] or math.floor(n * given[d])
    x = resized(x, d + 2, out, opt.size and n / out or 1 / given[d], opt)
  end
  return x
end)

-- ---------------------------------------------------------------- numbers

local spread = {
  correction = { type = "integer", default = 1, min = 0,
    doc = "what the number of elements is less by in the division: 1 of a sample, 0 of all there are" },
  keepdim = { type = "boolean", default = false, doc = "whether the result keeps the dimensions, with size 1" },
}

local function variance(name, x, dim, opt)
  local n, dims = 1, {}
  if dim == nil then for d = 1, x:dim() do dims[d] = d end
  else
    for i, d in ipairs(type(dim) == "table" and dim or { dim }) do dims[i] = dimension("ops." .. name, x, d) end
  end
  for _, d in ipairs(dims) do n = n * x:size(d) end
  if n <= opt.correction then
    refuse(name, "%d element%s less a correction of %d are none to divide by", n, n == 1 and "" or "s", opt.correction)
  end
  local over = #dims > 0 and dims or nil
  local off = ops.sub(x, core.settle(ops.mean(x, over, over ~= nil)))
  return ops.mul(ops.sum(ops.square(off), over, opt.keepdim), 1 / (n - opt.correction))
end

--- Gives the variance along dimensions.
-- @param x any shape
-- @param dim a dimension, or a list of them; left out: all
-- @param options correction and keepdim
-- @return a new tensor of the dtype of x
-- @shape x (..., n, ...) -> (..., ...)
-- @dtype f32 f64 bf16 f16
-- @gradient x
-- @layout a dimension may be cut: the mean is then collective, and the result is a sum over those axes (:settle())
-- @formula y = sum of (x - mean)^2 / (n - correction)
-- @error there are no more elements than the correction
-- @see ops.std, ops.mean
-- @example
--   gm.tensor({ 1, 3 }):var() --> 2
define("var", "x tensor, dim integer|table?, options options?", spread, function(x, dim, opt)
  return variance("var", x, dim, opt)
end)

--- Gives the standard deviation along dimensions: the root of the variance.
-- @param x any shape
-- @param dim a dimension, or a list of them; left out: all
-- @param options correction and keepdim
-- @return a new tensor of the dtype of x
-- @shape x (..., n, ...) -> (..., ...)
-- @dtype f32 f64 bf16 f16
-- @gradient x
-- @layout collective where a dimension is cut
-- @formula y = (sum of (x - mean)^2 / (n - correction))^(1/2)
-- @error there are no more elements than the correction
-- @see ops.var
-- @example
--   gm.tensor({ 1, 3 }):std(1, { correction = 0 }) --> 1
define("std", "x tensor, dim integer|table?, options options?", spread, function(x, dim, opt)
  return ops.sqrt(core.settle(variance("std", x, dim, opt)))
end)

--- Sorts along a dimension.
-- @param x any shape
-- @param dim the dimension; left out: -1
-- @param descending true: the largest first; left out: the smallest
-- @return two new tensors of the shape of x: its elements, and where they were, from 0; equals stay in their order, and
--   NaN counts as the largest
-- @shape x (...) -> (...), (...)
-- @dtype f32 f64 bf16 f16
-- @gradient x
-- @formula y[i] = x[index[i]]
-- @error there is no such dimension, or it is cut over ranks
-- @see ops.top_k, ops.argmax
-- @example
--   gm.tensor({ 3, 1, 2 }):sort() --> { 1, 2, 3 }, { 1, 2, 0 }
define("sort", "x tensor, dim integer?, descending boolean?", nil, function(x, dim, descending)
  dim = dimension("ops.sort", x, dim or -1)
  local order = {}
  for d = 1, x:dim() do order[d] = d end
  order[dim], order[x:dim()] = x:dim(), dim
  local y, index = core.sort_rows(ops.permute(x, order), descending == true)
  return ops.permute(y, order), ops.permute(index, order)
end)

--- Makes a row of zeros with a 1 of each class.
-- @param index the classes, from 0
-- @param classes how many there are
-- @param dtype that of the result; left out: gm.default_dtype()
-- @return a new tensor
-- @shape index (...) -> (..., classes)
-- @dtype i64 i32
-- @gradient none
-- @formula y[j] = 1 where index = j, else 0
-- @error a class is negative, or not below classes
-- @see ops.embedding, ops.eq
-- @example
--   ops.one_hot(gm.tensor({ 1, 0 }, { dtype = "i64" }), 3) --> { { 0, 1, 0 }, { 1, 0, 0 } }
define("one_hot", "index tensor, classes integer, dtype string?", nil, function(index, classes, dtype)
  if classes < 1 then refuse("one_hot", "classes is %d, should be 1 or more", classes) end
  dtype = dtype or core.default_dtype()
  local shape, places, exact = index:shape(), {}, classes <= 2 ^ 24 and "f32" or "f64"
  for j = 1, classes do places[j] = j - 1 end
  shape[#shape + 1] = 1
  local is = ops.eq(ops.reshape(ops.cast(index, exact), shape), core.tensor(places, exact, { classes }))
  local none = ops.expand(core.fill_(core.empty({ 1, 1 }, dtype), 0), { classes, 1 })
  -- the lookup adds zeros, and refuses classes that are not there
  return ops.add(ops.cast(is, dtype), ops.embedding(none, index))
end)

return M
