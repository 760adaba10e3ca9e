-- Products of groups of rows, each with a matrix of its own: every table against ref, ref against a product for each
-- group, and the bits of the CPU against those of `linear` and `matmul`.
--
-- A sum of n terms has the bound of support.terms(n), with the magnitude that it has without cancellation, which the
-- reference computes from magnitudes.
-- sanitizers: only "3 groups of" "1 groups of" "2 groups of" "70, f16 c" "70, bf16 t" "70, f32 w" "136, f32 c" "refuse"
--   "at one, bf16" "on cpu%-", the others run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local core = require "ganymede.core"
local same_bits = require "spec.kernels.thread_bits"
local support = require "spec.kernels.support"

local agree, input = support.agree, support.input

-- Rows of each group; rows of no group before and behind them; the inner size and the columns. Groups of none, of few
-- rows (gemm_thin.c), of more than a tile; more groups than a warp has lanes; sizes with and without whole packs of 16
-- bytes; nothing at all.
local cases = {
  { groups = { 1 }, head = 0, tail = 0, k = 1, n = 1 },
  { groups = { 3, 0, 2 }, head = 0, tail = 0, k = 5, n = 7 },
  { groups = { 0, 0 }, head = 2, tail = 3, k = 4, n = 3 },
  { groups = { 1, 20, 16, 17, 0, 130 }, head = 0, tail = 4, k = 33, n = 70 },
  { groups = { 7, 0, 9 }, head = 3, tail = 0, k = 300, n = 24 },
  { groups = { 130, 0, 7, 128, 1 }, head = 0, tail = 5, k = 72, n = 136 },
  { groups = { 2, 3 }, head = 1, tail = 1, k = 0, n = 4 },
  { groups = { 2, 3 }, head = 0, tail = 0, k = 4, n = 0 },
  { groups = { 0 }, head = 0, tail = 0, k = 4, n = 8 },
}
local many = { groups = {}, head = 0, tail = 2, k = 8, n = 16 }
for e = 1, 70 do many.groups[e] = e * e % 5 end
cases[#cases + 1] = many

local function bounds_of(case)
  local list, at = { case.head }, case.head
  for e, rows in ipairs(case.groups) do
    at = at + rows
    list[e + 1] = at
  end
  return list, at + case.tail
end

local function describe_case(case)
  return ("%d groups of %s rows, %d x %d"):format(#case.groups, #case.groups < 9 and table.concat(case.groups, ", ")
    or "0 to 4", case.k, case.n)
end

local function plus_one(t) return support.reference("affine", { t }, { alpha = 1, beta = 1 }) end

describe("products of groups agree with ref:", function()
  for _, case in ipairs(cases) do
    local list, rows = bounds_of(case)
    local most = 0
    for _, n in ipairs(case.groups) do most = math.max(most, n) end
    for _, dtype in ipairs(support.dtypes) do
      for i, layout in ipairs(support.layouts) do
        local small = rows * case.k * case.n < 2 ^ 14
        if small or i == 1 or dtype == "f32" and layout == "window" or dtype == "bf16" and layout == "turned" then
          it(("%s, %s %s"):format(describe_case(case), dtype, layout), function()
            gm.scope(function()
              local groups, k, n = #case.groups, case.k, case.n
              local bounds = gm.tensor(list, { dtype = "i64" })
              local x, b = input({ rows, k }, dtype, layout), input({ groups, n }, dtype, layout)
              for _, tb in ipairs { false, true } do
                local w = input(tb and { groups, n, k } or { groups, k, n }, dtype, layout)
                for _, bias in ipairs { b, false } do
                  local sizes = { support.magnitude(x), support.magnitude(w), bounds, bias and support.magnitude(b),
                                  n = 4 }
                  local of = support.reference("grouped_matmul", sizes, { transpose_b = tb })
                  agree { op = "grouped_matmul", inputs = { x, w, bounds, bias or nil, n = 4 }, outputs = { true },
                          attrs = { transpose_b = tb }, label = tb and "transposed" or "plain",
                          within = support.terms(k, of) }
                end
                local sizes = { support.magnitude(x), support.magnitude(w), bounds, n = 4 }
                local of = plus_one(support.reference("grouped_matmul", sizes, { transpose_b = tb }))
                agree { op = "grouped_matmul", inputs = { x, w, bounds, n = 4 },
                        outputs = { support.given({ rows, n }, dtype, layout ~= "expanded" and layout or nil) },
                        attrs = { transpose_b = tb, accumulate = true }, label = "added",
                        within = support.terms(k + 1, of) }
              end
              local g, y = input({ rows, n }, dtype, layout), input({ rows, k }, dtype, layout)
              local dw, db = support.references("grouped_weight_grad",
                { support.magnitude(g), support.magnitude(y), bounds }, {}, 2)
              local within = { support.terms(most, dw), support.terms(most, db) }
              agree { op = "grouped_weight_grad", inputs = { g, y, bounds }, outputs = { true, true }, within = within }
              agree { op = "grouped_weight_grad", inputs = { g, y, bounds }, outputs = { false, true, n = 2 },
                      within = within }
              local given = layout ~= "expanded" and layout or nil
              within = { support.terms(most + 1, plus_one(dw)), support.terms(most + 1, plus_one(db)) }
              agree { op = "grouped_weight_grad", inputs = { g, y, bounds }, attrs = { accumulate = true },
                      outputs = { support.given({ groups, n, k }, dtype, given),
                                  support.given({ groups, n }, dtype, given) }, within = within }
            end)
          end)
        end
      end
    end
  end

  it("rows that start between multiples of 16 bytes, the first at one, bf16", function()
    gm.scope(function()
      local function apart(n, m) return input({ n, m + 4 }, "bf16"):narrow(2, 1, m) end
      local bounds, k, n = gm.tensor({ 1, 10, 16 }, { dtype = "i64" }), 16, 24
      local x, w, g = apart(18, k), input({ 2, n, k }, "bf16"), apart(18, n)
      local of = support.reference("grouped_matmul", { support.magnitude(x), support.magnitude(w), bounds, n = 4 },
        { transpose_b = true })
      agree { op = "grouped_matmul", inputs = { x, w, bounds, n = 4 }, outputs = { true },
              attrs = { transpose_b = true }, within = support.terms(k, of) }
      local dw, db = support.references("grouped_weight_grad", { support.magnitude(g), support.magnitude(x), bounds },
        {}, 2)
      agree { op = "grouped_weight_grad", inputs = { g, x, bounds }, outputs = { true, true },
              within = { support.terms(9, dw), support.terms(9, db) } }
    end)
  end)

  it("refuse what does not fit", function()
    gm.scope(function()
      local x, w = input({ 6, 4 }, "f32"), input({ 2, 4, 5 }, "f32")
      local y = { support.given({ 6, 5 }, "f32") }
      local dw = { support.given({ 2, 5, 4 }, "f32"), support.given({ 2, 5 }, "f32") }
      local function bounds(...) return gm.tensor({ ... }, { dtype = "i64" }) end
      local adds = { accumulate = true }
      support.refuses("grouped_matmul", { x, w, bounds(0, 3), n = 4 }, y, adds, "bounds is %(2%), should be %(3%)")
      support.refuses("grouped_matmul", { x, input({ 2, 5, 4 }, "f32"), bounds(0, 3, 6), n = 4 }, y, adds,
        "w is %(2, 5, 4%), should be %(groups, k, n%) for x %(6, 4%)")
      support.refuses("grouped_matmul", { x, w, bounds(0, 3, 6), input({ 2, 5 }, "f32") }, y, adds, "leave one out")
      support.refuses("grouped_weight_grad", { input({ 6, 5 }, "f32"), input({ 5, 4 }, "f32"), bounds(0, 3, 6) }, dw,
        adds, "x is %(5, 4%), should be a matrix of 6 rows")
      for _, wrong in ipairs { { 0, 7, 6 }, { 0, 4, 3 }, { -1, 2, 6 }, { 0, 2, 7 } } do
        local of, says = bounds(unpack(wrong)), "bound .* at position %d .* the one before it"
        support.refuses("grouped_matmul", { x, w, of, n = 4 }, y, adds, says)
        support.refuses("grouped_weight_grad", { input({ 6, 5 }, "f32"), x, of }, dw, adds, says)
      end
    end)
  end)
end)

describe("products of groups", function()
  it("in ref are a product for each group, and zeros elsewhere", function()
    gm.scope(function()
      local x = gm.tensor({ 1, 2, 3, 4, 5, 6, 7, 8 }, { dtype = "f64", shape = { 4, 2 } })
      local w = gm.tensor({ 1, 0, 0, 1, 2, 1, 1, 2 }, { dtype = "f64", shape = { 2, 2, 2 } })
      local b = gm.tensor({ 0, 0, 10, 20 }, { dtype = "f64", shape = { 2, 2 } })
      local function of(...)
        return core.run_op("ref", "grouped_matmul", { x, w, gm.tensor({ ... }, { dtype = "i64" }), b }, { true },
          {})[1]:totable()
      end
      assert.same({ { 1, 2 }, { 20, 31 }, { 26, 37 }, { 0, 0 } }, of(0, 1, 3))
      assert.same({ { 0, 0 }, { 20, 31 }, { 0, 0 }, { 0, 0 } }, of(1, 1, 2))
      local dw = core.run_op("ref", "grouped_weight_grad", { x, x, gm.tensor({ 0, 0, 2 }, { dtype = "i64" }) },
        { true, true }, {})
      assert.same({ { { 0, 0 }, { 0, 0 } }, { { 10, 14 }, { 14, 20 } } }, dw[1]:totable())
      assert.same({ { 0, 0 }, { 4, 6 } }, dw[2]:totable())
    end)
  end)

  -- A CPU's sums have one order for each inner size, however the rows are grouped and the work is shared.
  for _, backend in ipairs(support.backends) do
    if backend ~= "cuda" then
      it("have the bits of a product for each group on " .. backend, function()
        for _, dtype in ipairs(support.dtypes) do
          for _, case in ipairs { cases[2], cases[4], cases[6] } do
            gm.scope(function()
              local list, rows = bounds_of(case)
              local bounds, same = gm.tensor(list, { dtype = "i64" }), support.exact
              local x, g = input({ rows, case.k }, dtype), input({ rows, case.n }, dtype)
              local w, b = input({ #case.groups, case.n, case.k }, dtype), input({ #case.groups, case.n }, dtype)
              local function run(op, inputs, outputs, attrs) return core.run_op(backend, op, inputs, outputs, attrs) end
              local y = run("grouped_matmul", { x, w, bounds, b }, { true }, { transpose_b = true })[1]
              local dx = run("grouped_matmul", { g, w, bounds, n = 4 }, { true }, {})[1]
              local dw = run("grouped_weight_grad", { g, x, bounds }, { true, false, n = 2 }, {})[1]
              for e, n in ipairs(case.groups) do
                local function of(t) return t:narrow(1, list[e] + 1, n) end
                if n > 0 then
                  local wanted = run("linear", { of(x), w:select(1, e), b:select(1, e) }, { true, false, n = 2 }, {})[1]
                  support.compare(of(y), wanted, same, "linear, group " .. e)
                  wanted = run("matmul", { of(g), w:select(1, e) }, { true }, {})[1]
                  support.compare(of(dx), wanted, same, "gradient of the input, group " .. e)
                  wanted = run("matmul", { of(g), of(x) }, { true }, { transpose_a = true })[1]
                  support.compare(dw:select(1, e), wanted, same, "gradient of the weight, group " .. e)
                end
              end
            end)
          end
        end
      end)
    end
  end

  it("have the same bits on 1, 2 and 3 threads", function()
    same_bits [[
for _, dtype in ipairs { "f32", "f64", "bf16" } do
  local function make(seed, ...) return gm.uniform({ ... }, { low = -1, high = 1, seed = seed, dtype = dtype }) end
  local bounds = gm.tensor({ 0, 400, 400, 417, 425, 500 }, { dtype = "i64" })
  local x, g, w, b = make(1, 510, 200), make(2, 510, 310), make(3, 5, 310, 200), make(4, 5, 310)
  local y = core.run_op("cpu", "grouped_matmul", { x, w, bounds, b }, { true }, { transpose_b = true })
  local dx = core.run_op("cpu", "grouped_matmul", { g, w, bounds, n = 4 }, { true }, {})
  local d = core.run_op("cpu", "grouped_weight_grad", { g, x, bounds }, { true, true }, {})
  for _, t in ipairs { y[1], dx[1], d[1], d[2] } do add(t) end
end
]]
  end)
end)
