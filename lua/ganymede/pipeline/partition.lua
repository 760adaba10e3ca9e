--- Cuts a list of n sections into consecutive parts. The functions are pure and know nothing of models.
--
--     partition.uniform(7, 3)                    -- { { 1, 3 }, { 4, 5 }, { 6, 7 } }
--     partition.balanced({ 5, 1, 1, 5 }, 2)      -- by weights: { { 1, 2 }, { 3, 4 } }
--     partition.listed({ 1, 6 }, 7, 2)           -- sizes: { { 1, 1 }, { 2, 7 } }
--     partition.listed({ first = { 1, 2 } }, 7, 2)
--
-- A part is { first, last }; none is empty, so more parts than sections is an error.
-- @module ganymede.pipeline.partition
local options = require "ganymede.base.options"

local partition = {}

local function check_parts(n, parts)
  if parts > n then
    error(("%d parts of %d section%s: no part may be empty; use fewer stages or chunks, or a deeper model"):format(
      parts, n, n == 1 and "" or "s"), 0)
  end
end

-- Returns the parts, given the section at which each ends.
local function from_ends(ends)
  local list, first = {}, 1
  for i, last in ipairs(ends) do
    list[i], first = { first, last }, last + 1
  end
  return list
end

--- Returns parts whose sizes differ by at most one, larger ones first.
function partition.uniform(n, parts)
  check_parts(n, parts)
  local ends, last = {}, 0
  for i = 1, parts do
    last = last + math.floor(n / parts) + (i <= n % parts and 1 or 0)
    ends[i] = last
  end
  return from_ends(ends)
end

-- Returns best[k][i], the least cost of the first i sections in k parts, and from[k][i], the section at which the last
-- of these parts begins. cost(a, b) is the cost of a part of sections a to b; join adds it to the cost of the parts
-- before.
local function search(n, parts, cost, join)
  local best, from = { [0] = { [0] = 0 } }, {}
  for k = 1, parts do
    best[k], from[k] = {}, {}
    for i = k, n - (parts - k) do
      for first = k, i do
        local before = best[k - 1][first - 1]
        local total = before and join(before, cost(first, i))
        if total and (not best[k][i] or total < best[k][i]) then best[k][i], from[k][i] = total, first end
      end
    end
  end
  return best, from
end

local function check_weights(weights)
  for i, w in ipairs(weights) do
    if type(w) ~= "number" or w ~= w or w < 0 or w == math.huge then
      error(("weight %d of a section must be a number, at least 0; got %s"):format(i, options.literal(w)), 0)
    end
  end
end

--- Returns the parts for which the heaviest one is as light as possible. Of several such cuts it takes the most even
-- one (least sum of squares), and of these the one whose later parts begin first. weights: a number of at least 0 for
-- each section.
function partition.balanced(weights, parts)
  local n, sums = #weights, { [0] = 0 }
  check_parts(n, parts)
  check_weights(weights)
  for i = 1, n do sums[i] = sums[i - 1] + weights[i] end
  local function weight(first, last) return sums[last] - sums[first - 1] end
  local heaviest = search(n, parts, weight, math.max)[parts][n]
  local function square(first, last)
    local w = weight(first, last)
    return w <= heaviest and w * w or math.huge
  end
  local _, from = search(n, parts, square, function(a, b) return a + b end)
  local ends, last = {}, n
  for k = parts, 1, -1 do
    ends[k] = last
    last = from[k][last] - 1
  end
  return from_ends(ends)
end

local function whole(name, i, value, least)
  if type(value) == "number" and value >= least and value % 1 == 0 then return end
  error(("split: %s %d must be a whole number from %d; got %s"):format(name, i, least, options.literal(value)), 0)
end

local function check_length(list, what, parts)
  if #list ~= parts then
    error(("split: the %s of %d parts are given; the schedule has %d parts (stages times chunks)"):format(what, #list,
      parts), 0)
  end
end

local function by_sizes(sizes, n, parts)
  check_length(sizes, "sizes", parts)
  local ends, sum = {}, 0
  for i, size in ipairs(sizes) do
    whole("size", i, size, 1)
    sum = sum + size
    ends[i] = sum
  end
  if sum ~= n then
    error(("split: the sizes { %s } add up to %d sections; the model has %d"):format(table.concat(sizes, ", "), sum,
      n), 0)
  end
  return from_ends(ends)
end

local function by_first(list, n, parts)
  check_length(list, "first sections", parts)
  local ends = {}
  for i, first in ipairs(list) do
    whole("first section", i, first, 1)
    if first > n then error(("split: a part begins at section %d; the model has %d"):format(first, n), 0) end
    if i == 1 and first ~= 1 then error(("split: the first part must begin at section 1, not %d"):format(first), 0) end
    if i > 1 and first <= list[i - 1] then
      error(("split: part %d begins at section %d, part %d at section %d; no part may be empty"):format(i, first,
        i - 1, list[i - 1]), 0)
    end
    ends[i - 1] = first - 1
  end
  ends[0], ends[parts] = nil, n
  return from_ends(ends)
end

--- Returns the parts that the user lists: the number of sections of each part, which must add up to n, or { first =
-- list of the first section of each part }.
function partition.listed(list, n, parts)
  check_parts(n, parts)
  if list.first ~= nil then return by_first(list.first, n, parts) end
  return by_sizes(list, n, parts)
end

return partition
