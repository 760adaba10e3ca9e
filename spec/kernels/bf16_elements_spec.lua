-- Ops whose kernels read and write bf16 in memory (AS 16 of kernels/cpu/as.h): they have the bits of the same op in f32
-- on the same table, whose inputs are widened before and whose results are rounded once after. The other specs of
-- kernels compare them with the reference.
local collected = require "spec.support.collected"
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"
local ffi = require "ffi"

local tables = {}
for _, name in ipairs(support.backends) do if name:match "^cpu" then tables[#tables + 1] = name end end

local function input(shape, layout, low, high) return support.input(shape, "bf16", layout, low, high) end

local function widened(t) return t and t:dtype() == "bf16" and support.copy(t, "f32") or t end

local function widened_list(list, n)
  local wide = { n = n }
  for i = 1, n do
    wide[i] = list[i]
    if type(list[i]) == "function" then wide[i] = list[i]() end
    wide[i] = wide[i] ~= true and widened(wide[i]) or wide[i]
  end
  return wide
end

-- What the op gives in f32, rounded to bf16 where `got` is bf16. Where there is a residual, what is normalised is the
-- rounded sum.
local function expected(backend, op, inputs, outputs, attrs, got)
  local n, count, sum = inputs.n or #inputs, outputs.n or #outputs, nil
  local wide, made = widened_list(inputs, n), widened_list(outputs, count)
  if op:match "_norm$" and inputs[2] then
    sum = core.run_op(backend, "binary", { wide[1], wide[2] }, { true }, { ["function"] = "add" })[1]
    sum = support.copy(sum, "bf16")
    wide[1], wide[2] = support.copy(sum, "f32"), nil
  end
  local out = core.run_op(backend, op, wide, made, attrs)
  for i = 1, count do
    if out[i] and got[i]:dtype() == "bf16" then out[i] = support.copy(out[i], "bf16") end
  end
  if sum and outputs[2] then out[2] = sum end
  return out
end

local function agree(op, inputs, outputs, attrs)
  inputs.n, outputs.n = inputs.n or #inputs, outputs.n or #outputs
  for _, backend in ipairs(tables) do
    gm.scope(function()
      local made = { n = outputs.n }
      for i = 1, outputs.n do
        made[i] = outputs[i]
        if type(outputs[i]) == "function" then made[i] = outputs[i]() end
      end
      local got = core.run_op(backend, op, inputs, made, attrs)
      local want = expected(backend, op, inputs, outputs, attrs, got)
      for i = 1, outputs.n do
        local label = ("%s of bf16 by %s, output %d"):format(op, backend, i)
        if got[i] then support.compare(got[i], want[i], support.exact, label) end
      end
    end)
  end
end

-- Widths below, at and above a vector of any table, and beyond the longest row that kernels keep (CPU_ROW).
local widths = { 1, 7, 16, 70, 4100 }
local layouts = { "contiguous", "window", "turned" }
-- An output of more than 8 MiB goes past the caches. Its rows begin anywhere in a vector.
local large = { 4100, 1037 }

-- writes: it can write past the caches.
local function each(name, writes, body)
  for _, width in ipairs(widths) do
    for _, layout in ipairs(layouts) do
      it(("%s, rows of %d, %s"):format(name, width, layout), function() gm.scope(body, { 5, width }, layout) end)
    end
  end
  if writes then it(name .. ", past the caches", function() gm.scope(body, large, "contiguous") end) end
end

local function statistics(rows, low)
  return gm.uniform({ rows }, { low = low, high = 2, seed = rows, dtype = "f32" })
end

describe("kernels of bf16 have the bits of those of f32, rounded once:", function()
  each("norms", true, function(shape, layout)
    local x, r, w, b = input(shape, layout, -3, 5), input(shape, layout), input({ shape[2] }), input({ shape[2] })
    local attrs = { eps = 1e-5 }
    for _, residual in ipairs { false, r } do
      agree("layer_norm", { x, residual, w, b, n = 4 }, { true, residual and true, true, true, n = 4 }, attrs)
      agree("rms_norm", { x, residual, w, n = 3 }, { true, residual and true, true, n = 3 }, attrs)
    end
    agree("layer_norm", { x, r, false, false, n = 4 }, { true, false, true, true, n = 4 }, attrs)
  end)

  each("gradients of norms", true, function(shape, layout)
    local g, s, x, w = input(shape, layout), input(shape, layout), input(shape, layout, -3, 5), input({ shape[2] })
    local mean, rstd = statistics(shape[1], 0), statistics(shape[1], 0.1)
    local dw = support.given({ shape[2] }, "bf16")
    agree("layer_norm_grad", { g, s, x, w, mean, rstd, n = 6 }, { true, true, true, n = 3 }, {})
    agree("layer_norm_grad", { g, false, x, w, mean, rstd, n = 6 }, { true, dw, dw, n = 3 }, { accumulate = true })
    agree("rms_norm_grad", { g, false, x, false, rstd, n = 5 }, { true, false, n = 2 }, {})
    agree("rms_norm_grad", { g, s, x, w, rstd, n = 5 }, { true, true, n = 2 }, {})
  end)

  each("cross entropy", true, function(shape, layout)
    local x, target = input(shape, layout, -30, 30), support.integers({ shape[1] }, "i64", 0, shape[2] - 1)
    local g, scale = statistics(shape[1], 0), statistics(1, 0.5):reshape {}
    if shape[1] > 1 then core.run_op("ref", "fill", {}, { target:narrow(1, 2, 1) }, { value = -100 }) end
    for _, smoothing in ipairs { 0, 0.1 } do
      local attrs = { ignore_index = -100, label_smoothing = smoothing }
      agree("cross_entropy", { x, target }, { true, true, true }, attrs)
      local kept = core.run_op("ref", "cross_entropy", { x, target }, { true, true, true }, attrs)
      agree("cross_entropy_grad", { x, target, kept[2], kept[3], g }, { true }, attrs)
      agree("cross_entropy_both", { x, target, scale }, { true, true }, attrs)
    end
  end)

  each("gradients of tables", true, function(shape, layout)
    local g, index = input({ 30, shape[2] }, layout), support.integers({ 30 }, "i64", 0, 4)
    for _, accumulate in ipairs { false, true } do
      agree("embedding_grad", { index, g }, { support.given(shape, "bf16") },
        { padding_index = 3, accumulate = accumulate })
    end
  end)

  each("elementwise ops", true, function(shape, layout)
    local a, b = input(shape, layout, -4, 4), input(shape, layout, -4, 4)
    for _, f in ipairs { "gelu", "gelu_tanh", "silu", "relu", "tanh", "exp", "square", "neg" } do
      agree("unary", { a }, { true }, { ["function"] = f })
      agree("unary_grad", { a, b }, { true }, { ["function"] = f })
    end
    for _, f in ipairs { "add", "sub", "mul", "div", "maximum", "swiglu", "geglu", "geglu_tanh", "reglu" } do
      agree("binary", { a, b }, { true }, { ["function"] = f })
    end
    for _, f in ipairs { "swiglu", "geglu", "geglu_tanh", "reglu" } do
      agree("gate_grad", { b, a, b }, { true, true }, { ["function"] = f })
    end
    agree("gate_grad", { b, a, b }, { false, true, n = 2 }, { ["function"] = "swiglu" })
    agree("compare", { a, b }, { true }, { ["function"] = "lt" })
    agree("where", { support.integers(shape, "u8", 0, 1), a, b }, { true }, {})
    agree("axpy", { a }, { support.given(shape, "bf16", layout) }, { alpha = 0.3 })
    agree("affine", { a }, { true }, { alpha = 0.3, beta = 0.7 })
    agree("scale", { a, statistics(1, 0):reshape {} }, { true }, {})
    agree("dropout", { a }, { true }, { p = 0.3 })
  end)

  each("cells of recurrent layers", false, function(shape, layout)
    local function parts(count, low) return input({ shape[1], count * shape[2] }, layout, low, 1) end
    local h = parts(1)
    agree("lstm_cell", { parts(4), parts(4), h }, { true, true, true })
    agree("lstm_cell_grad", { h, parts(1), parts(1), parts(4, 0), h, parts(1) }, { true, true })
    agree("gru_cell", { parts(3), parts(3), h }, { true, true })
    agree("gru_cell_grad", { h, parts(1), parts(4, 0), h }, { true, true, true })
  end)

  it("functions of the C library, and rows that broadcast", function()
    local a, b = input({ 3, 37 }, "contiguous", 0.5, 2), input({ 37 }, "contiguous", 0.5, 2)
    for _, f in ipairs { "sin", "cos", "log", "sqrt", "rsqrt" } do
      agree("unary", { a }, { true }, { ["function"] = f })
    end
    agree("unary", { a }, { true }, { ["function"] = "power", value = 1.5 })
    agree("unary_grad", { a, a }, { true }, { ["function"] = "power", value = 1.5 })
    for _, f in ipairs { "pow", "add", "swiglu" } do agree("binary", { a, b }, { true }, { ["function"] = f }) end
  end)

  for _, layout in ipairs(layouts) do
    it("rotary, " .. layout, function()
      local x, f = input({ 3, 5, 2, 3, 70 }, layout), gm.uniform({ 33 }, { seed = 9, dtype = "f32" })
      for _, interleaved in ipairs { false, true } do
        agree("rotary", { x, f, n = 3 }, { true }, { interleaved = interleaved, first = 7, rotated = 2 })
        agree("rotary", { x, f, support.integers({ 3, 5 }, "i64", 0, 1000) }, { true },
          { interleaved = interleaved, inverse = true, alpha = 1.25 })
        agree("rotary", { x, f, support.integers({ 5 }, "i32", 0, 1000) }, { true }, { interleaved = interleaved })
      end
    end)
  end

  each("batch norm", false, function(shape, layout)
    local x, g = input({ 2, shape[1], shape[2] }, layout, -3, 5), input({ 2, shape[1], shape[2] }, layout)
    local mean, rstd, h = statistics(shape[1], 0), statistics(shape[1], 0.1), statistics(shape[1], -1)
    local w, b = input({ shape[1] }), input({ shape[1] })
    agree("batch_norm_sums", { x }, { true, true }, {})
    agree("batch_norm_apply", { x, w, b, mean, rstd }, { true }, {})
    agree("batch_norm_apply", { x, false, false, mean, rstd, n = 5 }, { true }, {})
    agree("batch_norm_grad_sums", { g, x, mean, rstd }, { true, true }, {})
    agree("batch_norm_grad_apply", { g, x, w, mean, rstd, h, h }, { true }, {})
    agree("batch_norm_grad_apply", { g, x, false, mean, rstd, n = 7 }, { true }, {})
  end)

  each("sums", false, function(shape, layout)
    local x = input(shape, layout, -3, 5)
    agree("sum", { x }, { true }, { dims = 1 })
    agree("sum", { x }, { true }, { dims = 2, keepdim = true })
    agree("sum", { x }, { true }, {})
  end)

  it("sums of squares", function()
    for _, n in ipairs { 1, 31, 511, 4099, 40000 } do
      agree("sum_squares", { input({ n }), input({ 3, n }, "window") }, { true }, {})
    end
  end)
end)

describe("numbers of bf16 are rounded to nearest even", function()
  it("also below the normal range, beyond the largest number, and where they are none", function()
    local huge, none = math.huge, 0 / 0
    local cases = { -- factors, their product as bf16
      { 2 ^ -70, 2 ^ -60, 2 ^ -130 }, { 3 * 2 ^ -70, 2 ^ -64, 2 ^ -132 }, { 2 ^ -100, 2 ^ -100, 0 },
      { 2 ^ 127, 2, huge }, { -2 ^ 127, 2, -huge }, { none, 1, none }, { huge, 0, none }, { huge, -1, -huge },
      { 1 + 2 ^ -7, 1.5, 194 / 128 }, { 1 + 3 * 2 ^ -7, 1.5, 196 / 128 }, { 0, 5, 0 }, { 3, 5, 15 } }
    local a, b, want = {}, {}, {}
    for i = 1, 60 do -- in whole vectors and behind the last of them
      a[i], b[i], want[i] = unpack(cases[(i - 1) % #cases + 1])
    end
    local x, y = gm.tensor(a, { dtype = "bf16" }), gm.tensor(b, { dtype = "bf16" })
    for _, backend in ipairs(tables) do
      local got = core.run_op(backend, "binary", { x, y }, { true }, { ["function"] = "mul" })[1]:totable()
      for i, w in ipairs(want) do
        assert.is_true(got[i] == w or (got[i] ~= got[i] and w ~= w),
          ("%s: element %d is %.17g, not %.17g"):format(backend, i, got[i], w))
      end
    end
  end)

  it("but NaN of f32, whatever its digits are", function()
    local x = gm.zeros({ 60 }, { dtype = "f32" })
    local bits = ffi.cast("uint32_t *", x:data())
    for i = 0, 59 do bits[i] = i % 2 == 0 and 0x7fffffff or 0xff800001 end
    for _, backend in ipairs(tables) do
      local got = core.run_op(backend, "copy", { x }, { true }, { dtype = "bf16" })[1]:totable()
      for i = 1, 60 do assert.is_true(got[i] ~= got[i], backend .. ": element " .. i .. " is a number") end
    end
  end)

  -- Copies in f32 would be tensors; what threads need for themselves is scratch.
  it("without copies in f32", function()
    gm.scope(function()
      local x, w, b, y = input { 64, 256 }, input { 256 }, input { 256 }, input { 64, 256 }
      local mean, rstd, loss = gm.zeros { 64 }, gm.zeros { 64 }, gm.zeros { 64 }
      local target = support.integers({ 64 }, "i64", 0, 255)
      local function more(op, inputs, outputs, attrs)
        collected()
        gm.memory_reset_peak()
        local before = gm.memory().live
        core.run_op("cpu", op, inputs, outputs, attrs or {})
        local after = gm.memory()
        return after.peak - after.scratch_peak - before
      end
      assert.equal(0, more("layer_norm", { x, nil, w, b, n = 4 }, { y, nil, mean, rstd, n = 4 }, { eps = 1 }))
      assert.equal(0, more("rms_norm_grad", { x, nil, x, w, rstd, n = 5 }, { y, nil, n = 2 }))
      assert.equal(0, more("cross_entropy", { x, target }, { loss, mean, rstd }))
      assert.equal(0, more("binary", { x, x }, { y }, { ["function"] = "swiglu" }))
      assert.equal(0, more("dropout", { x }, { y }, { p = 0.5 }))
      assert.equal(0, more("embedding_grad", { target, y }, { input { 256, 256 } }))
      assert.is_true(more("softmax", { x }, { y }, { dim = 1 }) > 0) -- an op that widens
    end)
  end)
end)
