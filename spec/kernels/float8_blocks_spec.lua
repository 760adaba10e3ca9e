-- Floats of 8 bits with scales of blocks of 128: codes and scales against the reference and against a loop in Lua, to
-- the bit; how far numbers move; what one huge number does; and products against the reference.
-- sanitizers: only "codes with" "%(%d, %d%)" "refuse" "%(32, 144%)", the others run the same lines of C
--   (docs/testing.md)
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local fails = require "spec.support.fails"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local support = require "spec.kernels.support"

local ops = gm.ops
local SIDE = 128
local most = { 448, 57344 }

local function ref(op, inputs, attrs, count)
  local outputs = {}
  for i = 1, count or 1 do outputs[i] = true end
  return core.run_op("ref", op, inputs, outputs, attrs)
end

-- Tiles of 128 by 128: within one, whole ones, at their border, beyond it; runs of 8 and 16 codes; without numbers.
local shapes = { { 5 }, { 3, 7 }, { 48, 136 }, { 128, 256 }, { 129, 130 }, { 260, 8 }, { 2, 70, 144 }, { 0, 5 },
  { 4, 0 } }
local wishes = { { true, true, true, true }, { true, true, false, false }, { false, false, true, true },
  { false, true, false, true } }

describe("codes with scales of blocks", function()
  support.each(it, "are those of the reference", shapes, { "contiguous", "turned", "window" },
    function(dtype, shape, layout)
      -- 1 / x of uniform numbers: the largest of a block is much larger than most, so blocks have many scales
      local x = support.input(shape, dtype, layout, -3, 3)
      core.run_op("ref", "unary", { support.copy(x) }, { x }, { ["function"] = "power", value = -1 })
      for _, square in ipairs { false, true } do
        for i, wanted in ipairs(wishes) do -- the first of e5m2, the others of e4m3
          support.agree { op = "float8_block_encode", inputs = { x }, outputs = { n = 4, unpack(wanted) },
            within = support.exact, attrs = { format = i == 1 and 1 or 0, square = square } }
        end
      end
    end)

  support.each(it, "of numbers of many sizes, zeros and some that are not finite", { { 130, 136 } }, { "contiguous" },
    function(dtype, shape)
      local x = support.copy(support.input(shape, "f64", "contiguous", -1, 1), dtype)
      for i = 1, shape[1] do -- a row has one size, from 2^-13 to 2^13: no number of f16 is infinite
        core.run_op("ref", "affine", { support.copy(x:narrow(1, i, 1)) }, { x:narrow(1, i, 1) },
          { alpha = 2 ^ (i % 27 - 13) })
      end
      x:narrow(1, 3, 2):fill_(0)
      x:set(5, 7, 0 / 0)
      x:set(6, 132, math.huge)
      x:set(129, 135, -math.huge)
      for format = 0, 1 do
        for _, square in ipairs { false, true } do
          support.agree { op = "float8_block_encode", inputs = { x }, outputs = { true, true, true, true },
            within = support.exact, attrs = { format = format, square = square } }
        end
      end
    end)
end)

-- The scale of a list of numbers, by the definition.
local function scale_of(list, format)
  local largest, scale = 0, 2 ^ -126
  for _, v in ipairs(list) do largest = math.max(largest, math.abs(v)) end
  while largest > scale * most[format] do scale = 2 * scale end
  return scale
end

describe("scales of blocks", function()
  -- rows, columns, numbers in a block along each of them
  local function expected(rows, m, k, high, wide, format)
    local scales = {}
    for i = 1, m, high do
      for l = 1, k, wide do
        local list = {}
        for r = i, math.min(m, i + high - 1) do
          for c = l, math.min(k, l + wide - 1) do list[#list + 1] = rows[r][c] end
        end
        scales[#scales + 1] = scale_of(list, format)
      end
    end
    return scales
  end

  it("are those of the numbers of each block, in the order that cuBLASLt reads", function()
    local m, k = 131, 135
    local x = gm.normal({ m, k }, { dtype = "f64", seed = 3 }) * gm.uniform({ m, k }, { dtype = "f64", seed = 4 })
    local rows = x:totable()
    for format, name in ipairs { "e4m3", "e5m2" } do
      local _, scales, _, turned = ops.float8_block_encode(x, { format = name })
      -- a block's scales lie beside each other: (blocks along k, m), (blocks along m, k)
      assert.same(expected(rows, m, k, 1, SIDE, format), numeric.flat(scales:transpose(1, 2):totable()))
      assert.same(expected(rows, m, k, SIDE, 1, format), numeric.flat(turned:totable()))
      _, scales, _, turned = ops.float8_block_encode(x, { format = name, square = true })
      assert.same({ 2, 2 }, scales:shape())
      assert.same(expected(rows, m, k, SIDE, SIDE, format), numeric.flat(scales:totable()))
      assert.same(expected(rows, m, k, SIDE, SIDE, format), numeric.flat(turned:transpose(1, 2):totable()))
    end
  end)

  it("of squares give the same codes in both orders", function()
    local x = gm.normal({ 140, 270 }, { seed = 5 })
    local codes, _, turned = ops.float8_block_encode(x, { square = true })
    assert.same(codes:transpose(1, 2):totable(), turned:totable())
  end)
end)

-- The numbers of codes: the product with the unit matrix, whose sums have one term that is not zero.
local function decoded(codes, scales, square)
  local k = codes:shape()[2]
  local unit = gm.zeros({ k, k }, { dtype = "f64" })
  for i = 1, k do unit:set(i, i, 1) end
  local ones, one_scales = ops.float8_block_encode(unit)
  if square then -- the scales of b: a is the unit matrix
    return ops.float8_block_product(ones, codes, one_scales, scales, { dtype = "f64", square = true }):transpose(1, 2)
  end
  return ops.float8_block_product(codes, ones, scales, one_scales, { dtype = "f64" })
end

describe("numbers of blocks", function()
  -- A code is at most half a unit off: 2^-4 of a normal number of e4m3. Below the smallest of these, 2^-6 times the
  -- scale, the unit is 2^-9 times the scale. A scale is less than twice largest / 448.
  it("are within half a unit of what was rounded", function()
    local x = gm.normal({ 130, 140 }, { dtype = "f64", seed = 6 })
    local rows = x:totable()
    for _, square in ipairs { false, true } do
      local codes, scales = ops.float8_block_encode(x, { square = square })
      local got, list = decoded(codes, scales, square):totable(), scales:totable()
      for i = 1, 130 do
        for l = 1, 140 do
          local v, b = rows[i][l], math.ceil(l / SIDE)
          local scale = square and list[math.ceil(i / SIDE)][b] or list[b][i]
          assert.is_true(math.abs(got[i][l] - v) <= math.max(2 ^ -4 * math.abs(v), 2 ^ -10 * scale))
        end
      end
    end
  end)

  -- With one scale, 1e6 leaves a unit of 2^-9 2^12 = 8 for numbers near zero: all others become 0. In blocks only the
  -- 127 beside it in its row do; in squares those of its 128 x 128.
  it("beside a huge one are spoilt in its block alone", function()
    local m, k, at = 256, 256, { 130, 70 }
    local x = gm.uniform({ m, k }, { low = 0.5, high = 1, dtype = "f64", seed = 7 })
    x:set(at[1], at[2], 1e6)
    local function zeros(numbers)
      local n, inside = 0, { 0, 0 }
      for i, row in ipairs(numbers:totable()) do
        for l, v in ipairs(row) do
          if v == 0 then
            n = n + 1
            if i == at[1] and l <= SIDE then inside[1] = inside[1] + 1 end
            if i > SIDE and l <= SIDE then inside[2] = inside[2] + 1 end
          end
        end
      end
      return n, inside
    end
    local codes, scales, turned, turned_scales = ops.float8_block_encode(x)
    local n, inside = zeros(decoded(codes, scales))
    assert.same({ 127, 127 }, { n, inside[1] })
    n = zeros(decoded(turned, turned_scales))
    assert.equal(127, n)
    codes, scales = ops.float8_block_encode(x, { square = true })
    n, inside = zeros(decoded(codes, scales, true))
    assert.same({ SIDE * SIDE - 1, SIDE * SIDE - 1 }, { n, inside[2] })
    local one = ops.float8_scale(x)
    codes = ops.float8_encode(x, one)
    local eye = gm.zeros({ k, k }, { dtype = "f64" })
    for i = 1, k do eye:set(i, i, 1) end
    local units = ops.float8_encode(eye, gm.ones({}, { dtype = "f64" }))
    n = zeros(ops.float8_product(codes, units, one, gm.ones({}, { dtype = "f64" }), { dtype = "f64" }))
    assert.equal(m * k - 1, n)
  end)

  it("beside one that is not finite are none, in its block alone", function()
    for _, backend in ipairs(support.backends) do
      local x = gm.ones { 3, 256 }
      x:set(2, 5, math.huge)
      local a = ref("float8_block_encode", { x }, { format = 0 }, 4)
      local b = ref("float8_block_encode", { gm.ones { 16, 256 } }, { format = 0 }, 4)
      local y = core.run_op(backend, "float8_block_product", { n = 5, a[1], b[1], a[2], b[2] }, { true },
        { dtype = "f32" })[1]:totable()
      for l = 1, 16 do
        assert.same({ 256, 256 }, { y[1][l], y[3][l] })
        assert.is_true(y[2][l] ~= y[2][l])
      end
    end
  end)
end)

-- Tensor cores of Hopper: see spec/kernels/float8_spec.lua. cuBLASLt adds the sums of 128 products in f32.
local function on_tensor_cores(k) return support.absolute(34 * math.ceil(k / 32) * 2 ^ (24 - 13), 3 * math.sqrt(k)) end
local has_tensor_cores = core.has_backend "cuda" and not emulation.is_on()

-- Numbers whose blocks have scales that differ: rows shrink in turn, rows and columns from the 129th on as well.
local function uneven(shape, dtype, size)
  local x = support.input(shape, dtype, "contiguous", -size, size)
  local function shrink(part, by) core.run_op("ref", "affine", { support.copy(part) }, { part }, { alpha = by }) end
  for i = 1, shape[1] do shrink(x:narrow(1, i, 1), 2 ^ -(i % 3)) end
  if shape[1] > SIDE then shrink(x:narrow(1, SIDE + 1, shape[1] - SIDE), 2 ^ -3) end
  if shape[2] > SIDE then shrink(x:narrow(2, SIDE + 1, shape[2] - SIDE), 2 ^ -2) end
  return x
end

local function product(m, k, n, dtype, with)
  local x, w = uneven({ m, k }, dtype, 2), uneven({ n, k }, dtype, 1)
  local to = with.dtype or dtype
  local wide = support.wide(to)
  local a = ref("float8_block_encode", { support.copy(x, wide) }, { format = with.format or 0 }, 4)
  local b = ref("float8_block_encode", { support.copy(w, wide) }, { format = 0, square = with.square }, 4)
  local codes, scales = a[1], a[2]
  if with.gaps then
    codes, scales = gm.zeros({ m, k + 3 }, { dtype = "u8" }):narrow(2, 2, k), gm.zeros({ scales:shape()[1], m + 1 },
      { dtype = wide }):narrow(2, 2, m)
    core.run_op("ref", "copy", { a[1] }, { codes }, {})
    core.run_op("ref", "copy", { a[2] }, { scales }, {})
  end
  support.agree { op = "float8_block_product", within = support.terms(k, 2 * k + 2),
    attrs = { format = with.format or 0, square = with.square, dtype = to, accumulate = with.accumulate },
    inputs = { n = 5, codes, b[1], scales, b[2], with.bias and support.input({ n }, to) or nil },
    outputs = { with.accumulate and support.given({ m, n }, to) or true },
    on = has_tensor_cores and dtype ~= "f64" and { cuda = on_tensor_cores(k) } or nil }
end

describe("float8_block_product agrees with ref:", function()
  for _, dtype in ipairs(support.dtypes) do
    -- whole blocks; smaller last ones; rows of scales that are no multiple of 4, and that are; what cuBLASLt refuses
    for _, size in ipairs { { 1, 1, 1 }, { 3, 5, 7 }, { 16, 128, 16 }, { 32, 144, 144 }, { 16, 512, 48 },
                            { 6, 128, 16 }, { 132, 272, 136 }, { 4, 0, 3 }, { 0, 8, 3 }, { 3, 8, 0 } } do
      it(("%s (%d, %d) x (%d, %d)"):format(dtype, size[1], size[2], size[2], size[3]), function()
        gm.scope(function()
          local m, k, n = unpack(size)
          for _, square in ipairs { false, true } do
            product(m, k, n, dtype, { square = square, bias = true })
            product(m, k, n, dtype, { square = square, accumulate = true, format = 1 })
          end
          product(m, k, n, dtype, { gaps = true })
          if support.wide(dtype) == "f32" then product(m, k, n, dtype, { dtype = "f32", square = true }) end
        end)
      end)
    end
  end
end)

describe("floats of 8 bits with scales of blocks", function()
  it("refuse what does not fit", function()
    local x = gm.ones { 2, 144 }
    local a, a_scales = ops.float8_block_encode(x)
    local b, b_scales = ops.float8_block_encode(x, { square = true })
    fails("should be 'e4m3' or 'e5m2'", ops.float8_block_encode, x, { format = "e3m4" })
    fails("has no option 'squared'", ops.float8_block_encode, x, { squared = true })
    fails("needs at least 1 dimension", ops.float8_block_encode, gm.ones {})
    fails("b_scales is (1, 2), should be (2, 2)", ops.float8_block_product, a, b, a_scales, b_scales)
    fails("b_scales is (2, 2), should be (1, 2)", ops.float8_block_product, a, a, a_scales, a_scales, { square = true })
    fails("a_scales is (), should be (2, 2)", ops.float8_block_product, a, b, gm.ones {}, b_scales, { square = true })
    fails("should be rows of 144", ops.float8_block_product, a, ops.float8_block_encode(gm.ones { 2, 8 }), a_scales,
      a_scales)
    fails("give none", ops.linear_float8, x, gm.ones { 16, 144 }, nil,
      { blocks = true, scale = { gm.ones {}, gm.ones {}, gm.ones {} } })
  end)
end)
