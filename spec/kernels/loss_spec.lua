-- Tables and cross entropy: every CPU table against the reference, and how they refuse bad data.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local input, agree, integers = support.input, support.agree, support.integers
local index_types = { f32 = "i32", f64 = "i64", bf16 = "i64", f16 = "i32" } -- so that both are tried

describe("embedding agrees with ref:", function()
  local tables = { { 1, 1 }, { 5, 3 }, { 9, 4 }, { 9, 16 }, { 300, 64 }, { 7, 1025 }, { 5, 0 } }
  for _, index_shape in ipairs { {}, { 1 }, { 40 }, { 3, 5 }, { 0 } } do
    support.each(it, "embedding and embedding_grad, index " .. support.show(index_shape), tables, support.layouts,
      function(dtype, shape, layout)
        local rows, width = shape[1], shape[2]
        local index = integers(index_shape, index_types[dtype], 0, rows - 1, layout)
        agree { op = "embedding", inputs = { input(shape, dtype, layout), index }, outputs = { true },
                within = support.exact }
        local g_shape = { unpack(index_shape) }
        g_shape[#g_shape + 1] = width
        local g, n = input(g_shape, dtype, layout), index:numel()
        for _, accumulate in ipairs { false, true } do -- at most n gradients and what was there meet in a row
          for _, padding in ipairs { -1, rows - 1 } do
            local given = support.given(shape, dtype, layout == "expanded" and "window" or layout)
            agree { op = "embedding_grad", inputs = { index, g }, outputs = { given },
                    attrs = { accumulate = accumulate, padding_index = padding }, within = support.terms(n, n + 1) }
          end
        end
      end)
  end

  -- Several blocks of the sort on a GPU, each key of two digits, some rows with many positions.
  support.each(it, "embedding_grad of many positions", { { 4100 } }, { "contiguous", "turned" },
    function(dtype, shape, layout)
      local index, g = integers(shape, index_types[dtype], 250, 263, layout), input({ shape[1], 3 }, dtype, layout)
      agree { op = "embedding_grad", inputs = { index, g }, outputs = { support.given({ 300, 3 }, dtype) },
              attrs = { padding_index = 256 }, within = support.terms(400, 400) }
    end)

  -- Rows of whole packs: some rows with many positions beside some with few, and with none.
  support.each(it, "embedding_grad of even rows", { { 400 } }, { "contiguous" }, function(dtype, shape)
    local index, g = integers(shape, index_types[dtype], 0, 40), input({ shape[1], 272 }, dtype)
    local many = integers(shape, index_types[dtype], 0, 9)
    for _, accumulate in ipairs { false, true } do
      for _, i in ipairs { index, many } do
        agree { op = "embedding_grad", inputs = { i, g }, outputs = { support.given({ 43, 272 }, dtype) },
                attrs = { accumulate = accumulate }, within = support.terms(60, 80) }
      end
    end
  end)

  -- A part of a table: indices into the whole, counted from the part's first row, most of them outside.
  for _, rows in ipairs { 0, 1, 4 } do
    support.each(it, ("a part of %d rows"):format(rows), { { 3, 5 }, { 40 }, { 0 } }, support.layouts,
      function(dtype, shape, layout)
        local index = integers(shape, index_types[dtype], -3, 6, layout)
        agree { op = "embedding", inputs = { input({ rows, 7 }, dtype), index }, outputs = { true },
                attrs = { part = true }, within = support.exact }
        local g_shape = { unpack(shape) }
        g_shape[#g_shape + 1] = 7
        for _, accumulate in ipairs { false, true } do
          agree { op = "embedding_grad", inputs = { index, input(g_shape, dtype, layout) },
                  outputs = { support.given({ rows, 7 }, dtype, "window") },
                  attrs = { accumulate = accumulate, part = true, padding_index = rows - 1 },
                  within = support.terms(15, 16) }
        end
      end)
  end

  it("of a part are zeros where the row is elsewhere, and gradients of what is here alone", function()
    local table, index = gm.tensor { { 1, 2 }, { 3, 4 } }, gm.tensor({ 1, 2, -1, 0, 1 }, { dtype = "i64" })
    for _, backend in ipairs { "ref", unpack(support.backends) } do
      local y = core.run_op(backend, "embedding", { table, index }, { n = 1, true }, { part = true })[1]
      assert.same({ { 3, 4 }, { 0, 0 }, { 0, 0 }, { 1, 2 }, { 3, 4 } }, y:totable())
      local g, dw = gm.tensor { { 1, 1 }, { 9, 9 }, { 9, 9 }, { 2, 2 }, { 4, 5 } }, gm.zeros { 2, 2 }
      core.run_op(backend, "embedding_grad", { index, g }, { n = 1, dw }, { part = true })
      assert.same({ { 2, 2 }, { 5, 6 } }, dw:totable())
    end
  end)

  it("refuses an index outside of the table, and writes nothing", function()
    gm.scope(function()
      for _, value in ipairs { 5, -1, 2 ^ 40 } do
        local index = gm.tensor({ 0, 4, value }, { dtype = "i64" })
        support.refuses("embedding", { input({ 5, 3 }, "f32"), index }, { support.given({ 3, 3 }, "f32") }, {},
          "embedding.*" .. ("%d"):format(value):gsub("%-", "%%-"))
        support.refuses("embedding_grad", { index, input({ 3, 3 }, "f32") }, { support.given({ 5, 3 }, "f32") }, {},
          "embedding_grad.*" .. ("%d"):format(value):gsub("%-", "%%-"))
      end
    end)
  end)
end)

describe("cross entropy agrees with ref:", function()
  -- Logits in [-8, 8): differences of up to 16 + log(classes) are rounded. Smoothing adds a mean over the classes.
  local shapes = { { 1 }, { 1, 2 }, { 3, 5 }, { 8, 1024 }, { 7, 1025 }, { 2, 3, 10 }, { 2, 3, 64 }, { 0, 3 },
                   { 300, 2 }, { 2, 16400 } }
  for _, smoothing in ipairs { 0, 0.1 } do
    support.each(it, "cross_entropy and cross_entropy_grad with smoothing " .. smoothing, shapes, support.layouts,
      function(dtype, shape, layout)
        local leading, classes = { unpack(shape, 1, #shape - 1) }, shape[#shape]
        local x, wide = input(shape, dtype, layout, -8, 8), support.wide(dtype)
        local g = input(leading, wide, layout)
        local attrs = { label_smoothing = smoothing, ignore_index = 1 }
        local target = integers(leading, index_types[dtype], 0, classes - 1, layout)
        agree { op = "cross_entropy", inputs = { x, target }, outputs = { true, true, true }, attrs = attrs,
                within = { support.absolute(8 + (smoothing > 0 and 4 * math.sqrt(classes) or 0), 24), support.exact,
                           support.terms(classes) } }
        local function known(which)
          return support.copy(support.reference("cross_entropy", { x, target }, attrs, which, 3), wide)
        end
        -- |g| (p + wanted) with p = exp(x - largest) / sum: some 24 roundings of p
        agree { op = "cross_entropy_grad", inputs = { x, target, known(2), known(3), g }, outputs = { true },
                attrs = attrs, within = support.absolute(48, 1) }
      end)
  end

  -- Both at once are what the two ops are, with one gradient for all rows. The widest are such as a block of a GPU
  -- keeps in shared memory, of one turn of its threads and of several, and with more rows than blocks.
  for _, smoothing in ipairs { 0, 0.1 } do
    local sizes = { { 0, 3 }, { 5, 1 }, { 2, 3, 17 }, { 7, 1025 }, { 300, 2 }, { 2, 16400 }, { 9, 8192 },
                    { 3, 20480 } }
    support.each(it, "cross_entropy_both with smoothing " .. smoothing, sizes, support.layouts,
      function(dtype, shape, layout)
        local leading, classes = { unpack(shape, 1, #shape - 1) }, shape[#shape]
        local x, wide = input(shape, dtype, layout, -8, 8), support.wide(dtype)
        local target = integers(leading, index_types[dtype], 0, classes - 1, layout)
        agree { op = "cross_entropy_both", inputs = { x, target, gm.tensor(0.75, { dtype = wide }) },
                outputs = { true, true }, attrs = { label_smoothing = smoothing, ignore_index = 1 },
                within = { support.absolute(8 + (smoothing > 0 and 4 * math.sqrt(classes) or 0), 24),
                           support.absolute(48 + 4 * math.sqrt(classes), 1) } } -- p by a sum of as many terms
      end)
  end

  -- Quarters: the products are exact.
  support.each(it, "rescale_rows", { { 0, 3 }, { 5, 1 }, { 2, 3, 17 }, { 7, 1025 }, { 600, 2 } }, support.layouts,
    function(dtype, shape, layout)
      local leading, wide = { unpack(shape, 1, #shape - 1) }, support.wide(dtype)
      local count = 1
      for _, n in ipairs(leading) do count = count * n end
      local numbers = {}
      for i = 1, count do numbers[i] = ({ 0.5, 0.25, 0, -2 })[i % 4 + 1] end
      local some = gm.zeros(leading, { dtype = wide })
      if count > 0 then some = gm.tensor(numbers, { dtype = wide }):reshape(leading) end
      local function same(number) return gm.tensor(number, { dtype = wide }):expand(leading) end
      for _, g in ipairs { some, gm.full(leading, 0.5, { dtype = wide }), same(2), same(0.5) } do
        agree { op = "rescale_rows", inputs = { gm.tensor(0.5, { dtype = wide }), g },
                outputs = { support.given(shape, dtype, layout == "expanded" and "window" or layout) },
                within = support.exact }
      end
    end)

  it("rescale_rows keeps zeros and rows that have their scale; a row whose scale says nothing becomes NaN", function()
    local nan = 0 / 0
    gm.scope(function()
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        for _, dtype in ipairs(support.dtypes) do
          local wide = support.wide(dtype)
          local function after(scale, g)
            local x = gm.tensor({ { 0, 2 }, { 0, -4 } }, { dtype = dtype })
            core.run_op(backend, "rescale_rows",
              { gm.tensor(scale, { dtype = wide }), gm.tensor(g, { dtype = wide }) }, { n = 1, x })
            return x:totable()
          end
          local name = backend .. " " .. dtype
          assert.same({ { 0, 2 }, { 0, -8 } }, after(1, { 1, 2 }), name)
          assert.same({ { 0, 2 }, { 0, -4 } }, after(0, { 0, 0 }), name)
          local lost = after(0, { 0, 1 })
          assert.same({ 0, 2 }, lost[1], name)
          assert.is_true(lost[2][1] ~= lost[2][1] and lost[2][2] ~= lost[2][2], name)
          local bad = after(1, { 1, nan })
          assert.is_true(bad[2][1] == 0 and bad[2][2] ~= bad[2][2], name)
        end
      end
    end)
  end)

  it("costs nothing where targets are ignored, and for logits of -inf that are not wanted", function()
    local inf = 1 / 0
    gm.scope(function()
      for _, dtype in ipairs(support.dtypes) do
        local x = gm.tensor({ { 1, 2, -inf }, { 3, -inf, -inf }, { 0, 1000, 999 }, { 1, 2, 3 } }, { dtype = dtype })
        local target = gm.tensor({ 1, 0, 2, -100 }, { dtype = "i64" })
        local wide = support.wide(dtype)
        local largest = gm.tensor({ 2, 3, 1000, 3 }, { dtype = wide })
        local sum = gm.tensor({ 1 + math.exp(-1), 1, 1 + math.exp(-1), 1.5 }, { dtype = wide })
        agree { op = "cross_entropy", inputs = { x, target }, outputs = { true, true, true },
                within = support.absolute(8, 1000) }
        local g = gm.full({ 4 }, 1, { dtype = support.wide(dtype) })
        agree { op = "cross_entropy_grad", inputs = { x, target, largest, sum, g },
                outputs = { true }, within = support.absolute(8, 1000) }
      end
    end)
  end)

  it("is NaN where a logit is, and where all are -inf", function()
    local inf, nan = 1 / 0, 0 / 0
    gm.scope(function()
      local x = gm.tensor { { nan, 1, 2 }, { 1, 2, nan }, { nan, nan, nan }, { -inf, -inf, -inf }, { 1, inf, 2 } }
      local target, g = gm.tensor({ 0, 0, 0, 0, 0 }, { dtype = "i64" }), gm.full({ 5 }, 1)
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local out = core.run_op(backend, "cross_entropy", { x, target }, { n = 3, true, true, true })
        local dx = core.run_op(backend, "cross_entropy_grad", { x, target, out[2], out[3], g }, { n = 1, true })[1]
        for row = 1, 5 do
          assert.is_true(out[1][row]:item() ~= out[1][row]:item(), backend .. row)
          assert.is_true(dx[row][1]:item() ~= dx[row][1]:item(), backend .. row)
        end
      end
    end)
  end)

  -- Rows longer than what kernels look at in one go: what comes first says nothing of what follows.
  it("is right for logits that rise or fall by thousands along a row, and NaN where many are in turn", function()
    gm.scope(function()
      local rising, falling, nan_first, nan_last = {}, {}, {}, {}
      for i = 1, 2100 do
        rising[i], falling[i] = i - 1000, 1000 - i
        nan_first[i], nan_last[i] = i <= 1024 and 0 / 0 or i % 7, i > 1024 and 0 / 0 or i % 7
      end
      local target, bad = gm.tensor({ 2090, 4 }, { dtype = "i64" }), gm.tensor({ 2090, 4 }, { dtype = "i64" })
      for _, dtype in ipairs { "f32", "f64" } do -- one rounding of the largest logit, and a few of the rest
        local x = gm.tensor({ rising, falling }, { dtype = dtype })
        agree { op = "cross_entropy", inputs = { x, target }, outputs = { true, true, true },
                within = { support.absolute(8, 1000), support.exact, support.terms(2100) } }
        local y = gm.tensor({ nan_first, nan_last }, { dtype = dtype })
        for _, backend in ipairs { "ref", unpack(support.backends) } do
          local out = core.run_op(backend, "cross_entropy", { y, bad }, { n = 3, true, true, true })
          for row = 1, 2 do
            local loss, sum = out[1][row]:item(), out[3][row]:item()
            assert.is_true(loss ~= loss and sum ~= sum, backend .. row)
          end
        end
      end
    end)
  end)

  -- Numbers of a quarter, so that x + shift is exact in f32: every difference is that of x, and so are all results.
  it("gives the same bits for logits that are all larger by as much", function()
    gm.scope(function()
      local numbers = {}
      for i = 1, 3 * 700 do numbers[i] = (i * i * 37 % 129) / 4 end
      local x = gm.tensor(numbers):reshape { 3, 700 }
      local target = gm.tensor({ 5, 699, 0 }, { dtype = "i64" })
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        for _, smoothing in ipairs { 0, 0.1 } do
          local attrs = { label_smoothing = smoothing }
          local function results(shift)
            local logits = x + shift
            local out = core.run_op(backend, "cross_entropy", { logits, target }, { n = 3, true, true, true }, attrs)
            local g = gm.full({ 3 }, 1)
            local dx = core.run_op(backend, "cross_entropy_grad", { logits, target, out[2], out[3], g },
              { n = 1, true }, attrs)[1]
            return { out[1]:totable(), out[3]:totable(), dx:totable() }
          end
          local want = results(0)
          for _, shift in ipairs { 1e3, -1e4, 1e6 } do assert.same(want, results(shift), backend) end
        end
      end
    end)
  end)

  it("refuses a target that is no class, and writes nothing", function()
    gm.scope(function()
      for _, value in ipairs { 3, -1, 2 ^ 40 } do
        local number = ("%d"):format(value):gsub("%-", "%%-")
        local x, target = input({ 4, 3 }, "f32"), gm.tensor({ 0, -100, value, 1 }, { dtype = "i64" })
        local v, message = support.given({ 4 }, "f32"), ".*target " .. number .. " of row 2"
        support.refuses("cross_entropy", { x, target }, { v, v, v }, {}, "cross_entropy" .. message)
        local row = input({ 4 }, "f32")
        support.refuses("cross_entropy_grad", { x, target, row, row, row }, { support.given({ 4, 3 }, "f32") }, {},
          "cross_entropy_grad" .. message)
      end
    end)
  end)
end)
