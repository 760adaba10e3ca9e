-- Weights of 8 and 4 bits: codes and numbers against the reference, byte for byte, and against the package gguf; the
-- product against the reference.
--
-- The product of up to 16 rows rounds x to 16 bits, by half a unit of 1/32767 of the largest of 32 numbers, here at
-- most 1: that is below 2^-16 |w| for each of k terms. The other sums have roundings of f32, as in linear.
local core = require "ganymede.core"
local fails = require "spec.support.fails"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local ops = gm.ops
local kinds = { { bits = 8, group = 32 }, { bits = 4, group = 32 }, { bits = 8, group = 96 }, { bits = 4, group = 64 } }

local function with(kind, more)
  local out = { bits = kind.bits, group = kind.group }
  for key, value in pairs(more) do out[key] = value end
  return out
end

-- The codes of a matrix that the reference makes.
local function codes_of(w, kind) return core.run_op("ref", "quantize", { w }, { true }, kind)[1] end

local function ref(op, inputs, attrs) return support.reference(op, inputs, attrs) end

-- rows, columns: less than a unit, units that fill no group, more than one piece of 1024 numbers
local sizes = { { 1, 1 }, { 3, 32 }, { 5, 70 }, { 2, 288 }, { 3, 1100 }, { 0, 40 }, { 4, 0 } }

describe("quantize and dequantize agree with ref:", function()
  support.each(it, "codes and numbers of a matrix", sizes, { "contiguous", "turned", "window" },
    function(dtype, shape, layout)
      local w = support.input(shape, dtype, layout)
      for _, kind in ipairs(kinds) do
        support.agree { op = "quantize", inputs = { w }, outputs = { true }, attrs = kind, within = support.exact,
                        dense_rows = true }
        support.agree { op = "dequantize", inputs = { n = 2, codes_of(w, kind) }, outputs = { true },
                        attrs = with(kind, { columns = shape[2], dtype = dtype }), within = support.exact }
      end
    end)

  it("some rows of a table, and none where an index is in another part", function()
    for _, kind in ipairs(kinds) do
      gm.scope(function()
        local codes = codes_of(support.input({ 7, 70 }, "f32"), kind)
        for _, shape in ipairs { { 3 }, { 2, 4 }, { 0 } } do
          for _, whole in ipairs { "i64", "i32" } do
            support.agree { op = "dequantize", inputs = { codes, support.integers(shape, whole, 0, 6) },
              outputs = { true }, attrs = with(kind, { columns = 70 }), within = support.exact }
            support.agree { op = "dequantize", inputs = { codes, support.integers(shape, whole, -2, 9) },
              outputs = { true }, attrs = with(kind, { columns = 70, part = true }), within = support.exact }
          end
        end
      end)
    end
  end)
end)

-- What the product may be off by: k terms of 2^-16 |w|, in roundings of f32. Where many rows are a product of the
-- numbers, these are rounded to the 16 bits of the call (kernels/cuda).
local function allowed(x, w, k)
  local sum = ref("sum", { support.magnitude(w) }, { dims = 2 })
  local size = support.copy(core.run_op("ref", "linear", { n = 3, support.magnitude(x), support.magnitude(w) },
    { n = 2, true })[1])
  local rounded = ref("binary", { gm.zeros(size:shape(), { dtype = "f64" }), sum }, { ["function"] = "add" })
  local narrow = x:dtype():find "16"
  local of_weights = narrow and support.epsilon[x:dtype()] / (2 * support.epsilon.f32) or 0
  return ref("binary", { ref("affine", { rounded }, { alpha = 2 ^ 8 }),
                         ref("affine", { size }, { alpha = 8 + 4 * math.sqrt(k) + of_weights }) },
    { ["function"] = "add" })
end

local function product(kind, x, w, f, with_bias)
  local codes, shape = codes_of(w, kind), w:shape()
  local numbers = core.run_op("ref", "dequantize", { n = 2, codes }, { true }, with(kind, { columns = shape[2],
    dtype = "f64" }))[1]
  local b = with_bias and support.input({ shape[1] }, x:dtype()) or nil
  local attrs = with(kind, { ["function"] = f })
  local size = allowed(x, numbers, shape[2])
  if x:dtype() == "f64" then size = ref("affine", { size }, { beta = 1 }) end
  support.agree { op = "linear_quantized", inputs = { n = 3, x, codes, b }, attrs = attrs,
    outputs = { n = 2, true, f ~= "none" }, within = support.absolute(2, ref("affine", { size }, { beta = 8 })) }
end

describe("linear_quantized agrees with ref:", function()
  -- rows: of x as whole numbers, of weights in f32, of panels of the weights, which are more than one where k is above
  -- 256; columns: of groups of four and of 16, and left over
  for _, size in ipairs { { 1, 64, 9 }, { 2, 33, 6 }, { 4, 300, 5 }, { 5, 70, 3 }, { 16, 1100, 7 }, { 19, 65, 70 },
                          { 6, 96, 33 }, { 7, 130, 17 }, { 19, 600, 40 }, { 30, 300, 6 },
                          { 1, 1, 1 }, { 3, 40, 0 }, { 0, 40, 3 } } do
    local m, k, n = size[1], size[2], size[3]
    for _, dtype in ipairs(support.dtypes) do
      it(("%s (%d, %d) x (%d, %d)"):format(dtype, m, k, k, n), function()
        for i, kind in ipairs(kinds) do
          for j, layout in ipairs { "contiguous", "window" } do
            gm.scope(function()
              local x, w = support.input({ 1, m, k }, dtype, layout), support.input({ n, k }, "f32")
              product(kind, x, w, i == j and "silu" or "none", i ~= 2)
            end)
          end
        end
      end)
    end
  end

  it("numbers that are not finite make results that are not", function()
    for _, backend in ipairs(support.backends) do
      for _, kind in ipairs(kinds) do
        for _, bad in ipairs { math.huge, -math.huge, 0 / 0 } do
          gm.scope(function()
            local codes, x = codes_of(support.input({ 3, 64 }, "f32"), kind), support.input({ 1, 64 }, "f32")
            x:set(1, 40, bad)
            local y = core.run_op(backend, "linear_quantized", { n = 3, x, codes }, { n = 2, true, false }, kind)[1]
            for _, v in ipairs(y:totable()[1]) do assert.is_true(v ~= v or math.abs(v) == math.huge) end
          end)
        end
      end
    end
  end)
end)

describe("weights of few bits", function()
  it("are the blocks q8_0 and q4_0 of gguf", function()
    local file = gm.open_arrays "spec/golden/few_bits.safetensors"
    local rows = file:read "rows"
    for name, bits in pairs { q8_0 = 8, q4_0 = 4 } do
      local codes = ops.quantize(rows, { bits = bits })
      assert.same(file:read(name):totable(), codes:totable())
      assert.same(file:read(name .. ".numbers"):totable(), ops.dequantize(codes, 64, { bits = bits }):totable())
    end
    file:close()
  end)

  it("let gradients through to x and the bias, with and without an activation", function()
    for _, bits in ipairs { 8, 4 } do
      for _, f in ipairs { "none", "gelu" } do
        gm.scope(function()
          local w = ops.quantize(gm.uniform({ 5, 40 }, { seed = 1, low = -1, dtype = "f64" }), { bits = bits })
          local x = gm.uniform({ 3, 40 }, { seed = 2, low = -1, dtype = "f64" })
          local b = gm.uniform({ 5 }, { seed = 3, low = -1, dtype = "f64" })
          gm.gradcheck(function(x_, b_) return ops.linear_quantized(x_, w, b_, f, { bits = bits }) end, { x, b })
        end)
      end
    end
  end)

  it("refuse what does not fit", function()
    local w = gm.ones { 2, 64 }
    local codes = ops.quantize(w)
    fails("bits is 5", ops.quantize, w, { bits = 5 })
    fails("group is 48", ops.quantize, w, { group = 48 })
    fails("should be a matrix", ops.quantize, gm.ones { 4 })
    fails("have 36 bytes", ops.dequantize, codes, 64, { bits = 4 })
    fails("have 102 bytes", ops.linear_quantized, gm.ones { 1, 65 }, codes)
    fails("outside a table of 2", ops.dequantize, codes, 64, { index = gm.tensor({ 2 }, { dtype = "i64" }) })
    fails("no activation", ops.linear_quantized, gm.ones { 1, 64 }, codes, nil, "exp")
    fails("side by side", ops.dequantize, ops.quantize(gm.ones { 2, 32 }):reshape(34, 2):transpose(1, 2), 32)
  end)
end)
