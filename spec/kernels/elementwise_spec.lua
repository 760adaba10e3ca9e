-- Elementwise ops: every CPU table against the reference.
--
-- Arithmetic alone is rounded once or twice. Functions are allowed 8 roundings of a result as if x itself were
-- off by one: |f| + |x f'(x)|, with f' from the reference; the gelu pair besides |x| / 2, since
-- 0.5 x (1 + erf) loses digits to the 1 where it is small.
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local input, agree, each, relative = support.input, support.agree, support.each, support.relative
local all_dtypes = { "f32", "f64", "bf16", "f16", "i32", "i64", "u8" }

local unary = { "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "neg", "exp", "log", "softplus", "sqrt",
                "rsqrt", "square", "reciprocal", "abs", "sin", "cos", "power" }
local positive = { log = true, sqrt = true, rsqrt = true, power = true }
local binary = { "add", "sub", "mul", "div", "maximum", "minimum", "pow", "reglu", "geglu", "geglu_tanh",
                 "swiglu" }
local gates = { reglu = "relu", geglu = "gelu", geglu_tanh = "gelu_tanh", swiglu = "silu" }
local compare = { "eq", "ne", "lt", "le", "gt", "ge" }

local function ref(op, inputs, attrs) return support.reference(op, inputs, attrs) end
local function plus(a, b) return ref("binary", { a, b }, { ["function"] = "add" }) end
local function times(a, b) return ref("binary", { a, b }, { ["function"] = "mul" }) end
local function ones_like(x) return gm.full(x:shape(), 1, { dtype = "f64" }) end

-- |f| + |x f'|, and |x| / 2 for the gelu pair.
local function unary_magnitude(name, x, value)
  local attrs = { ["function"] = name, value = value }
  local wide = support.copy(x, "f64")
  local slope = ref("unary_grad", { wide, ones_like(x) }, attrs)
  local sum = plus(support.magnitude(ref("unary", { wide }, attrs)), support.magnitude(times(wide, slope)))
  if name:find "^gelu" then sum = plus(sum, ref("affine", { support.magnitude(x) }, { alpha = 0.5 })) end
  return sum
end

-- How many roundings a binary function has: of pow, exp(b log a), below 5; of a gate, those of its function, and one.
local function rounds(name) return name == "pow" and 16 or gates[name] and 12 or 1 end

describe("elementwise ops agree with ref:", function()
  each(it, "fill", support.shapes, { "contiguous", "turned", "window" }, function(dtype, shape, layout)
    agree { op = "fill", inputs = {}, outputs = { support.given(shape, dtype, layout) }, attrs = { value = 1.7 },
            within = support.exact }
  end)

  each(it, "copy to every dtype", support.shapes, support.layouts, function(dtype, shape, layout)
    local x = input(shape, dtype, layout, -300, 300)
    for _, to in ipairs(all_dtypes) do
      agree { op = "copy", inputs = { x }, outputs = { true }, attrs = { dtype = to }, within = support.exact,
              label = "copy to " .. to }
      local y = x:to(to)
      agree { op = "copy", inputs = { y }, outputs = { true }, attrs = { dtype = dtype }, within = support.exact,
              label = "copy from " .. to }
    end
  end)

  -- Tiles of 64 x 64 that a GPU moves by 16 bytes, whole and cut off, of one plane and of several, and others beside.
  each(it, "copy of rows that become columns", { { 64, 64 }, { 72, 200 }, { 3, 136, 8 }, { 2, 130, 66 }, { 8, 3, 72 } },
    { "turned", "window" }, function(dtype, shape, layout)
      local x = input(shape, dtype, layout)
      agree { op = "copy", inputs = { x }, outputs = { true }, attrs = { dtype = dtype }, within = support.exact }
      local n = #shape
      local turned = x:permute(n == 2 and { 2, 1 } or { 1, 3, 2 })
      agree { op = "copy", inputs = { turned }, outputs = { true }, attrs = { dtype = dtype }, within = support.exact }
    end)

  it("copy between all dtypes, with what saturates, overflows and is NaN", function()
    local odd = {
      0, -0.0, 0.5, -0.5, 1.5, 254.5, 255, 256, -1, 65503, 65519.99, 65520, 70000, -70000, 2 ^ 31 - 1, 2 ^ 31,
      -2 ^ 31 - 1, 2 ^ 53 + 2, 2 ^ 63, -2 ^ 63, 1e300, -1e300, 2 ^ -24, 2 ^ -25, 3 * 2 ^ -26, 2 ^ -133, 2 ^ -134,
      1 / 0, -1 / 0, 0 / 0, 1 + 2 ^ -8, 1 + 2 ^ -8 + 2 ^ -20, 1 + 2 ^ -11, 1 + 3 * 2 ^ -11, 3.4e38, 3.395e38,
    }
    gm.scope(function()
      for _, from in ipairs(all_dtypes) do
        local x = gm.tensor(odd, { dtype = from })
        for _, to in ipairs(all_dtypes) do
          agree { op = "copy", inputs = { x }, outputs = { true }, attrs = { dtype = to }, within = support.exact,
                  label = from .. " to " .. to }
        end
      end
    end)
  end)

  -- a x is rounded unless fused, then the sum: half a unit of each.
  each(it, "axpy and affine", support.shapes, support.layouts, function(dtype, shape, layout)
    local x = input(shape, dtype, layout)
    local given_layout = layout == "expanded" and "window" or layout
    agree { op = "axpy", inputs = { x }, outputs = { support.given(shape, dtype, given_layout) },
            attrs = { alpha = 0.7 }, within = support.absolute(4, 1.7) }
    agree { op = "affine", inputs = { x }, outputs = { true }, attrs = { alpha = -1.3, beta = 0.4 },
            within = support.absolute(4, 1.7) }
  end)

  -- One rounding, two where it is added to what is there.
  each(it, "scale", support.shapes, support.layouts, function(dtype, shape, layout)
    local x, s = input(shape, dtype, layout), gm.full({}, -1.3, { dtype = support.wide(dtype) })
    local given_layout = layout == "expanded" and "window" or layout
    for _, to in ipairs(dtype == "f32" and { "f32", "bf16", "f16" } or { dtype }) do
      agree { op = "scale", inputs = { x, s }, outputs = { true }, attrs = { dtype = to }, label = "scale to " .. to,
              within = support.relative(1) }
      agree { op = "scale", inputs = { x, s }, outputs = { support.given(shape, to, given_layout) },
              attrs = { dtype = to, accumulate = true }, within = support.absolute(4, 2.3), label = "added to " .. to }
    end
  end)

  for _, name in ipairs(unary) do
    each(it, name, support.shapes, support.layouts, function(dtype, shape, layout)
      local low, high = positive[name] and 0.01 or -6, 6
      local x, g = input(shape, dtype, layout, low, high), input(shape, dtype, layout)
      local attrs = { ["function"] = name, value = 2.5 }
      agree { op = "unary", inputs = { x }, outputs = { true }, attrs = attrs, label = name,
              within = support.absolute(8, unary_magnitude(name, x, 2.5)) }
      -- f' has no better condition than f: |g| (1 + |f'| + |x|), as if each factor of it were rounded.
      local slope = support.magnitude(ref("unary_grad", { x, ones_like(x) }, attrs))
      local size = times(support.magnitude(g), plus(plus(slope, ones_like(x)), support.magnitude(x)))
      agree { op = "unary_grad", inputs = { x, g }, outputs = { true }, attrs = attrs, label = name .. " gradient",
              within = support.absolute(8, positive[name] and times(support.magnitude(g), slope) or size) }
    end)
  end

  -- As the function and its slope: each factor is rounded.
  for gate, name in pairs(gates) do
    each(it, "gradients of " .. gate, support.shapes, support.layouts, function(dtype, shape, layout)
      local g, a, b = input(shape, dtype, layout), input(shape, dtype, layout, -6, 6), input(shape, dtype, layout)
      local slope = support.magnitude(ref("unary_grad", { a, ones_like(a) }, { ["function"] = name }))
      local of_g = support.magnitude(g)
      local of_a = times(times(of_g, support.magnitude(b)), plus(plus(slope, ones_like(a)), support.magnitude(a)))
      local within = { support.absolute(8, of_a), support.absolute(9, times(of_g, unary_magnitude(name, a))) }
      for _, outputs in ipairs { { true, true }, { n = 2, true }, { n = 2, false, true } } do
        agree { op = "gate_grad", inputs = { g, a, b }, outputs = outputs, attrs = { ["function"] = gate },
                within = within }
      end
    end)
  end

  -- Bounds that no dtype rounds; some elements are at them.
  each(it, "clamp", support.shapes, support.layouts, function(dtype, shape, layout)
    local x, g = support.integers(shape, "u8", 0, 8, layout):to(dtype), input(shape, dtype, layout)
    for _, ends in ipairs { { 2, 5 }, { -1 / 0, 3 }, { 2.5, 1 / 0 }, { 4, 4 }, { -3, -2 } } do
      local attrs = { ["function"] = "clamp", low = ends[1], high = ends[2] }
      agree { op = "unary", inputs = { x }, outputs = { true }, attrs = attrs, within = support.exact }
      agree { op = "unary_grad", inputs = { x, g }, outputs = { true }, attrs = attrs, within = support.exact }
    end
  end)

  it("clamp and its gradient at NaN, infinity and zeros with a sign", function()
    gm.scope(function()
      for _, dtype in ipairs(support.dtypes) do
        local x = gm.tensor({ 0 / 0, 1 / 0, -1 / 0, 0, -0.0, 0.5, -0.5, 1, -1, 2, -2 }, { dtype = dtype })
        for _, ends in ipairs { { 0, 1 }, { -1, 0 }, { -1 / 0, 1 }, { -1, 1 / 0 } } do
          local attrs = { ["function"] = "clamp", low = ends[1], high = ends[2] }
          agree { op = "unary", inputs = { x }, outputs = { true }, attrs = attrs, within = support.exact }
          agree { op = "unary_grad", inputs = { x, input({ 11 }, dtype) }, outputs = { true }, attrs = attrs,
                  within = support.exact }
        end
      end
    end)
  end)

  it("functions of special values", function()
    local tame = { 0, 100, -100, 1e4, -1e4, 1e-30, -1e-30, 0 / 0, 88.5, 89, -87, -88, -103, -104, 709, 710, -745, -746 }
    local endless = { 1 / 0, -1 / 0 }
    local infinite = { gelu = true, exp = true, log = true, softplus = true, sqrt = true, rsqrt = true,
                       reciprocal = true, tanh = true, sigmoid = true, relu = true, abs = true, neg = true,
                       square = true }
    gm.scope(function()
      for _, name in ipairs(unary) do
        for _, dtype in ipairs(support.dtypes) do
          for _, list in ipairs { tame, infinite[name] and endless or nil } do
            local x = gm.tensor(list, { dtype = dtype })
            local size = unary_magnitude(name, x, 3)
            size = core.run_op("ref", "where", { core.run_op("ref", "compare", { size, size }, { true },
              { ["function"] = "eq" })[1], size, gm.full(size:shape(), 0, { dtype = "f64" }) }, { true })[1] -- NaN: 0
            agree { op = "unary", inputs = { x }, outputs = { true }, attrs = { ["function"] = name, value = 3 },
                    within = support.absolute(8, size), label = name .. " of special values" }
          end
        end
      end
    end)
  end)

  it("gradients of relu and abs at 0, NaN and infinity", function()
    local odd, list = { 0 / 0, 0, -0.0, 1, -1, 1 / 0, -1 / 0 }, {}
    for i = 1, 5 * #odd do list[i] = odd[(i - 1) % #odd + 1] end
    gm.scope(function()
      for _, dtype in ipairs(support.dtypes) do
        local x = gm.tensor(list, { dtype = dtype })
        for _, name in ipairs { "relu", "abs" } do
          agree { op = "unary_grad", inputs = { x, input({ #list }, dtype) }, outputs = { true },
                  attrs = { ["function"] = name }, within = support.relative(1), label = name .. " gradient" }
        end
        agree { op = "bias_activation_grad", inputs = { input({ #list, 1 }, dtype), x:reshape { #list, 1 } },
                outputs = { true, false }, attrs = { ["function"] = "relu" }, within = support.relative(1) }
      end
    end)
  end)

  local broadcasts = {
    { { 3, 5 }, { 3, 5 } }, { { 3, 5 }, { 5 } }, { { 3, 1 }, { 1, 5 } }, { {}, { 4, 3 } }, { { 7, 1025 }, { 7, 1 } },
    { { 8, 1024 }, { 1024 } }, { { 2, 1, 4 }, { 3, 1 } }, { { 0 }, { 1 } }, { { 3, 0 }, { 3, 1 } }, { { 1 }, { 1 } },
  }
  for _, pair in ipairs(broadcasts) do
    for _, dtype in ipairs(support.dtypes) do
      local shapes = support.show(pair[1]) .. " x " .. support.show(pair[2])
      it(("binary, compare and where %s %s"):format(dtype, shapes), function()
        for _, layout in ipairs(support.layouts) do
          gm.scope(function()
            local a, b = input(pair[1], dtype, layout, 0.1, 2), input(pair[2], dtype, layout, 0.1, 2)
            for _, name in ipairs(binary) do
              agree { op = "binary", inputs = { a, b }, outputs = { true }, attrs = { ["function"] = name },
                      label = name, within = relative(rounds(name)) }
            end
            local i = support.integers(pair[1], "u8", 0, 2, layout):to(dtype)
            local j = support.integers(pair[2], "u8", 0, 2, layout):to(dtype)
            for _, name in ipairs(compare) do
              agree { op = "compare", inputs = { i, j }, outputs = { true }, attrs = { ["function"] = name },
                      label = name, within = support.exact }
            end
            local condition = support.integers(pair[1], "u8", 0, 2, layout)
            agree { op = "where", inputs = { condition, a, b }, outputs = { true }, within = support.exact }
          end)
        end
      end)
    end
  end

  it("NaN in binary and compare", function()
    local nan = 0 / 0
    for _, dtype in ipairs(support.dtypes) do
      gm.scope(function()
        local a = gm.tensor({ nan, 1, nan, 1 / 0, -1 / 0, 0, -0.0, 2 }, { dtype = dtype })
        local b = gm.tensor({ 1, nan, nan, 1 / 0, 1 / 0, -0.0, 0, 2 }, { dtype = dtype })
        for _, name in ipairs(binary) do
          agree { op = "binary", inputs = { a, b }, outputs = { true }, attrs = { ["function"] = name }, label = name,
                  within = relative(16) }
        end
        for _, name in ipairs(compare) do
          agree { op = "compare", inputs = { a, b }, outputs = { true }, attrs = { ["function"] = name }, label = name,
                  within = support.exact }
        end
      end)
    end
  end)
end)
