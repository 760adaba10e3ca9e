-- Bags of rows, gradients as lists of rows, rows that a list names, and sums along a dimension: every table of kernels
-- against the reference, and how they refuse bad data.
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local input, agree, integers = support.input, support.agree, support.integers

local function i64(list) return gm.tensor(list, { dtype = "i64" }) end

describe("bags agree with ref:", function()
  -- (bags, places), of two tables of 5 and 3 rows
  support.each(it, "embedding_bag and the gradient of weights", { { 1, 1 }, { 4, 3 }, { 70, 2 }, { 3, 0 }, { 0, 2 } },
    support.layouts, function(dtype, shape, layout)
      local bags, n = shape[1], shape[2]
      for _, width in ipairs { 1, 16, 515 } do
        local index = integers({ bags, 2, n }, dtype == "f32" and "i32" or "i64", -1, 2, layout)
        local bounds, w = i64 { 0, 5, 8 }, input({ 8, width }, dtype, layout)
        local weight = input({ bags, 2, n }, dtype, layout)
        for _, weights in ipairs { false, weight } do
          agree { op = "embedding_bag", inputs = { w, index, bounds, weights }, outputs = { true, true },
                  within = { support.terms(n, n + 1), support.exact } }
        end
        local part = input({ 4, width }, dtype, layout) -- rows 3 to 6 of the whole
        agree { op = "embedding_bag", inputs = { part, index, bounds, false }, outputs = { true, true },
                attrs = { first = 3 }, within = { support.terms(n, n + 1), support.exact } }
        local row, g = integers({ bags, 2, n }, "i64", -1, 7, layout), input({ bags, 2, width }, dtype, layout)
        agree { op = "embedding_bag_weight_grad", inputs = { w, row, g }, outputs = { true },
                within = support.terms(width, width) }
      end
    end)

  support.each(it, "embedding_rows", { { 1 }, { 40 }, { 3, 5 }, { 0 }, { 700 } }, support.layouts,
    function(dtype, shape, layout)
      local places = 1
      for _, d in ipairs(shape) do places = places * d end
      for _, each in ipairs(places % 5 == 0 and { 1, 5 } or { 1 }) do
        local row = integers(shape, "i64", -2, 13, layout)
        local g = input({ places / each, 9 }, dtype, layout)
        for _, weight in ipairs { false, input(shape, dtype, layout) } do
          agree { op = "embedding_rows", inputs = { row, g, weight }, outputs = { true, true },
                  attrs = { padding_index = 4 }, within = { support.exact, support.terms(places, places + 1) } }
        end
      end
    end)

  it("embedding_rows sorts rows of many digits, each once, and the rest is -1 and 0", function()
    local rows = { 2 ^ 30, 5, 70000, 5, -1, 2 ^ 30, 4096, 5 }
    local g = {}
    for i = 1, #rows do g[i] = { i, -i } end
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      local out = core.run_op(backend, "embedding_rows", { i64(rows), gm.tensor(g), false }, { n = 2, true, true })
      assert.same({ 5, 4096, 70000, 2 ^ 30, -1, -1, -1, -1 }, out[1]:totable())
      assert.same({ { 14, -14 }, { 7, -7 }, { 3, -3 }, { 7, -7 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
        out[2]:totable())
    end
  end)

  support.each(it, "rows_take and rows_put", { { 6, 3 }, { 300, 16 }, { 4, 130 }, { 3, 0 } }, support.layouts,
    function(dtype, shape, layout)
      local list = {}
      for i = 1, shape[1] do list[i] = i % 3 == 0 and -1 or (shape[1] - i) end -- each row at most once
      local row, x = i64(list), input(shape, dtype, layout)
      agree { op = "rows_take", inputs = { x, row }, outputs = { true }, within = support.exact }
      agree { op = "rows_put", inputs = { input({ shape[1], shape[2] }, dtype, layout), row },
              outputs = { support.given(shape, dtype, layout == "expanded" and "window" or layout) },
              within = support.exact }
    end)

  it("refuse what is outside of a table, and write nothing", function()
    gm.scope(function()
      local w, bounds = input({ 8, 3 }, "f32"), i64 { 0, 5, 8 }
      for _, bad in ipairs { { { 5 }, { 0 } }, { { 0 }, { 3 } }, { { 0 }, { -2 } } } do
        support.refuses("embedding_bag", { w, i64 { bad }, bounds, false },
          { support.given({ 1, 2, 3 }, "f32"), function() return i64 { { { 9 }, { 9 } } } end }, {},
          "outside a table of [53]")
      end
      support.refuses("rows_take", { w, i64 { 0, 8 } }, { support.given({ 2, 3 }, "f32") }, {},
        "outside a table of 8")
    end)
  end)
end)

describe("cumsum agrees with ref:", function()
  local shapes = { { 1 }, { 300 }, { 3, 70, 5 }, { 2, 3, 130 }, { 0, 3 }, { 65, 66 } }
  support.each(it, "along each dimension, both ways", shapes, support.layouts, function(dtype, shape, layout)
    for dim = 0, #shape - 1 do
      for _, inverse in ipairs { false, true } do
        agree { op = "cumsum", inputs = { input(shape, dtype, layout) }, outputs = { true },
                attrs = { dim = dim, inverse = inverse }, within = support.terms(shape[dim + 1], shape[dim + 1]) }
      end
    end
  end)

  it("in f64 adds up one element after the other", function()
    local list, sum, want = {}, 0, {}
    for i = 1, 1000 do
      list[i] = math.sin(i)
      sum = sum + list[i]
      want[i] = sum
    end
    assert.same(want, gm.tensor(list, { dtype = "f64" }):cumsum():totable())
    local rows, expected = {}, {} -- four rows are added up at a time, and three more
    for r = 1, 7 do
      rows[r], expected[r], sum = {}, {}, 0
      for i = 1, 100 do
        rows[r][i] = list[(r * 137 + i) % 1000 + 1]
        sum = sum + rows[r][i]
        expected[r][i] = sum
      end
    end
    assert.same(expected, gm.tensor(rows, { dtype = "f64" }):cumsum(2):totable())
  end)
end)
