-- Floats of 8 bits: scales and codes against the reference, which looks for the nearest of all values, to the bit; and
-- products against the reference.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local fails = require "spec.support.fails"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local ops = gm.ops
local formats = { "e4m3", "e5m2" }
local most = { 448, 57344 }

-- The value of a code, by the definition of the formats.
local function value_of(format, code)
  local fraction, bias = 4 - format, format == 1 and 7 or 15
  local exponent, digits = math.floor(code / 2 ^ fraction), code % 2 ^ fraction
  if exponent == 0 then return digits * 2 ^ (1 - bias - fraction) end
  return (2 ^ fraction + digits) * 2 ^ (exponent - bias - fraction)
end

-- All values, what lies between two of them, and a little beside that; what is too large, too small, or no number.
local function telling(format)
  local list, top = { 0, -0.0, 1e-30, 2 ^ -140, 1e30, -1e30, math.huge, -math.huge, 0 / 0 }, format == 1 and 126 or 123
  for code = 0, top do
    local v, after = value_of(format, code), code < top and value_of(format, code + 1) or 2 * value_of(format, code)
    local middle = (v + after) / 2
    for _, x in ipairs { v, middle, middle * (1 + 2 ^ -20), middle * (1 - 2 ^ -20) } do
      list[#list + 1] = x
      list[#list + 1] = -x
    end
  end
  return list
end

local function ref(op, inputs, attrs, count)
  local outputs = {}
  for i = 1, count or 1 do outputs[i] = true end
  return core.run_op("ref", op, inputs, outputs, attrs)
end

local function scale(x, format) return ref("float8_scale", { x }, { format = format - 1 })[1] end

local function number(v, dtype) return gm.full({}, v, { dtype = dtype }) end

describe("codes of 8 bits", function()
  for f, name in ipairs(formats) do
    for _, dtype in ipairs(support.dtypes) do
      it(("%s of %s: every value, and what lies beside it"):format(name, dtype), function()
        local x = support.copy(support.numbers(telling(f)), dtype)
        for _, by in ipairs { 1, 2 ^ -4, 2 ^ 7, math.huge, 0 } do
          support.agree { op = "float8_encode", inputs = { x, number(by, support.wide(dtype)) },
                          outputs = { true, true, true }, attrs = { format = f - 1 }, within = support.exact }
        end
      end)
    end
  end

  it("are those of the definition", function()
    for f = 1, 2 do
      local top = f == 1 and 126 or 123
      local values, codes = {}, {}
      for code = 0, top do values[code + 1], codes[code + 1] = value_of(f, code), code end
      local one = gm.ones {}
      assert.same(codes, ops.float8_encode(gm.tensor(values), one, { format = formats[f] }):totable())
      assert.equal(most[f], values[top + 1])
      -- by f64, a number that is nearer to the upper of two f32 lies above a tie, and is not rounded twice
      local tie = (value_of(f, 40) + value_of(f, 41)) / 2 * (1 + 2 ^ -30)
      local above = ops.float8_encode(gm.tensor({ tie }, { dtype = "f64" }), gm.ones({}, { dtype = "f64" }),
        { format = formats[f] })
      assert.same({ 41 }, above:totable())
    end
  end)

  -- tiles of 128: within one, whole ones, at their border, beyond it, whole in one direction alone; no rows, no
  -- columns; runs of 8 and of 16 codes
  support.each(it, "of tensors, as they are and turned",
    { { 5 }, { 3, 7 }, { 48, 72 }, { 128, 256 }, { 129, 130 }, { 144, 128 }, { 128, 72 }, { 72, 68 }, { 2, 3, 70 },
      { 130, 3 }, { 0, 5 }, { 4, 0 } },
    { "contiguous", "turned", "window" }, function(dtype, shape, layout)
      local x = support.input(shape, dtype, layout, -3, 3)
      for f = 1, 2 do
        local inputs, attrs = { x, scale(x, f) }, { format = f - 1 }
        for _, wanted in ipairs { { true, true }, { true, false }, { false, true }, { true, true, true },
                                  { false, false, true } } do
          wanted.n = 3
          support.agree { op = "float8_encode", inputs = inputs, outputs = wanted, attrs = attrs,
                          within = support.exact }
        end
      end
    end)
end)

describe("the scale that a tensor needs", function()
  support.each(it, "is found while it is rounded with another", { { 5 }, { 3, 7 }, { 48, 72 }, { 129, 260 }, { 0, 5 } },
    { "contiguous", "turned" }, function(dtype, shape, layout)
      local wide = support.wide(dtype)
      for _, size in ipairs { 1e-3, 1e3 } do
        local x = support.input(shape, dtype, layout, -size, size)
        for f = 1, 2 do
          local want = scale(x, f):item()
          for _, backend in ipairs(support.backends) do
            local function needed(before)
              local to = before and number(before, wide) or true
              return core.run_op(backend, "float8_encode", { x, number(2, wide) }, { false, false, to, n = 3 },
                { format = f - 1, accumulate = before ~= nil })[3]:item()
            end
            assert.equal(want, needed())
            assert.equal(want, needed(0))
            assert.equal(want, needed(want / 2))
            assert.equal(want * 4, needed(want * 4))
            assert.equal(math.huge, needed(math.huge))
          end
        end
      end
    end)

  it("is infinite beside a number that is not finite", function()
    for _, backend in ipairs(support.backends) do
      for _, bad in ipairs { math.huge, -math.huge, 0 / 0 } do
        local x = gm.ones { 3, 200 }
        x:set(2, 150, bad)
        local out = core.run_op(backend, "float8_encode", { x, number(1, "f32") }, { true, false, true, n = 3 },
          { format = 0 })
        assert.equal(math.huge, out[3]:item())
        assert.equal(127, out[1]:get(2, 150))
      end
    end
  end)
end)

describe("scales", function()
  support.each(it, "of tensors", { {}, { 1 }, { 5000 }, { 3, 7 }, { 40, 300 }, { 2, 3, 70 }, { 0, 5 } },
    { "contiguous", "turned", "window" }, function(dtype, shape, layout)
      for _, size in ipairs { 1e-3, 1, 1e3 } do
        local x = support.input(shape, dtype, layout, -size, size)
        for f = 1, 2 do
          support.agree { op = "float8_scale", inputs = { x }, outputs = { true }, attrs = { format = f - 1 },
                          within = support.exact }
        end
      end
    end)

  it("are the least powers of two with which the largest has a code", function()
    local function of(f, ...) return ops.float8_scale(gm.tensor { ... }, { format = formats[f] }):item() end
    for f = 1, 2 do
      assert.equal(1, of(f, 3, -most[f], 0))
      assert.equal(2, of(f, most[f] * (1 + 2 ^ -20)))
      assert.equal(0.5, of(f, most[f] / 2))
      assert.equal(2 ^ -126, of(f, 0, 0))
      assert.equal(2 ^ -126, of(f, 2 ^ -126))
      assert.equal(math.huge, of(f, 1, math.huge))
      assert.equal(math.huge, of(f, 0 / 0, 1))
    end
  end)

  it("find the largest wherever it is", function()
    for _, backend in ipairs(support.backends) do
      for _, at in ipairs { 1, 2, 77, 511, 512, 1600, 2048, 4097, 8192, 9000 } do
        gm.scope(function()
          local x = gm.ones { 9000 }
          x:set(at, -1000)
          assert.equal(4, core.run_op(backend, "float8_scale", { x }, { true }, { format = 0 })[1]:item())
        end)
      end
    end
  end)
end)

-- What tensor cores make of a product of 8 bits on Hopper (Ada, too) is not a sum in f32: an instruction shifts its 32
-- products and the sum so far to the exponent of the largest of them, keeps 13 bits behind the first of each, and keeps
-- as many of its result (DeepSeek-V3's report, arXiv:2412.19437, section 3.5.2). So each of the 34 numbers of an
-- instruction may be off by 2^-13 of the largest. Here products are at most 2 and 0.7 in the mean square, so sums of
-- k of them stay below 3 sqrt(k), which is 4 standard deviations. "is exact" below has what is small enough for all.
local function on_tensor_cores(k) return support.absolute(34 * math.ceil(k / 32) * 2 ^ (24 - 13), 3 * math.sqrt(k)) end
local has_tensor_cores = core.has_backend "cuda" and not emulation.is_on()

-- What a product of numbers of these magnitudes may be off by: k terms in f32, rounded once.
local function product(shape, n, dtype, f, with)
  local k = shape[#shape]
  local x, w = support.input(shape, dtype, with.layout, -2, 2), support.input({ n, k }, dtype, "contiguous", -1, 1)
  local wide = support.wide(dtype)
  local sx, sw = scale(support.copy(x, wide), f), scale(support.copy(w, wide), 1)
  local a = ref("float8_encode", { x, sx }, { format = f - 1 }, 3)[1]
  local b = ref("float8_encode", { w, sw }, { format = 0 }, 3)[1]
  if with.gaps then
    local wider = gm.zeros({ a:shape()[1], k + 3 }, { dtype = "u8" })
    core.run_op("ref", "copy", { a }, { wider:narrow(2, 2, k) }, {})
    a = wider:narrow(2, 2, k)
  end
  local y = { unpack(shape) }
  y[#y] = n
  local to = with.dtype or dtype
  support.agree { op = "float8_product", attrs = { format = f - 1, dtype = to, accumulate = with.accumulate },
    inputs = { n = 5, a, b, sx, sw, with.bias and support.input({ n }, to) or nil },
    outputs = { with.accumulate and support.given(y, to) or true }, within = support.terms(k, 2 * k + 2),
    on = has_tensor_cores and dtype ~= "f64" and { cuda = on_tensor_cores(k) } or nil }
end

describe("float8_product agrees with ref:", function()
  for _, dtype in ipairs(support.dtypes) do
    for _, size in ipairs { { 1, 1, 1 }, { 3, 5, 7 }, { 16, 32, 48 }, { 33, 64, 16 }, { 2, 300, 9 }, { 4, 0, 3 },
                            { 0, 8, 3 }, { 3, 8, 0 }, { 70, 16, 80 } } do
      it(("%s (%d, %d) x (%d, %d)"):format(dtype, size[1], size[2], size[2], size[3]), function()
        gm.scope(function()
          product({ size[1], size[2] }, size[3], dtype, 1, { bias = true })
          product({ size[1], size[2] }, size[3], dtype, 2, {})
          product({ 1, size[1], size[2] }, size[3], dtype, 2, { accumulate = true })
          product({ size[1], size[2] }, size[3], dtype, 1, { gaps = true })
          if support.wide(dtype) == "f32" then product({ size[1], size[2] }, size[3], dtype, 2, { dtype = "f32" }) end
        end)
      end)
    end
  end

  -- Sums of whole numbers below 2^8 fit results of 16 bits, and what tensor cores keep.
  for _, dtype in ipairs(support.dtypes) do
    it("is exact where sums are small whole numbers: " .. dtype, function()
      for _, size in ipairs { { 16, 32, 48 }, { 33, 64, 16 }, { 70, 240, 80 }, { 3, 5, 7 } } do
        gm.scope(function()
          local m, k, n = unpack(size)
          local one, wide = number(1, "f32"), support.wide(dtype)
          local function codes(rows, format)
            local x = support.copy(support.integers({ rows, k }, "i32", -1, 1), "f32")
            return ref("float8_encode", { x, one }, { format = format }, 3)[1]
          end
          support.agree { op = "float8_product", attrs = { format = 1, dtype = dtype }, within = support.exact,
            inputs = { n = 5, codes(m, 1), codes(n, 0), number(2 ^ -3, wide), number(2 ^ 5, wide) },
            outputs = { true } }
        end)
      end
    end)
  end

  it("an infinite scale leaves nothing finite", function()
    for _, backend in ipairs(support.backends) do
      local x = gm.ones { 2, 16 }
      x:set(1, 3, 0 / 0)
      local s, one = scale(x, 1), gm.ones {}
      local a = ref("float8_encode", { x, s }, { format = 0 }, 3)[1]
      local b = ref("float8_encode", { gm.ones { 3, 16 }, one }, { format = 0 }, 3)[1]
      local y = core.run_op(backend, "float8_product", { n = 5, a, b, s, one }, { true }, { dtype = "f32" })[1]
      for _, row in ipairs(y:totable()) do
        for _, v in ipairs(row) do assert.is_true(v ~= v) end
      end
    end
  end)
end)

describe("floats of 8 bits", function()
  it("refuse what does not fit", function()
    local x, s = gm.ones { 2, 16 }, gm.ones {}
    local codes = ops.float8_encode(x, s)
    fails("should be 'e4m3' or 'e5m2'", ops.float8_scale, x, { format = "e3m4" })
    fails("has no option 'fromat'", ops.float8_scale, x, { fromat = "e4m3" })
    fails("scale is (2), should be ()", ops.float8_encode, x, gm.ones { 2 })
    fails("a scale is a float, not u8", ops.float8_encode, x, gm.ones({}, { dtype = "u8" }))
    fails("should be rows of 16", ops.float8_product, codes, ops.float8_encode(gm.ones { 2, 8 }, s), s, s)
    fails("should be u8", ops.float8_product, x, codes, s, s)
    local function run(attrs, bias, more)
      local to = attrs.accumulate and gm.ones { 2, 2 } or true
      core.run_op("ref", "float8_product", { n = 5, codes, codes, more or s, s, bias }, { to }, attrs)
    end
    fails('bias is f32, the result bf16: write bias:to("bf16")', run, { dtype = "bf16" }, gm.ones { 2 })
    fails("should be f64 beside results of f64", run, { dtype = "f64" })
    fails("a_scale is bf16, should be f32 or f64", run, {}, nil, gm.ones({}, { dtype = "bf16" }))
    fails("no bias is added where", run, { accumulate = true }, gm.ones { 2 })
    fails("format is 2, should be 0 (e4m3) or 1 (e5m2)", run, { format = 2 })
    fails("rows of x its inputs", ops.linear_float8, x, gm.ones { 3, 8 })
    fails("floats of one dtype", ops.linear_float8, x, gm.ones({ 3, 16 }, { dtype = "bf16" }))
  end)
end)
