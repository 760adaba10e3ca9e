-- Elementwise ops and norms of f16, whose kernels read and write f16 in memory (AS 17 of kernels/cpu/as.h): they have
-- the bits of the same op in f32 on the same table, whose inputs are widened before and whose results are rounded once
-- after. The reference widens and rounds. spec/kernels/elementwise_spec.lua compares the numbers.
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local tables = {}
for _, name in ipairs(support.backends) do
  if name:match "^cpu" and not name:match "amx" then tables[#tables + 1] = name end
end

-- copy: what widens and rounds, the reference's by default.
local function agree(op, inputs, outputs, attrs, copy)
  copy = copy or support.copy
  for _, backend in ipairs(tables) do
    gm.scope(function()
      local wide, made, room = {}, {}, {}
      for i, t in ipairs(inputs) do wide[i] = t and t:dtype() == "f16" and copy(t, "f32") or t end
      for i, out in ipairs(outputs) do
        made[i] = type(out) == "function" and out() or out
        room[i] = type(out) == "function" and copy(out(), "f32") or out
      end
      local got, want = core.run_op(backend, op, inputs, made, attrs), core.run_op(backend, op, wide, room, attrs)
      for i in ipairs(outputs) do
        local rounds = got[i] and got[i]:dtype() == "f16" and want[i]:dtype() == "f32"
        local rounded = rounds and copy(want[i], "f16") or want[i]
        if got[i] then support.compare(got[i], rounded, support.exact, ("%s of f16 by %s"):format(op, backend)) end
      end
    end)
  end
end

local function each(a, b, condition)
  for _, f in ipairs { "gelu", "silu", "relu", "tanh", "exp", "square", "neg", "abs" } do
    agree("unary", { a }, { true }, { ["function"] = f })
    agree("unary_grad", { a, b }, { true }, { ["function"] = f })
  end
  for _, f in ipairs { "add", "sub", "mul", "div", "maximum", "swiglu" } do
    agree("binary", { a, b }, { true }, { ["function"] = f })
  end
  for _, f in ipairs { "lt", "le", "eq", "ne", "gt", "ge" } do
    agree("compare", { a, b }, { true }, { ["function"] = f })
  end
  agree("where", { condition, a, b }, { true }, {})
  agree("affine", { a }, { true }, { alpha = 0.3, beta = 0.7 })
  agree("scale", { a, gm.tensor(1.5) }, { true }, {})
end

describe("elementwise ops of f16 are those of f32, rounded:", function()
  -- around a vector of any table, and more numbers than are compared at a time
  for _, width in ipairs { 1, 7, 16, 37, 300 } do
    for _, layout in ipairs { "contiguous", "window", "turned" } do
      it(("rows of %d, %s"):format(width, layout), function()
        gm.scope(function()
          local shape = { 5, width }
          local a, b = support.input(shape, "f16", layout, -4, 4), support.input(shape, "f16", layout, -4, 4)
          each(a, b, support.integers(shape, "u8", 0, 1))
          agree("axpy", { a }, { support.given(shape, "f16", layout) }, { alpha = 0.3 })
          agree("binary", { a, support.input({ 5, 1 }, "f16") }, { true }, { ["function"] = "mul" })
        end)
      end)
    end
  end

  -- The sum with a residual is rounded, and then normalised.
  for _, width in ipairs { 1, 7, 16, 70, 4100 } do
    for _, layout in ipairs { "contiguous", "window", "turned" } do
      it(("norms of rows of %d, %s"):format(width, layout), function()
        gm.scope(function()
          local shape = { 5, width }
          local function given(low) return support.input(shape, "f16", layout, low, 5) end
          local x, g, r = given(-3), given(-5), given(-2)
          local w, b = support.input({ width }, "f16"), support.input({ width }, "f16")
          local mean, rstd = gm.uniform({ 5 }, { dtype = "f32" }), gm.uniform({ 5 }, { low = 0.1, dtype = "f32" })
          local dw = support.given({ width }, "f16")
          agree("layer_norm", { x, false, w, b }, { true, false, true, true }, { eps = 1e-5 })
          agree("rms_norm", { x, false, w }, { true, false, true }, { eps = 1e-5 })
          agree("layer_norm_grad", { g, r, x, w, mean, rstd }, { true, dw, dw }, { accumulate = true })
          agree("rms_norm_grad", { g, false, x, w, rstd }, { true, true }, {})
          for _, backend in ipairs(tables) do
            local sum = core.run_op(backend, "binary", { x, r }, { true }, { ["function"] = "add" })[1]
            local got = core.run_op(backend, "layer_norm", { x, r, w, b }, { true, true, true, true }, { eps = 1e-5 })
            local want = core.run_op(backend, "layer_norm", { sum, false, w, b }, { true, false, true, true },
              { eps = 1e-5 })
            support.compare(got[1], want[1], support.exact, "layer_norm of a sum by " .. backend)
            support.compare(got[2], sum, support.exact, "the sum by " .. backend)
          end
        end)
      end)
    end
  end

  it("past the caches", function()
    gm.scope(function()
      local a, b = support.input({ 4100, 1037 }, "f16", nil, -4, 4), support.input({ 4100, 1037 }, "f16", nil, -4, 4)
      local function copy(t, dtype) return t:to(dtype) end -- in vectors
      agree("binary", { a, b }, { true }, { ["function"] = "add" }, copy)
      agree("unary", { a }, { true }, { ["function"] = "gelu" }, copy)
      agree("layer_norm", { a, false, false, false, n = 4 }, { true, false, true, true }, { eps = 1e-5 }, copy)
    end)
  end)

  it("NaN, infinities, overflow, and numbers below the normal range", function()
    gm.scope(function()
      local list = { 0 / 0, -0 / 0, 1 / 0, -1 / 0, 65504, -65504, 6e-8, -3e-5, 6.1e-5, 0, -0, 1, 2049, 1e-7, 3e-8, 5 }
      local a = support.copy(gm.tensor(list, { dtype = "f64" }), "f16")
      local b = support.copy(gm.tensor({ 1, 1, 1, 1, 65504, -1, 0.5, 0.5, 0.5, 3, 1, 0 / 0, 1, 0.25, 1, 0.1 },
        { dtype = "f64" }), "f16")
      each(a, b, support.integers({ #list }, "u8", 0, 1))
    end)
  end)
end)
