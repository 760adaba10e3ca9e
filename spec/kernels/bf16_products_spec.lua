-- Products of bf16 on the best CPU table of this machine, and on the one that multiplies pairs of bf16
-- (kernels/cpu/gemm_pairs.c) and the one that does so in tiles of AMX (gemm_amx.c, emulated where need be). They meet
-- odd sizes, every stride, numbers beside them that are not theirs, and the ends of the range. Other tables pass the
-- same examples, because the bounds allow more than they need. spec/kernels/amx_spec.lua has what is special to tiles.
local bf16 = require "spec.kernels.bf16_numbers"
local core = require "ganymede.core"
local gm = require "ganymede"
local machine = require "ganymede.base.machine"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local tables, draw, numbers = bf16.tables, bf16.draws(), bf16.numbers

local function product(backend, a, b, attrs, output)
  return core.run_op(backend, "matmul", { n = 2, a, b }, { n = 1, output or true }, attrs)[1]
end

-- A product with the transposes and the dtype of attrs -> a (m, k), b (k, n), as they lie.
local layouts = { "contiguous", "window", "turned" }
local function operands(m, k, n, attrs, low, high)
  local a = numbers(attrs.transpose_a and { k, m } or { m, k }, layouts[draw(3) + 1], low, high)
  local b = numbers(attrs.transpose_b and { n, k } or { k, n }, layouts[draw(3) + 1], low, high)
  return a, b
end

local function wide(t) return support.copy(t, "f64") end

describe("products of bf16", function()
  it("are computed as they are where the processor multiplies bf16", function()
    if not core.has_backend "cpu-avx512bf16" then return pending "this machine or this build lacks cpu-avx512bf16" end
    assert.is_true(core.emulates_avx512() or #machine.instruction_sets { "avx512_bf16" } == 1)
    local widens = core.pairs_slow() and core.has_backend "cpu-avx512"
    assert.equal(core.has_backend "cpu-amx" and "cpu-amx" or widens and "cpu-avx512" or "cpu-avx512bf16",
      core.device().backend)
  end)
end)

for _, backend in ipairs(tables) do describe("products of bf16 by " .. backend .. ",", function()
  -- Whole numbers up to 8: products and sums of 700 of them are exact in f32, in any order.
  it("of whole numbers are exact, in random sizes and strides", function()
    for case = 1, 60 do
      local m, k, n = draw(case % 3 == 0 and 3 or 90) + 1, draw(case % 4 == 0 and 700 or 70) + 1, draw(100) + 1
      local attrs = { transpose_a = draw(2) == 1, transpose_b = draw(2) == 1, dtype = "f32" }
      gm.scope(function()
        local a, b = operands(m, k, n, attrs, -8, 8)
        local label = ("(%d, %d) x (%d, %d), case %d"):format(m, k, k, n, case)
        support.compare(product(backend, a, b, attrs), product("ref", a, b, attrs), support.exact, label)
        local given = support.integers({ m, n }, "i32", -99, 99):to "f32"
        attrs.accumulate, attrs.alpha = true, -2
        local got = product(backend, a, b, attrs, support.copy(given))
        support.compare(got, product("ref", a, b, attrs, given), support.exact, label .. ", added")
      end)
    end
  end)

  it("of whole numbers are exact in batches", function()
    for _, shape in ipairs { { 5, 17, 33, 20 }, { 9, 1, 31, 40 }, { 3, 40, 513, 6 } } do
      local count, m, k, n = unpack(shape)
      for bits = 0, 3 do
        local attrs = { transpose_a = bits % 2 == 1, transpose_b = bits > 1, dtype = "f32" }
        local of_a = { count, attrs.transpose_a and k or m, attrs.transpose_a and m or k }
        local of_b = { count, attrs.transpose_b and n or k, attrs.transpose_b and k or n }
        for _, layout in ipairs(layouts) do -- turned: neither rows nor columns are neighbours
          local a, b = numbers(of_a, layout, -8, 8), numbers(of_b, layout, -8, 8)
          local label = support.show(shape) .. " " .. layout
          support.compare(product(backend, a, b, attrs), product("ref", a, b, attrs), support.exact, label)
        end
      end
    end
  end)

  it("of rows that end with half of a pair are exact", function()
    local whole = gm.full({ 40, 34 }, 0 / 0, { dtype = "bf16" })
    local a = core.run_op("ref", "copy", { n = 1, numbers({ 40, 33 }, "contiguous", -8, 8) },
      { n = 1, whole:narrow(2, 1, 33) })[1]
    local b, attrs = numbers({ 33, 50 }, "contiguous", -8, 8), { dtype = "f32" }
    support.compare(product(backend, a, b, attrs), product("ref", a, b, attrs), support.exact, "33 of 34 numbers")
  end)

  -- A sum of k terms in f32; results in bf16 are rounded once more (support.compare).
  it("agree with sums in f64, in random sizes and strides", function()
    for case = 1, 40 do
      local m, k, n = draw(120) + 1, draw(case % 4 == 0 and 1300 or 200) + 1, draw(120) + 1
      local attrs = { transpose_a = draw(2) == 1, transpose_b = draw(2) == 1, dtype = draw(2) == 1 and "f32" or nil }
      gm.scope(function()
        local a, b = operands(m, k, n, attrs)
        local sizes = { transpose_a = attrs.transpose_a, transpose_b = attrs.transpose_b }
        local size = product("ref", support.magnitude(a), support.magnitude(b), sizes)
        support.compare(product(backend, a, b, attrs), product("ref", a, b, attrs), support.terms(k, size),
          ("(%d, %d) x (%d, %d), case %d"):format(m, k, k, n, case))
      end)
    end
  end)

  -- The thin products of generation and those above 16 rows: bias, activation, both results.
  it("of linear are exact for whole numbers, from one row to twenty", function()
    for rows = 1, 20 do
      local k, n = draw(300) + (rows == 1 and 130 or 1), draw(40) + 1
      gm.scope(function()
        local x, w = numbers({ rows, k }, layouts[rows % 3 + 1], -4, 4), numbers({ n, k }, "window", -4, 4)
        local b = numbers({ n }, "contiguous", -4, 4)
        for _, name in ipairs { "none", "relu" } do
          local inputs, attrs = { n = 3, x, w, b }, { ["function"] = name }
          local got = core.run_op(backend, "linear", inputs, { n = 2, true, true }, attrs)
          local want = core.run_op("ref", "linear", inputs, { n = 2, true, true }, attrs)
          for i = 1, 2 do
            support.compare(got[i], want[i], support.exact, ("%d rows, k %d, n %d, %s"):format(rows, k, n, name))
          end
        end
      end)
    end
  end)

  -- gemm_turned_t.h has those of 13 to 16 and 26 to 32 rows whose pairs lie in rows of b. Others of these are packed:
  -- an odd k, or rows an odd number apart. What lies behind a row is not its own.
  it("of some rows and many columns are exact, added to others or with a bias", function()
    local shapes = { { 13, 40, 104 }, { 16, 522, 161 }, { 26, 1026, 230 }, { 32, 600, 301 }, { 30, 254, 255 },
                     { 16, 255, 130 }, { 12, 66, 120 }, { 33, 66, 270 } }
    for _, shape in ipairs(shapes) do
      local m, k, n = unpack(shape)
      for _, columns in ipairs { k, k + 1, k + 2 } do gm.scope(function()
        local x = numbers({ m, k }, "contiguous", -4, 4)
        local whole = numbers({ n, columns }, "contiguous", -4, 4)
        local w, behind = whole:narrow(2, 1, k), columns > k and whole:narrow(2, k + 1, columns - k)
        if behind then core.run_op("ref", "fill", {}, { n = 1, behind }, { value = 0 / 0 }) end
        local label, attrs = ("(%d, %d) x (%d, %d) of %d"):format(m, k, k, n, columns), { transpose_b = true }
        attrs.accumulate, attrs.alpha, attrs.dtype = true, -2, "f32"
        local given = support.integers({ m, n }, "i32", -99, 99):to "f32"
        support.compare(product(backend, x, w, attrs, support.copy(given)), product("ref", x, w, attrs, given),
          support.exact, label .. ", added")
        local inputs = { n = 3, x, w, numbers({ n }, "contiguous", -4, 4) }
        local got = core.run_op(backend, "linear", inputs, { n = 2, true, true }, { ["function"] = "relu" })
        local want = core.run_op("ref", "linear", inputs, { n = 2, true, true }, { ["function"] = "relu" })
        for i = 1, 2 do support.compare(got[i], want[i], support.exact, label .. ", linear") end
      end) end
    end
  end)

  it("let NaN and infinity through, to their own row or column alone", function()
    for _, value in ipairs { 0 / 0, 1 / 0, -1 / 0 } do
      for _, k in ipairs { 7, 64, 65 } do
        for _, rows in ipairs { 1, 3, 20 } do
          local x, w = gm.ones({ rows, k }, { dtype = "bf16" }), gm.ones({ 33, k }, { dtype = "bf16" })
          core.run_op("ref", "fill", {}, { n = 1, x:narrow(1, rows, 1):narrow(2, k, 1) }, { value = value })
          local want = gm.full({ rows, 33 }, k, { dtype = "bf16" })
          core.run_op("ref", "fill", {}, { n = 1, want:narrow(1, rows, 1) }, { value = value })
          local label = ("%g in the last of %d numbers of row %d"):format(value, k, rows)
          local y = core.run_op(backend, "linear", { n = 3, x, w }, { n = 2, true, false })[1]
          support.compare(y, want, support.relative(0), label .. ", linear")
          support.compare(product(backend, x, w, { transpose_b = true }), want, support.relative(0), label)
          local columns = product(backend, w, x, { transpose_b = true })
          support.compare(columns:permute { 2, 1 }, want, support.relative(0), label .. ", turned")
        end
      end
    end
  end)

  -- A table that multiplies bf16 takes numbers and sums below 2^-126 as zero (gemm_pairs.c). So a result lacks at most
  -- the products with such a factor, and for each number along k another 2^-126; two more for each tile of AMX, of 32.
  it("are off by no more than what numbers below 2^-126 contribute", function()
    local k, tiny = 37, 2 ^ -126
    local sizes = { 2 ^ -133, 2 ^ -130, 1.5 * 2 ^ -128, 2 ^ -126, 2 ^ -120, 2 ^ -65, 2 ^ -10, 1, 2 ^ 60 }
    local function some(rows, most)
      local list = {}
      for i = 1, rows * k do list[i] = (draw(2) * 2 - 1) * sizes[draw(most) + 1] end
      return gm.tensor(list, { dtype = "f64" }):reshape { rows, k }:to "bf16"
    end
    local function zeroed(t) -- |t|, and the same without what is below 2^-126
      local all, kept = support.magnitude(t), support.magnitude(t)
      local data = kept:data()
      for i = 0, t:numel() - 1 do data[i] = data[i] < tiny and 0 or data[i] end
      return all, kept
    end
    for _, rows in ipairs { 1, 5, 30 } do
      for most = 3, #sizes do
        local a, b = some(rows, most), some(21, #sizes)
        local attrs = { transpose_b = true }
        local all_a, kept_a = zeroed(a)
        local all_b, kept_b = zeroed(b)
        local size, kept = product("ref", all_a, all_b, attrs), product("ref", kept_a, kept_b, attrs)
        local want = product("ref", wide(a), wide(b), attrs)
        local allowed, lost, exact = size:data(), kept:data(), want:data()
        local got = support.copy(product(backend, a, b, { transpose_b = true, dtype = "f32" }), "f64"):data()
        for i = 0, rows * 21 - 1 do
          local bound = allowed[i] - lost[i] + (k + 4) * tiny + k * 2 ^ -24 * allowed[i]
          local label = "%d rows, %d sizes, element %d: %g, should be %g within %g"
          assert(math.abs(got[i] - exact[i]) <= bound, label:format(rows, most, i, got[i], exact[i], bound))
        end
      end
    end
  end)

  it("have the same bits on 1, 2 and 3 threads", function()
    same_bits(([[
local function make(...) return gm.uniform({ ... }, { low = -1, high = 1, seed = 3, dtype = "bf16" }) end
for _, m in ipairs { 1, 5, 100, 300 } do
  local x, w = make(m, 777), make(333, 777)
  local y = core.run_op("cpu", "linear", { n = 3, x, w }, { n = 2, true, false })[1]
  local wide, turned = { dtype = "f32" }, { dtype = "f32", transpose_a = true }
  local z = core.run_op("cpu", "matmul", { n = 2, x, make(777, 130) }, { n = 1, true }, wide)[1]
  local d = core.run_op("cpu", "matmul", { n = 2, x, make(m, 90) }, { n = 1, true }, turned)[1]
  for _, t in ipairs { y, z, d } do add(t) end
end
]]):gsub('"cpu"', '"' .. backend .. '"'))
  end)
end) end
