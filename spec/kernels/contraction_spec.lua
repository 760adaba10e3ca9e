-- matmul, linear and the gradients of linear: every CPU table against the reference.
--
-- A product of inner size k sums k terms: the bound is that of support.terms(k) with the magnitude that the sum
-- has without cancellation, |a| |b|, which the reference computes.
-- sanitizers: only "f64" "%(%d, %d%)" "%(%d%)" "%(2, 7, 33%)" "f32 %(1, 64" "f32 %(8, 300" "f32 %(12, 41" "bf16 into"
--   "bf16 %(8, 300%) to" "%(1, 41%)" "f32 %(33, 600" "%(16, 50%)" "grad f16 %(8, 1024" "f32 %(7, 1025" "refuse",
--   the others run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local input, agree = support.input, support.agree
local functions = { "none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh" }

local function ref(op, inputs, attrs) return support.reference(op, inputs, attrs) end
local function plus(a, b) return ref("binary", { a, b }, { ["function"] = "add" }) end

-- rows, inner, columns: ends of register tiles and cache blocks, and what is empty
local sizes = {
  { 1, 1, 1 }, { 3, 5, 2 }, { 1, 64, 1 }, { 17, 33, 9 }, { 8, 300, 24 }, { 64, 64, 64 }, { 7, 1025, 13 },
  { 130, 70, 65 }, { 1, 129, 257 }, { 257, 3, 1 }, { 0, 3, 4 }, { 3, 0, 4 }, { 3, 4, 0 },
  { 61, 300, 37 }, -- several slivers together, twice along the inner size
  { 19, 270, 161 }, -- turned (kernels/cpu/gemm_turned_t.h): two panels, the last columns fewer than a tile has
  { 12, 41, 400 }, -- whole slivers that are packed, because many panels meet them
}

local function matmul_case(a, b, attrs, shape, dtype, layout)
  local inner = a:shape()[attrs.transpose_a and a:dim() - 1 or a:dim()]
  local size = ref("matmul", { support.magnitude(a), support.magnitude(b) },
    { transpose_a = attrs.transpose_a, transpose_b = attrs.transpose_b, alpha = math.abs(attrs.alpha or 1) })
  local output = true
  if attrs.accumulate then
    output = support.given(shape, dtype, layout)
    size = plus(size, gm.full(shape, 1, { dtype = "f64" }))
  end
  agree { op = "matmul", inputs = { a, b }, outputs = { output }, attrs = attrs, within = support.terms(inner, size) }
end

describe("contractions agree with ref:", function()
  for _, size in ipairs(sizes) do
    local m, k, n = size[1], size[2], size[3]
    for _, dtype in ipairs(support.dtypes) do
      it(("matmul %s (%d, %d) x (%d, %d)"):format(dtype, m, k, k, n), function()
        for bits = 0, 3 do
          local ta, tb = bits % 2 == 1, bits >= 2
          for _, layout in ipairs(support.layouts) do
            gm.scope(function()
              local a = input(ta and { k, m } or { m, k }, dtype, layout)
              local b = input(tb and { n, k } or { k, n }, dtype, layout)
              local attrs = { transpose_a = ta, transpose_b = tb, alpha = 0.5, accumulate = layout == "window" }
              matmul_case(a, b, attrs, { m, n }, dtype, bits == 0 and "turned" or "window")
            end)
          end
        end
      end)
    end
  end

  local batches = { -- shapes of a and b
    { { 4, 3, 5 }, { 4, 5, 2 } }, { { 4, 3, 5 }, { 5, 2 } }, { { 3, 5 }, { 4, 5, 2 } }, { { 2, 1, 3, 5 }, { 7, 5, 2 } },
    { { 2, 6, 40, 30 }, { 2, 6, 30, 50 } }, { { 1, 1, 3, 5 }, { 2, 2, 5, 2 } }, { { 0, 3, 5 }, { 5, 2 } },
  }
  for _, pair in ipairs(batches) do
    for _, dtype in ipairs(support.dtypes) do
      it(("matmul %s %s x %s"):format(dtype, support.show(pair[1]), support.show(pair[2])), function()
        for _, layout in ipairs(support.layouts) do
          gm.scope(function()
            local a, b = input(pair[1], dtype, layout), input(pair[2], dtype, layout)
            matmul_case(a, b, {}, nil, dtype)
            local shape = ref("matmul", { a, b }):shape()
            matmul_case(a, b, { accumulate = true, alpha = -2 }, shape, dtype, layout ~= "expanded" and layout)
          end)
        end
      end)
    end
  end

  -- sums of several products: of 16 bits in f32, rounded nowhere
  for _, dtype in ipairs { "bf16", "f16" } do
    it("matmul of " .. dtype .. " into f32", function()
      for _, layout in ipairs(support.layouts) do
        gm.scope(function()
          local a, b = input({ 70, 33 }, dtype, layout), input({ 70, 140 }, dtype)
          matmul_case(a, b, { transpose_a = true, dtype = "f32" }, { 33, 140 }, "f32")
          matmul_case(a, b, { transpose_a = true, dtype = "f32", accumulate = true }, { 33, 140 }, "f32",
            layout ~= "expanded" and layout)
        end)
      end
      support.refuses("matmul", { input({ 3, 4 }, dtype), input({ 4, 2 }, dtype) },
        { support.given({ 3, 2 }, "f64") }, { dtype = "f64" }, "matmul: of " .. dtype .. " it gives .- or f32")
    end)
  end

  -- y = f(pre): the slopes of the activations stay below 1.13, so pre's error is not magnified much; 2 covers that
  -- and the rounding of f.
  local dense = { { { 3, 5 }, 4 }, { { 2, 7, 33 }, 17 }, { { 8, 300 }, 65 }, { { 1 }, 1 }, { { 0, 3 }, 2 },
                  { { 3, 0 }, 2 }, { { 130, 64 }, 96 }, { { 33, 600 }, 70 },
                  { { 1, 41 }, 9 }, { { 5, 1100 }, 7 }, { { 16, 50 }, 10 }, { { 11, 33 }, 6 }, -- thin: few rows
                  { { 9, 300 }, 77 }, { { 2, 10, 40 }, 163 } } -- turned
  for _, case in ipairs(dense) do
    local shape, outputs = case[1], case[2]
    for _, dtype in ipairs(support.dtypes) do
      it(("linear %s %s to %d"):format(dtype, support.show(shape), outputs), function()
        local inner = shape[#shape]
        for i, name in ipairs(functions) do
          local layout = support.layouts[i % 4 + 1]
          gm.scope(function()
            local x, w, b = input(shape, dtype, layout), input({ outputs, inner }, dtype, layout), nil
            local size = { support.magnitude(x), support.magnitude(w), nil, n = 3 }
            if i ~= 3 then
              b = input({ outputs }, dtype, layout)
              size[3] = support.magnitude(b)
            end
            size = support.reference("linear", size, {}, 1, 2)
            local twice = ref("affine", { size }, { alpha = 2, beta = 0.1 })
            agree { op = "linear", inputs = { x, w, b, n = 3 }, outputs = { true, i ~= 2 },
                    label = "linear " .. name, attrs = { ["function"] = name },
                    within = { support.terms(inner, twice), support.terms(inner, size) } }
          end)
        end
      end)
    end
  end

  -- dpre = g f'(pre); |f'| < 1.13, but the slope of gelu_tanh multiplies 1 - tanh^2, which has lost its digits where
  -- tanh is near 1, with up to 14 at |pre| = 6, twice. db sums dpre over rows.
  local rowwise = { { 1 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 130, 3 }, { 0, 3 }, { 3, 0 }, { 75, 272 } }
  support.each(it, "bias_activation_grad", rowwise, support.layouts, function(dtype, shape, layout)
      for i, name in ipairs(functions) do
        local g, pre = input(shape, dtype, layout), input(shape, dtype, layout, -6, 6)
        local rows, width = 1, shape[#shape]
        for d = 1, #shape - 1 do rows = rows * shape[d] end
        local db = true
        if i % 2 == 0 then db = support.given({ width }, dtype, "turned") end
        local given_pre = name ~= "none" and pre or nil
        local slope = name == "none" and support.exact or support.absolute(8, name == "gelu_tanh" and 8 or 2)
        local sum = support.terms(rows, (name == "gelu_tanh" and 4 or 1) * (1 + 1.2 * rows))
        agree { op = "bias_activation_grad", inputs = { g, given_pre, n = 2 },
                outputs = { name ~= "none" or i % 2 == 1, db }, label = "bias_activation_grad " .. name,
                attrs = { ["function"] = name, accumulate = i % 2 == 0 }, within = { slope, sum } }
        agree { op = "bias_activation_grad", inputs = { g, given_pre, n = 2 }, outputs = { true, false },
                attrs = { ["function"] = name }, label = "bias_activation_grad without db " .. name,
                within = { slope } }
      end
    end)

  -- A part of the result may be rounded to 16 bits before the rest joins it: an activation's slope, what is added to.
  local function rounded_between(dtype, within)
    if support.wide(dtype) ~= dtype then within.k = within.k + support.epsilon[dtype] / support.epsilon.f32 end
    return within
  end

  for _, size in ipairs(sizes) do
    local rows, outputs, inputs = size[1], size[2], size[3]
    local shape = ("(%d, %d) and (%d, %d)"):format(rows, outputs, rows, inputs)
    for _, dtype in ipairs(support.dtypes) do
      it(("linear_weight_grad %s %s"):format(dtype, shape), function()
        for i, layout in ipairs(support.layouts) do
          gm.scope(function()
            local g, x = input({ rows, outputs }, dtype, layout), input({ rows, inputs }, dtype, layout)
            local adds, dw, db = i % 2 == 0, true, i < 4
            local of_dw = ref("matmul", { support.magnitude(g), support.magnitude(x) }, { transpose_a = true })
            if adds then
              of_dw = plus(of_dw, gm.full({ outputs, inputs }, 1, { dtype = "f64" }))
              dw = support.given({ outputs, inputs }, dtype, layout == "turned" and "turned" or "contiguous")
              db = db and support.given({ outputs }, dtype, layout == "turned" and "turned" or "contiguous")
            end
            agree { op = "linear_weight_grad", inputs = { g, x }, outputs = { dw, db }, attrs = { accumulate = adds },
                    label = "linear_weight_grad " .. layout,
                    within = { support.terms(rows, of_dw),
                               rounded_between(dtype, support.terms(rows, rows + 1)) } }
          end)
        end
      end)

      it(("linear_input_grad %s (%d, %d) x (%d, %d)"):format(dtype, rows, outputs, outputs, inputs), function()
        for i = 2, #functions do
          local layout = support.layouts[i % 4 + 1]
          gm.scope(function()
            local g, w = input({ rows, outputs }, dtype, layout), input({ outputs, inputs }, dtype, layout)
            local pre = input({ rows, inputs }, dtype, layout, -6, 6)
            local of = ref("matmul", { support.magnitude(g), support.magnitude(w) })
            -- the slope of gelu_tanh has lost digits where tanh is near 1 (bias_activation_grad, above)
            of = ref("affine", { of }, { alpha = functions[i] == "gelu_tanh" and 8 or 2, beta = 0 })
            agree { op = "linear_input_grad", inputs = { g, w, pre }, outputs = { true },
                    attrs = { ["function"] = functions[i] }, label = "linear_input_grad " .. functions[i],
                    within = rounded_between(dtype, support.terms(outputs, of)) }
          end)
        end
      end)
    end
  end

  -- The gradient of a bias is summed on the way: of slivers that stay packed, that are packed in turn or read where
  -- they lie; once where several pieces of the other operand meet them, and over all blocks along k. Whole numbers make
  -- all sums exact.
  for _, dtype in ipairs { "f32", "f64" } do
    it("linear_weight_grad sums rows on its way, " .. dtype, function()
      for i, shape in ipairs { { 33, 34, 300 }, { 70, 20, 257 }, { 15, 40, 31 }, { 40, 15, 513 }, { 5, 2, 40 },
                               { 1, 3, 600 }, { 30, 260, 530 }, { 260, 30, 530 }, { 530, 540, 600 },
                               { 1310, 1300, 260 }, { 700, 710, 600 }, { 7, 9, 0 } } do
        local m, n, k = unpack(shape)
        local function whole(...) return support.integers({ ... }, "i32", -4, 4):to(dtype) end
        gm.scope(function()
          local wide, turned = whole(k, m + 3), whole(m, k):transpose(1, 2)
          local x, given = whole(k, n), whole(m)
          local adds, label = i % 2 == 0, (" of %d x %d x %d"):format(m, n, k)
          for _, g in ipairs { wide:narrow(2, 2, m), turned } do
            local sums = ref("sum", { g }, { dims = 1 }):to(dtype)
            for _, backend in ipairs(support.backends) do
              local dw, db = gm.zeros({ m, n }, { dtype = dtype }), support.copy(given)
              core.run_op(backend, "linear_weight_grad", { n = 2, g, x }, { n = 2, dw, db }, { accumulate = adds })
              support.compare(db, adds and sums + given or sums, support.exact, "db" .. label .. " on " .. backend)
            end
          end
        end)
      end
    end)
  end

  it("gradients of linear refuse what does not fit", function()
    local function refuses(op, shapes, attrs, message)
      local inputs = {}
      for i, shape in ipairs(shapes) do inputs[i] = input(shape, "f32") end
      local outputs = { support.given({ 4, 5 }, "f32"), support.given({ 4 }, "f32") }
      if op == "linear_input_grad" then outputs[2] = nil end
      support.refuses(op, inputs, outputs, attrs, message)
    end
    refuses("linear_weight_grad", { { 3, 4 }, { 2, 5 } }, {}, "x is %(2, 5%), should be a matrix of 3 rows")
    refuses("linear_weight_grad", { { 3 }, { 3, 5 } }, {}, "g is %(3%), should be a matrix")
    refuses("linear_input_grad", { { 3, 4 }, { 4, 5 }, { 3, 4 } }, { ["function"] = "relu" },
      "pre is %(3, 4%), should be %(3, 5%)")
    refuses("linear_input_grad", { { 3, 4 }, { 4, 5 }, { 3, 5 } }, {}, "without an activation it is a matmul")
    refuses("linear_input_grad", { { 3, 4 }, { 4, 5 }, { 3, 5 } }, { ["function"] = "exp" }, "'exp' is no activation")
  end)
end)
