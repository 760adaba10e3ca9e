-- Reductions, scatter and sum_squares: every CPU table against the reference.
--
-- A sum of n numbers is bounded by support.terms(n) with the sum of their magnitudes, which the reference makes.
-- max, min, argmax, top_k and scatter pick or add once: bit for bit.
local gm = require "ganymede"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local input, agree = support.input, support.agree
local shapes = { { 1 }, { 7 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 4, 5 }, { 6, 1, 70 }, { 19, 21 },
                 { 2, 17, 9 }, { 0 }, { 3, 0 }, { 0, 3 } }

describe("reductions agree with ref:", function()
  support.each(it, "sum over every set of dimensions", shapes, support.layouts, function(dtype, shape, layout)
    local x = input(shape, dtype, layout)
    for dims = 0, 2 ^ #shape - 1 do
      local n = 1
      for d, size in ipairs(shape) do
        if dims == 0 or math.floor(dims / 2 ^ (d - 1)) % 2 == 1 then n = n * size end
      end
      for _, keepdim in ipairs { false, true } do
        local attrs = { dims = dims, keepdim = keepdim }
        local size = support.reference("sum", { support.magnitude(x) }, attrs)
        agree { op = "sum", inputs = { x }, outputs = { true }, attrs = attrs, within = support.terms(n, size) }
      end
    end
  end)

  -- Long rows, which AVX2 reads at four places: one such piece, or two, and what is left.
  for _, n in ipairs { 65536, 2 * 65536 + 21 } do
    for _, dtype in ipairs { "f32", "f64" } do
      it(("sum of %d numbers of %s"):format(n, dtype), function()
        gm.scope(function()
          local x = input({ n }, dtype)
          agree { op = "sum", inputs = { x }, outputs = { true }, attrs = {},
                  within = support.terms(n, support.reference("sum", { support.magnitude(x) }, {})) }
        end)
      end)
    end
  end

  -- Elements of bf16 are added in pairs first: pairs that f32 cannot hold, numbers below the normal range, and rows of
  -- pairs and of what is left. Sums in double are exact here, or what they lose is far below a unit of bf16. GPUs add
  -- in f32, where the large ones are infinite.
  it("sum of bf16 whose pairs are large or tiny", function()
    for _, n in ipairs { 128, 200, 203 } do
      for _, list in ipairs { { 2 ^ 127, 2 ^ 127, -2 ^ 127, -2 ^ 127 }, { 2 ^ -133, 3 * 2 ^ -133, 2 ^ -126, 1 } } do
        gm.scope(function()
          local numbers = {}
          for i = 1, n do numbers[i] = i > n - n % 4 and list[3] / 8 * (i % 4) or list[(i - 1) % 4 + 1] end
          local x = support.copy(gm.tensor(numbers, { dtype = "f64" }), "bf16")
          agree { op = "sum", inputs = { x }, outputs = { true }, attrs = {}, within = support.exact, on_cpu = true }
        end)
      end
    end
  end)

  it("sum of a scalar", function()
    gm.scope(function()
      agree { op = "sum", inputs = { gm.tensor(3.5, { dtype = "f32" }) }, outputs = { true }, within = support.exact }
    end)
  end)

  -- Few different values, so that many are equal.
  local full = { { 1 }, { 7 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 4, 5 }, { 0, 3 }, { 2, 140, 16 } }
  support.each(it, "max, min and argmax", full, support.layouts, function(dtype, shape, layout)
      local x = support.integers(shape, "i32", -5, 5, layout):to(dtype)
      for _, from in ipairs { x, input(shape, dtype, layout) } do
        for dim = -1, #shape - 1 do
          if shape[dim < 0 and #shape or dim + 1] > 0 then
            for _, keepdim in ipairs { false, true } do
              local attrs = { dim = dim, keepdim = keepdim }
              agree { op = "max", inputs = { from }, outputs = { true, true }, attrs = attrs, within = support.exact }
              agree { op = "min", inputs = { from }, outputs = { true, true }, attrs = attrs, within = support.exact }
              agree { op = "argmax", inputs = { from }, outputs = { true }, attrs = attrs, within = support.exact }
            end
          end
        end
      end
    end)

  -- A NaN, an infinity, equal zeros of both signs at every place of a row: vector lanes and tails alike. Rows of 40
  -- are searched beside each other, and so are columns.
  it("max, min and argmax with NaN and infinities at every place", function()
    local inf, nan = 1 / 0, 0 / 0
    local function check(dtype, odd, n)
      local rows = {}
      for place = 1, n do
        rows[place] = {}
        for k = 1, n do rows[place][k] = place % 9 == 0 and odd or (k * 37 % 11) - 5 end
        rows[place][place] = odd
        if place % 2 == 0 then rows[place][n] = nan end -- the first of two
      end
      local x = gm.tensor(rows, { dtype = dtype })
      for _, t in ipairs { x, x:transpose(1, 2) } do
        local attrs = { dim = t:is_contiguous() and 1 or 0 }
        agree { op = "max", inputs = { t }, outputs = { true, true }, attrs = attrs, within = support.exact }
        agree { op = "min", inputs = { t }, outputs = { true, true }, attrs = attrs, within = support.exact }
        agree { op = "argmax", inputs = { t }, outputs = { true }, attrs = attrs, within = support.exact }
        for _, op in ipairs { "max", "min" } do
          agree { op = op, inputs = { t }, outputs = { true, true }, attrs = { dim = 1 - attrs.dim },
                  within = support.exact }
        end
      end
    end
    for _, dtype in ipairs(support.dtypes) do
      for _, odd in ipairs { nan, inf, -inf } do
        for _, n in ipairs { 40, 67, 72 } do gm.scope(function() check(dtype, odd, n) end) end -- 72: whole packs
      end
    end
  end)

  -- Columns go in strips of four vectors and single vectors, rows of at most 64 by as many as a vector has lanes.
  it("max, min and argmax beside each other: whole strips, vectors and what is left", function()
    for _, dtype in ipairs { "f32", "f64" } do
      for _, case in ipairs { { { 3, 6, 150 }, 1 }, { { 2, 9, 11 }, 1 }, { { 5, 64 }, 0 }, { { 7, 5, 9 }, 0 },
                              { { 83, 10 }, 1 }, { { 83, 64 }, 1 }, { { 83, 65 }, 1 }, { { 16, 1 }, 1 } } do
        gm.scope(function()
          local few = support.integers(case[1], "i32", -3, 3):to(dtype)
          for _, x in ipairs { few, input(case[1], dtype) } do
            for _, keepdim in ipairs { false, true } do
              local attrs = { dim = case[2], keepdim = keepdim }
              agree { op = "max", inputs = { x }, outputs = { true, true }, attrs = attrs, within = support.exact }
              agree { op = "min", inputs = { x }, outputs = { true, true }, attrs = attrs, within = support.exact }
              agree { op = "argmax", inputs = { x }, outputs = { true }, attrs = attrs, within = support.exact }
            end
          end
        end)
      end
    end
  end)

  -- The k largest, in order: few different values, so that places decide, and NaN in the middle.
  local rows = { { 1 }, { 7 }, { 3, 5 }, { 4, 67 }, { 2, 3, 4, 5 }, { 0, 3 } }
  support.each(it, "top_k", rows, support.layouts, function(dtype, shape, layout)
    local n = shape[#shape]
    local few = support.integers(shape, "i32", -3, 3, layout):to(dtype)
    for _, x in ipairs { few, input(shape, dtype, layout), gm.ops.where(few:eq(2), 0 / 0, few) } do
      for _, k in ipairs { 1, 2, 5, n } do
        if k <= n then
          agree { op = "top_k", inputs = { x }, outputs = { true, true }, attrs = { k = k }, within = support.exact }
        end
      end
    end
  end)

  -- Sums of whole numbers are exact in any order, so what differs was added twice or left out.
  it("sums, extremes and softmax of columns on 1 to 3 threads", function()
    same_bits [[
      local x = gm.uniform({ 3000, 100 }, { low = -9, high = 9, seed = 1 }):to("i32"):to("f32")
      for _, t in ipairs { x, x:to("bf16"), x:to("f64"), x:reshape { 30000, 10 }, x:reshape { 3, 1000, 100 } } do
        for dims = 0, 2 ^ t:dim() - 1 do add(core.run_op("cpu", "sum", { t }, { true }, { dims = dims })[1]) end
        for dim = 0, t:dim() - 1 do
          for _, y in ipairs(core.run_op("cpu", "max", { t }, { true, true }, { dim = dim })) do add(y) end
          add(core.run_op("cpu", "softmax", { t }, { true }, { dim = dim })[1])
        end
      end
    ]]
  end)

  it("top_k by hand: equals in order of place, NaN first", function()
    gm.scope(function()
      local x = gm.tensor({ { 1, 3, 3, -2 }, { 0 / 0, 5, 1 / 0, 0 / 0 } }, { dtype = "f64" })
      local values, index = gm.ops.top_k(x, 3)
      assert.same({ { 1, 2, 0 }, { 0, 3, 2 } }, index:totable())
      assert.same({ 3, 3, 1 }, values:totable()[1])
      assert.has_error(function() gm.ops.top_k(x, 5) end)
    end)
  end)

  support.each(it, "scatter", { { 1 }, { 7 }, { 3, 5 }, { 8, 1024 }, { 2, 3, 4 }, { 0, 3 } }, support.layouts,
    function(dtype, shape, layout)
      for dim = -1, #shape - 1 do
        local along = dim < 0 and #shape or dim + 1
        for _, keepdim in ipairs { false, true } do
          local small = {}
          for d, size in ipairs(shape) do
            if d ~= along then small[#small + 1] = size elseif keepdim then small[#small + 1] = 1 end
          end
          local index = support.integers(small, keepdim and "i32" or "i64", 0, shape[along] - 1, layout)
          local given = support.given(shape, dtype, layout == "expanded" and "window" or layout)
          if shape[along] > 0 then
            agree { op = "scatter", inputs = { index, input(small, dtype, layout) }, outputs = { given },
                    attrs = { dim = dim }, within = support.exact }
          end
        end
      end
    end)

  it("scatter refuses an index outside", function()
    gm.scope(function()
      for _, value in ipairs { 3, -1 } do
        local index, g = gm.tensor({ 0, value }, { dtype = "i64" }), gm.tensor({ 1, 1 }, { dtype = "f32" })
        support.refuses("scatter", { index, g }, { support.given({ 2, 3 }, "f32") }, { dim = 1 },
          "scatter.*" .. value)
      end
    end)
  end)

  -- Accumulated in f64 whatever the inputs are.
  it("sum_squares of many tensors", function()
    for _, layout in ipairs(support.layouts) do
      gm.scope(function()
        local list, n = {}, 0
        for _, shape in ipairs(shapes) do
          for _, dtype in ipairs(support.dtypes) do
            list[#list + 1] = input(shape, dtype, layout)
            n = n + list[#list]:numel()
          end
        end
        agree { op = "sum_squares", inputs = list, outputs = { true }, within = support.terms(n) }
      end)
    end
    for _, dtype in ipairs { "f32", "f64" } do -- more than the pieces in which the sum is made, whose parts all differ
      gm.scope(function()
        local x = gm.tensor((function()
          local list = {}
          for i = 1, 40001 do list[i] = i % 4096 * 2 ^ -12 + math.floor(i / 4096) end
          return list
        end)(), { dtype = dtype })
        agree { op = "sum_squares", inputs = { x }, outputs = { true }, within = support.terms(40001) }
      end)
    end
    gm.scope(function() agree { op = "sum_squares", inputs = {}, outputs = { true }, within = support.exact } end)
  end)
end)

it("max and min without a dimension say how the extremes of all elements and of two tensors are found", function()
  gm.scope(function()
    local x = gm.tensor { { 1, 5, 2 }, { 7, 0, 3 } }
    for _, case in ipairs { { "max", "largest", "maximum", 7 }, { "min", "smallest", "minimum", 0 } } do
      local op, word, both, value = unpack(case)
      local said = ("the %s of all elements is x:reshape(x:numel()):%s(1); of two tensors x:%s(y)"):format(word, op,
        both)
      for _, call in ipairs { function() local y = x[op](x) return y end,
                              function() local y = gm.ops[op](x, x) return y end } do
        assert.error_matches(call, said, 1, true)
      end
      assert.equal(value, (x:reshape(x:numel())[op](x:reshape(x:numel()), 1)):item())
      assert.same({ 2, 3 }, x[both](x, x):shape())
    end
  end)
end)
