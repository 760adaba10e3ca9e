-- Norms and softmax: every CPU table against the reference.
--
-- Inputs are uniform in [-1, 1): a row's normalised values stay below 1.8 or so for long rows and sqrt(n) for
-- short ones, what the "largest" of the bounds knows. Means and sums over a row of n carry support.terms(n).
local gm = require "ganymede"
local support = require "spec.kernels.support"

local input, agree, terms = support.input, support.agree, support.terms
-- What the kernels of CUDA for rows in registers need: several rows for each team, blocks of several teams, teams that
-- share a warp, are one, and are several.
local shapes = { { 1 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 64 }, { 0, 3 }, { 300, 2 }, { 110, 64 },
                 { 83, 300 }, { 21, 1024 } }

local function rows_of(shape)
  local rows = 1
  for d = 1, #shape - 1 do rows = rows * shape[d] end
  return rows
end

-- The statistics and the sum that the gradient takes.
local function forward(op, x, residual, count, eps)
  local inputs = op == "layer_norm" and { x, residual, nil, nil, n = 4 } or { x, residual, nil, n = 3 }
  local function at(i, dtype) return support.copy(support.reference(op, inputs, { eps = eps }, i, count), dtype) end
  local wide = support.wide(x:dtype())
  return at(2, x:dtype()), at(count - 1, wide), at(count, wide)
end

describe("norms agree with ref:", function()
  for _, residual in ipairs { false, true } do
    for _, affine in ipairs { false, true } do
      local name = (residual and " with residual" or "") .. (affine and " with weights" or "")
      support.each(it, "layer_norm and rms_norm" .. name, shapes, support.layouts, function(dtype, shape, layout)
        local n = shape[#shape]
        local x, r = input(shape, dtype, layout), residual and input(shape, dtype, layout) or nil
        local w, b = affine and input({ n }, dtype, layout) or nil, affine and input({ n }, dtype, layout) or nil
        -- A row of one element, or of equal ones, has variance 0: eps decides, so it is large enough to be seen.
        local attrs = { eps = 0.1 }
        local within = { terms(n), support.relative(1), terms(n, 2), terms(n) }
        agree { op = "layer_norm", inputs = { x, r, w, b, n = 4 }, outputs = { true, residual, true, true },
                attrs = attrs, within = within }
        agree { op = "rms_norm", inputs = { x, r, w, n = 3 }, outputs = { true, residual, true }, attrs = attrs,
                within = { terms(n), support.relative(1), terms(n) } }
      end)
    end
  end

  -- A mean of 1000 costs its rounding, 1000 eps against a spread of 0.58; E[x^2] - mean^2 would cost 10^6 eps.
  support.each(it, "layer_norm far from zero", { { 3, 5 }, { 8, 1024 }, { 7, 1025 } }, { "contiguous", "turned" },
    function(dtype, shape, layout)
      local x = input(shape, dtype, layout, 999, 1001)
      agree { op = "layer_norm", inputs = { x, nil, nil, nil, n = 4 }, outputs = { true, false, true, true },
              attrs = { eps = 1e-5 }, within = support.absolute(8, 4000) }
    end)

  for _, gsum in ipairs { false, true } do
    for _, affine in ipairs { false, true } do
      local name = (gsum and " with the residual's gradient" or "") .. (affine and " with weights" or "")
      name = "layer_norm_grad and rms_norm_grad" .. name
      support.each(it, name, shapes, support.layouts, function(dtype, shape, layout)
        local n, rows = shape[#shape], rows_of(shape)
        local g, gs = input(shape, dtype, layout), gsum and input(shape, dtype, layout) or nil
        local w = affine and input({ n }, dtype, layout) or nil
        local x = input(shape, dtype, layout)
        local accumulate = affine and gsum
        local dw = affine and (accumulate and support.given({ n }, dtype, "turned") or true)
        local db = affine and (accumulate and support.given({ n }, dtype, "contiguous") or true)
        local attrs = { accumulate = accumulate }
        local _, mean, rstd = forward("layer_norm", x, nil, 4, 0.1)
        local hats = 1 + rows * math.min(4, math.sqrt(n)) -- what a column of |g hat| and a held 1 sum to
        agree { op = "layer_norm_grad", inputs = { g, gs, x, w, mean, rstd, n = 6 }, outputs = { true, dw, db },
                attrs = attrs, within = { terms(n, 8), terms(rows, hats), terms(rows, 1 + rows) } }
        _, _, rstd = forward("rms_norm", x, nil, 3, 0.1)
        agree { op = "rms_norm_grad", inputs = { g, gs, x, w, rstd, n = 5 }, outputs = { true, dw }, attrs = attrs,
                within = { terms(n, 8), terms(rows, hats) } }
      end)
    end
  end
end)

describe("softmax agrees with ref:", function()
  -- x - max is rounded, at most 12 of it: exp turns that into 12 roundings of the value, the sum adds its own.
  local soft_shapes = { { 1 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 4 }, { 0, 3 }, { 3, 0 }, { 5, 2, 70 },
                        { 70, 11 } }
  support.each(it, "softmax and log_softmax along every dimension", soft_shapes, support.layouts,
    function(dtype, shape, layout)
      local x, g = input(shape, dtype, layout, -6, 6), input(shape, dtype, layout)
      for dim = -1, #shape - 1 do
        local n = shape[dim < 0 and #shape or dim + 1]
        local attrs = { dim = dim }
        agree { op = "softmax", inputs = { x }, outputs = { true }, attrs = attrs,
                within = support.relative(32 + 4 * math.sqrt(n)) }
        local rounded = support.absolute(8, 20)
        agree { op = "log_softmax", inputs = { x }, outputs = { true }, attrs = attrs, within = rounded }
        local y = support.copy(support.reference("softmax", { x }, attrs), dtype)
        local total = support.absolute(16 + 4 * math.sqrt(n), 1) -- |y| and |g| are below 1, so is sum(g y)
        agree { op = "softmax_grad", inputs = { y, g }, outputs = { true }, attrs = attrs, within = total }
        local logs = support.copy(support.reference("log_softmax", { x }, attrs), dtype)
        agree { op = "log_softmax_grad", inputs = { logs, g }, outputs = { true }, attrs = attrs,
                within = terms(n, 2 + math.sqrt(n)) } -- sum(g) has no cancellation to speak of: some sqrt(n)
      end
    end)

  it("softmax of large, hidden and broken numbers", function()
    local inf, nan = 1 / 0, 0 / 0
    local rows = { { 1000, 1001, 999, -inf }, { -inf, -inf, 3, -inf }, { -1e30, 1e30, 0, 1 }, { 1, nan, 2, 3 },
                   { -inf, -inf, -inf, -inf }, { 88, -88, 0, 89 } }
    gm.scope(function()
      for _, dtype in ipairs(support.dtypes) do
        local x = gm.tensor(rows, { dtype = dtype })
        local columns = gm.ops.cat({ x, x }, 1):transpose(1, 2):contiguous() -- as many as go by lanes
        for _, op in ipairs { "softmax", "log_softmax" } do
          for _, input_ in ipairs { x, x:transpose(1, 2), columns } do
            local dim = input_ == x and 1 or 0
            local want = support.magnitude(support.reference(op, { input_ }, { dim = dim }))
            -- exp makes 177 roundings of numbers 177 apart; the logarithm of the sum is rounded near 1001
            local size = support.reference("affine", { want }, { beta = op == "softmax" and 0 or 1001 })
            agree { op = op, inputs = { input_ }, outputs = { true }, attrs = { dim = dim }, label = op,
                    within = support.absolute(op == "softmax" and 400 or 4, size) }
          end
        end
      end
    end)
  end)
end)

-- Rows longer than what a team of CUDA threads holds in registers: read again for each pass.
describe("long rows agree with ref:", function()
  support.each(it, "norms, softmax and their gradients", { { 3, 8200 } }, { "contiguous" }, function(dtype, shape)
    local n = shape[2]
    local x, r, g = input(shape, dtype), input(shape, dtype), input(shape, dtype)
    local w = input({ n }, dtype)
    agree { op = "layer_norm", inputs = { x, r, w, w, n = 4 }, outputs = { true, true, true, true },
            within = { terms(n), support.relative(1), terms(n, 2), terms(n) } }
    local _, mean, rstd = forward("layer_norm", x, nil, 4, 0.1)
    agree { op = "layer_norm_grad", inputs = { g, r, x, w, mean, rstd, n = 6 }, outputs = { true, true, true },
            within = { terms(n, 8), terms(3, 12), terms(3, 4) } }
    agree { op = "softmax", inputs = { x }, outputs = { true }, within = support.relative(32 + 4 * math.sqrt(n)) }
    local y = support.copy(support.reference("softmax", { x }, {}), dtype)
    agree { op = "softmax_grad", inputs = { y, g }, outputs = { true },
            within = support.absolute(16 + 4 * math.sqrt(n), 1) }
  end)
end)
