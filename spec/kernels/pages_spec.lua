-- Keys and values in pages: every CPU table and the CUDA kernels against the reference.
--
-- Values are below 1, so that outputs are means of numbers below 1. A score sums d products, and the output sums up to
-- n page of them: support.terms(t + d) of the size of the scores, as attention_spec has it.
local gm = require "ganymede"
local support = require "spec.kernels.support"

-- b, queries, heads, key heads, size of a head, positions of a page, pages of a row; CPUs take 64 keys at a time
local problems = {
  { 1, 1, 1, 1, 1, 1, 1 }, { 3, 1, 6, 2, 64, 16, 5 }, { 2, 3, 4, 4, 5, 3, 4 }, { 1, 1, 9, 3, 64, 100, 3 },
  { 2, 5, 2, 1, 70, 7, 9 }, { 1, 2, 2, 2, 200, 4, 3 }, { 2, 1, 3, 3, 16, 130, 2 }, { 0, 1, 2, 2, 4, 2, 2 },
  { 2, 0, 2, 2, 4, 2, 2 }, { 2, 3, 2, 1, 24, 7, 40 },
}

local function name_of(dtype, p)
  return ("%s b %d, %d queries, %d heads, %d key heads, size %d, pages of %d, %d a row"):format(dtype, unpack(p))
end

-- Pages of the pool: 7 does not divide them, so that multiples of 7 are each of them once.
local function pool_size(p)
  local n = p[1] * p[7] + 2
  return n % 7 == 0 and n + 1 or n
end

-- Numbers from 0 that differ, out of order: pages of rows that share none.
local function pages_of(pages, rows, each, kind, turned)
  local list = {}
  for r = 1, rows do
    list[r] = {}
    for n = 1, each do list[r][n] = (7 * ((r - 1) * each + n)) % pages end
  end
  local t = rows == 0 and gm.zeros({ 0, each }, { dtype = kind }) or gm.tensor(list, { dtype = kind })
  return turned and t:transpose(1, 2):contiguous():transpose(1, 2) or t
end

-- Rows with all positions, with fewer than there are queries, and between.
local function counts_of(rows, most)
  local list = {}
  for r = 1, rows do list[r] = ({ most, 1, math.ceil(most / 2) })[(r - 1) % 3 + 1] end
  return rows == 0 and gm.zeros({ 0 }, { dtype = "i64" }) or gm.tensor(list, { dtype = "i64" })
end

local function pool_of(pages, heads, page, size, dtype, layout)
  if layout == "places first" then return support.input({ pages, page, heads, size }, dtype):permute { 1, 3, 2, 4 } end
  return support.input({ pages, heads, page, size }, dtype, layout)
end

local function each(title, body)
  for _, dtype in ipairs(support.dtypes) do
    for i, p in ipairs(problems) do
      it(title .. ": " .. name_of(dtype, p), function()
        for k, layout in ipairs { "contiguous", "places first", "window" } do
          gm.scope(body, dtype, p, layout, k % 2 == 1 and "i64" or "i32", i + k)
        end
      end)
    end
  end
end

-- Windows of one key, of some that begin within a page, of more keys than there are; caps near the largest scores.
local function more_of(p, n)
  local window = ({ 0, 1, math.ceil(p[6] * p[7] / 3), 2 * p[6] * p[7] })[n % 4 + 1]
  return window, ({ 0, 0.5, 3 })[n % 3 + 1]
end

describe("attention to pages agrees with ref:", function()
  each("o", function(dtype, p, layout, kind, n)
    local window, softcap = more_of(p, n)
    local b, s, h, hk, d, page, each_row = unpack(p)
    local q = support.input({ b, s, h, 3 * d }, dtype):narrow(4, d + 1, d)
    local k, v = pool_of(pool_size(p), hk, page, d, dtype, layout), pool_of(pool_size(p), hk, page, d, dtype, layout)
    support.agree { op = "attention_paged", dense_rows = true,
      inputs = { n = 5, q, k, v, pages_of(pool_size(p), b, each_row, kind, n % 2 == 0), counts_of(b, page * each_row) },
      outputs = { true }, attrs = { scale = n % 3 == 0 and 0.3 or 0, window = window, softcap = softcap },
      within = support.terms(page * each_row + d, math.max(2, n % 3 == 0 and 0.3 * d or math.sqrt(d))) }
  end)
end)

describe("writing to pages agrees with ref:", function()
  each("the pool", function(dtype, p, layout, kind, n)
    local b, s, _, hk, d, page, each_row = unpack(p)
    local x = support.input({ b, s, hk, 3 * d }, dtype):narrow(4, d + 1, d)
    support.agree { op = "pages_write",
      inputs = { n = 3, x, pages_of(pool_size(p), b, each_row, kind, n % 2 == 0), counts_of(b, page * each_row) },
      outputs = { support.given({ pool_size(p), hk, page, d }, dtype, layout == "window" and layout or "contiguous") },
      within = support.exact }
  end)
end)
