-- Norms in steps, for rows of which ranks have blocks: every CPU table against the reference, and the steps together
-- against the whole norm.
--
-- Inputs are uniform in [-1, 1). Sums of n products below 2 are made in double and carry the rounding of each product.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local input, agree, terms = support.input, support.agree, support.terms
local shapes = { { 1 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 64 }, { 0, 3 }, { 300, 2 } }

local function rows_of(shape)
  local rows = 1
  for d = 1, #shape - 1 do rows = rows * shape[d] end
  return rows
end

local function column(shape, dtype, low, high)
  local leading = {}
  for d = 1, #shape - 1 do leading[d] = shape[d] end
  return input(leading, support.wide(dtype), "contiguous", low, high)
end

describe("steps of norms agree with ref:", function()
  for _, with_mean in ipairs { true, false } do
    local kind = with_mean and "layer norm" or "RMS norm"
    for _, more in ipairs { false, true } do
      local name = kind .. (more and ", with all operands" or "")
      support.each(it, "sums and results of " .. name, shapes, support.layouts, function(dtype, shape, layout)
        local n, rows = shape[#shape], rows_of(shape)
        local x, g = input(shape, dtype, layout), input(shape, dtype, layout)
        local r = more and input(shape, dtype, layout) or nil
        local w, b = more and input({ n }, dtype, layout) or nil, more and input({ n }, dtype, layout) or nil
        local mean = with_mean and column(shape, dtype) or nil
        local rstd, mean_h, mean_hh = column(shape, dtype, 0.5, 2), column(shape, dtype), column(shape, dtype)
        agree { op = "norm_sums", inputs = { x, r, n = 2 }, outputs = { more, with_mean, true },
                within = { support.relative(1), terms(n, 2), support.absolute(12, 4 * n) } }
        agree { op = "norm_apply", inputs = { x, w, b, mean, rstd, n = 5 }, outputs = { true },
                within = { support.absolute(8, 5) } } -- |x - mean| rstd w + b < 5
        agree { op = "norm_grad_sums", inputs = { g, x, w, mean, rstd, n = 5 }, outputs = { more, more, true, true },
                within = { support.absolute(8, 4 * rows + 1), support.absolute(8, rows + 1), support.absolute(8, n),
                           support.absolute(8, 4 * n) } }
        mean_h = with_mean and mean_h or nil
        agree { op = "norm_grad_apply", inputs = { g, r, x, w, mean, rstd, mean_h, mean_hh, n = 8 },
                outputs = { true }, within = { support.absolute(8, 13) } } -- (1 + 1 + 4) 2 + 1
      end)
    end
  end

  -- As for the whole norm: the squares are taken around the mean, so that a mean of 1000 costs them nothing more than
  -- the rounding of x; where rounding to 16 bits has made all numbers of a row equal, m2 is what the mean was off by.
  support.each(it, "sums far from zero", { { 3, 5 }, { 8, 1024 }, { 7, 1025 } }, { "contiguous", "turned" },
    function(dtype, shape, layout)
      local n = shape[#shape]
      agree { op = "norm_sums", inputs = { input(shape, dtype, layout, 999, 1001), nil, n = 2 },
              outputs = { false, true, true }, within = { support.exact, terms(n), support.wide(dtype) == dtype
                and support.relative(n) or support.absolute(n, 1) } }
    end)

  it("a residual whose sum nobody wants is refused", function()
    local x = gm.ones { 2, 3 }
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      local ok, err = pcall(core.run_op, backend, "norm_sums", { x, x, n = 2 }, { n = 3, false, true, true }, {})
      assert.is_false(ok)
      assert.matches("the sum of x and residual is not asked for", err)
    end
  end)

  it("the steps of one block are the norm", function()
    gm.scope(function()
      local x, w, b = input({ 5, 33 }, "f64"), input({ 33 }, "f64"), input({ 33 }, "f64")
      local mean = support.reference("norm_sums", { x, nil, n = 2 }, {}, 2, 3)
      local m2 = support.reference("norm_sums", { x, nil, n = 2 }, {}, 3, 3)
      local rstd = gm.ops.rsqrt(m2 / 33 + 1e-5)
      local y = support.reference("norm_apply", { x, w, b, mean, rstd, n = 5 }, {})
      local want = support.reference("layer_norm", { x, nil, w, b, n = 4 }, { eps = 1e-5 }, 1, 4)
      assert.is_true((y - want):abs():max(2):max(1):item() < 1e-13)
    end)
  end)
end)
