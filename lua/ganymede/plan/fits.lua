--- Fits the rates of ops and links to times that were measured.
--
--     local a, b = fits.line(points)                       -- t = a + n b
--     local rates = fits.products(calls)                   -- t = start + bytes / bandwidth + products / rate
--     local rates = fits.rates(calls, "bytes", "bytes")    -- t = bytes / rate
--
-- calls: a list of { op, dtype, size, products, bytes, seconds } of ops that ran. A rate is what a machine's file has
-- (ganymede.plan.machine): { op, dtype, points = { { size, rate }, ... } }. What calls of one kind take is the mean of
-- them without the slowest tenth: a step is a sum, so what happens to most calls belongs to it, and what something else
-- has done to few of them does not.
-- @module ganymede.plan.fits
local fits = {}

--- The median of a list of numbers, which is sorted.
function fits.median(list)
  table.sort(list)
  local middle = (#list + 1) / 2
  return (list[math.floor(middle)] + list[math.ceil(middle)]) / 2
end

-- The mean of a list without its largest tenth.
local function usual(list)
  table.sort(list)
  local n, sum = math.ceil(0.9 * #list), 0
  for i = 1, n do sum = sum + list[i] end
  return sum / n
end

--- The value that three quarters of a list reach: of times that something else may have disturbed.
function fits.lower_quarter(list)
  table.sort(list)
  return list[math.ceil(0.25 * #list)]
end

--- Fits t = a + n b to points { n, t }, relative errors weighed equally; a and b are at least 0. Returns a, b.
function fits.line(points)
  local w, wn, wnn, wt, wnt = 0, 0, 0, 0, 0
  for _, p in ipairs(points) do
    local n, t = p[1], p[2]
    local weight = 1 / (t * t)
    w, wn, wnn = w + weight, wn + weight * n, wnn + weight * n * n
    wt, wnt = wt + weight * t, wnt + weight * n * t
  end
  local determinant = w * wnn - wn * wn
  local a, b = (wt * wnn - wnt * wn) / determinant, (w * wnt - wn * wt) / determinant
  if a < 0 then return 0, wnt / wnn end
  if b < 0 then return wt / w, 0 end
  return a, b
end

local function bucket(v) return math.floor(math.log(v) / math.log(4) + 0.5) end

-- Of the least dimension of products: powers of 2 from 32 on, because 32 rows reach less than 64. Smaller products are
-- mostly start, and share a rate.
local function bucket_of_product(v)
  local at = math.floor(math.log(v) / math.log(2) + 0.5)
  return at > 4 and at or 2 * bucket(v)
end

-- The calls of each op and dtype, in the order of these: a list of { op, dtype, ... calls }.
local function by_op(calls, keep)
  local lists, keys, out = {}, {}, {}
  for _, call in ipairs(calls) do
    if call.seconds > 0 and keep(call) then
      local key = call.op .. " " .. (call.dtype or "*")
      if not lists[key] then lists[key], keys[#keys + 1] = { op = call.op, dtype = call.dtype or "*" }, key end
      table.insert(lists[key], call)
    end
  end
  table.sort(keys)
  for i, key in ipairs(keys) do out[i] = lists[key] end
  return out
end

local function ascending(points)
  table.sort(points, function(a, b) return a[1] < b[1] end)
  return points
end

--- Returns rates by op and dtype: points at the buckets of their size (powers of 4). calls: a list of { op, dtype,
-- seconds, ... }; amount, size: their fields; keep(call), or nil: whether it counts; of(list): what stands for the
-- seconds by amount of a bucket (default: the mean without the slowest tenth).
function fits.rates(calls, amount, size, keep, of)
  local function counts(call) return call[amount] > 0 and call[size] > 0 and (not keep or keep(call)) end
  local out = {}
  for i, list in ipairs(by_op(calls, counts)) do
    local at, points = {}, {}
    for _, call in ipairs(list) do
      local key = bucket(call[size])
      at[key] = at[key] or { sizes = {}, slopes = {} }
      table.insert(at[key].sizes, call[size])
      table.insert(at[key].slopes, call.seconds / call[amount])
    end
    for _, found in pairs(at) do points[#points + 1] = { fits.median(found.sizes), 1 / (of or usual)(found.slopes) } end
    out[i] = { op = list.op, dtype = list.dtype, points = ascending(points) }
  end
  return out
end

-- Alike calls of a list: { at = bucket of their least dimension, size, products, bytes, seconds }.
local function alike(list)
  local found, out = {}, {}
  for _, call in ipairs(list) do
    local key = ("%d %.17g %.17g"):format(call.size, call.products, call.bytes)
    if not found[key] then
      found[key] = { at = bucket_of_product(call.size), size = call.size, products = call.products,
        bytes = call.bytes, all = {} }
      out[#out + 1] = found[key]
    end
    table.insert(found[key].all, call.seconds)
  end
  for _, group in ipairs(out) do group.seconds = usual(group.all) end
  return out
end

--- Returns x[i] >= low[i] with the least sum over rows of (row . x - 1)^2, by descent along one coordinate at a time.
-- rows: lists of numbers.
function fits.least_squares(rows, low)
  local n, gram, pull, x = #low, {}, {}, {}
  for i = 1, n do
    gram[i], pull[i], x[i] = {}, 0, low[i]
    for j = 1, n do
      gram[i][j] = 0
      for _, row in ipairs(rows) do gram[i][j] = gram[i][j] + row[i] * row[j] end
    end
    for _, row in ipairs(rows) do pull[i] = pull[i] + row[i] end
  end
  for _ = 1, 1000 do
    for i = 1, n do
      local left = pull[i]
      for j = 1, n do left = left - gram[i][j] * x[j] end
      if gram[i][i] > 0 then x[i] = math.max(low[i], x[i] + left / gram[i][i]) end
    end
  end
  return x
end

-- The buckets of groups, ascending, and the median size of each.
local function sizes_of(groups)
  local lists, buckets, sizes = {}, {}, {}
  for _, g in ipairs(groups) do
    if not lists[g.at] then lists[g.at], buckets[#buckets + 1] = {}, g.at end
    table.insert(lists[g.at], g.size)
  end
  table.sort(buckets)
  for i, at in ipairs(buckets) do sizes[i] = fits.median(lists[at]) end
  return buckets, sizes
end

--- Returns the largest FLOP/s of alike calls.
function fits.largest(calls)
  local most = 0
  for _, list in ipairs(by_op(calls, function(call) return call.products > 0 end)) do
    for _, g in ipairs(alike(list)) do most = math.max(most, g.products / g.seconds) end
  end
  return most
end

-- One op's { start, bandwidth or nil, points }. most: FLOP/s that no product exceeds.
local function fit_products(groups, most)
  local buckets, sizes = sizes_of(groups)
  local rows, low, points = {}, { 0, 0 }, {}
  for i in ipairs(buckets) do low[2 + i] = 1e9 / most end
  for r, g in ipairs(groups) do
    rows[r] = { 1e-6 / g.seconds, 1e-9 * g.bytes / g.seconds }
    for i, at in ipairs(buckets) do rows[r][2 + i] = at == g.at and 1e-9 * g.products / g.seconds or 0 end
  end
  local x = fits.least_squares(rows, low)
  for i, size in ipairs(sizes) do points[i] = { size, 1e9 / x[2 + i] } end
  return { start = 1e-6 * x[1], bandwidth = x[2] > 0 and 1e9 / x[2] or nil, points = points }
end

--- Returns rates of products by op and dtype: seconds = start + bytes / bandwidth + products / rate, where the rate
-- belongs to the least dimension (powers of 4, from 32 on of 2), with the least sum of squared relative errors. What an
-- op does beside its products, such as an activation, is in `bandwidth`. No rate is a quarter above the largest that a
-- call reached. calls: a list of { op, dtype, size, products, bytes, seconds }.
function fits.products(calls)
  local out, most = {}, 1.25 * fits.largest(calls)
  for i, list in ipairs(by_op(calls, function(call) return call.products > 0 and call.size > 0 end)) do
    out[i] = fit_products(alike(list), most)
    out[i].op, out[i].dtype = list.op, list.dtype
  end
  return out
end

--- Rates for ops that were not measured: at each size, the median of the calls of all ops near it.
function fits.any(calls, amount, size, keep)
  local all = {}
  for _, call in ipairs(calls) do
    if keep(call) then
      all[#all + 1] = { op = "*", [amount] = call[amount], [size] = call[size], seconds = call.seconds }
    end
  end
  return fits.rates(all, amount, size, nil, fits.median)[1]
end

--- Adds to each rate the points of `any` beyond the sizes at which its op was measured. An op that moved some bytes
-- only has shown what a call costs, and nothing of what it reaches with a million of them.
function fits.extend(rates, any)
  for _, rate in ipairs(rates) do
    local points, largest = rate.points, rate.points[#rate.points]
    for _, point in ipairs(any.points) do
      if point[1] > 2 * largest[1] and point[2] > largest[2] then points[#points + 1] = { point[1], point[2] } end
    end
  end
end

return fits
