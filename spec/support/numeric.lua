--- Numbers for specs: flat lists of tensors and tables, errors relative to the largest value, numeric slopes.
local gm = require "ganymede"

local numeric = {}

--- A tensor of i64 whose element i (row-major, from 0) is fn(i).
function numeric.integers(shape, fn)
  local list, n = {}, 1
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do list[i] = fn(i - 1) end
  return gm.tensor(list, { dtype = "i64", shape = shape })
end

--- An example with this default dtype, in a scope of its own: it(name, numeric.in_dtype("f64", fn)).
function numeric.in_dtype(dtype, fn)
  return function()
    local before = gm.default_dtype()
    gm.set_default_dtype(dtype)
    local ok, err = pcall(gm.scope, fn)
    gm.set_default_dtype(before)
    if not ok then error(err, 0) end
  end
end

--- The same in f64: it(name, numeric.f64(fn)).
function numeric.f64(fn) return numeric.in_dtype("f64", fn) end

--- A tensor, nested table or number -> list of numbers in row-major order.
function numeric.flat(x)
  local list = {}
  local function walk(value)
    if type(value) == "table" then
      for i = 1, #value do walk(value[i]) end
    else
      list[#list + 1] = value
    end
  end
  if type(x) == "userdata" then x = x:totable() end
  walk(x)
  return list
end

--- The largest absolute value of a tensor, nested table or number; 0 of none.
function numeric.size(x)
  local most = 0
  for _, v in ipairs(numeric.flat(x)) do most = math.max(most, math.abs(v)) end
  return most
end

--- max|got - want| / max|want|. NaN anywhere, or different counts, is an error: no comparison passes on them.
-- floor: the least the divisor may be (for values that are zero in theory), default: none, an all-zero want is an
-- error, so that no test passes on zeros.
function numeric.relative_error(got, want, floor)
  local a, b = numeric.flat(got), numeric.flat(want)
  if #a ~= #b then error(("%d numbers compared with %d"):format(#a, #b), 2) end
  local worst, largest = 0, floor or 0
  for i = 1, #a do
    if a[i] ~= a[i] or b[i] ~= b[i] then error(("element %d is NaN: got %g, want %g"):format(i, a[i], b[i]), 2) end
    if a[i] ~= b[i] then worst = math.max(worst, math.abs(a[i] - b[i])) end -- equal infinities differ by nothing
    largest = math.max(largest, math.abs(b[i]))
  end
  if largest == 0 then error("every wanted value is zero: the comparison would say nothing", 2) end
  return worst / largest
end

--- Fails unless relative_error(got, want) <= tolerance; says which number is worst.
function numeric.agree(got, want, tolerance, floor)
  local worst = numeric.relative_error(got, want, floor)
  if worst <= tolerance then return end
  local a, b, at = numeric.flat(got), numeric.flat(want), 1
  for i = 1, #a do
    if math.abs(a[i] - b[i]) > math.abs(a[at] - b[at]) then at = i end
  end
  error(("relative error %.3g > %.3g; worst at element %d: got %.17g, want %.17g"):format(worst, tolerance, at, a[at],
    b[at]), 2)
end

--- d loss() / d tensor by central differences, for a contiguous f64 tensor -> flat list.
-- step 1e-5: truncation error 1e-10 and rounding 1e-11 of a loss near 1, so 1e-7 is a fair tolerance.
-- With count, only that many elements, spread evenly (then the list of their indices, from 1, too).
function numeric.slopes(loss, tensor, count)
  local h = 1e-5
  local elements, n = tensor:detach():reshape(tensor:numel()), tensor:numel()
  local slopes, at = {}, {}
  count = math.min(count or n, n)
  for k = 0, count - 1 do
    local i = math.floor(k * n / count) + 1
    local value = elements:get(i)
    elements:set(i, value + h)
    local above = loss()
    elements:set(i, value - h)
    local below = loss()
    elements:set(i, value)
    slopes[#slopes + 1], at[#at + 1] = (above - below) / (2 * h), i
  end
  return slopes, at
end

return numeric
