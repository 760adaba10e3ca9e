--- The elementwise ops, copies, random ops and reductions of the CUDA backend against the reference, at shapes and
-- strides that take each of their paths: items of 16 bytes and what is left over, broadcasts inside of items, planes
-- that are turned, sums in two passes. spec/kernels has the awkward small ones.
local emulation = require "spec.cuda.emulation"
if emulation.lacks(pending) then return end

local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local floats = { "f32", "f64", "bf16", "f16" }

-- Whole numbers: their sums are exact in every order, as long as they stay below 2^24 (bf16: 2^8).
local function whole(shape, dtype, most, layout)
  return support.integers(shape, "i32", -most, most, layout):to(dtype)
end

describe("paths of CUDA kernels:", function()
  local before
  setup(function()
    before = support.backends
    support.backends = { "cuda" }
  end)
  teardown(function() support.backends = before end)

  local function agrees(op, inputs, attrs, within, outputs)
    support.agree { op = op, inputs = inputs, outputs = outputs or { true }, attrs = attrs,
                    within = within or support.exact }
  end

  it("copies: planes turned, rows in larger cells, rows shown again", function()
    for _, dtype in ipairs { "u8", "bf16", "f32", "f64" } do
      gm.scope(function()
        local x = support.integers({ 2, 70, 3, 45 }, "i32", 0, 200):to(dtype)
        for _, order in ipairs { { 1, 4, 3, 2 }, { 4, 3, 2, 1 }, { 3, 1, 2, 4 }, { 2, 1, 4, 3 } } do
          agrees("copy", { x:permute(order) }, { dtype = dtype })
        end
        local rows = support.integers({ 12, 256 }, "i32", 0, 200):to(dtype)
        for _, cut in ipairs { { 17, 64 }, { 33, 48 }, { 2, 64 }, { 17, 63 } } do
          agrees("copy", { rows:narrow(2, cut[1], cut[2]) }, { dtype = dtype })
        end
        agrees("copy", { rows:narrow(1, 1, 1):expand { 9, 256 } }, { dtype = dtype })
      end)
    end
  end)

  it("casts: rows of items, and a tail", function()
    for _, from in ipairs(floats) do
      for _, to in ipairs(floats) do
        gm.scope(function()
          agrees("copy", { support.input({ 4099 }, from, "contiguous", -300, 300) }, { dtype = to })
          local x = support.input({ 6, 96 }, from, "contiguous", -300, 300)
          agrees("copy", { x:narrow(2, 17, 64) }, { dtype = to })
        end)
      end
    end
  end)

  it("broadcasts inside of items", function()
    for _, dtype in ipairs(floats) do
      gm.scope(function()
        local a = whole({ 6, 5, 64 }, dtype, 9)
        for _, shape in ipairs { { 64 }, { 5, 1 }, { 6, 1, 64 }, { 6, 5, 1 }, {}, { 6, 5, 64 } } do
          local b = whole(shape, dtype, 9)
          agrees("binary", { a, b }, { ["function"] = "sub" })
          agrees("compare", { b, a }, { ["function"] = "lt" })
          agrees("where", { support.integers(shape, "u8", 0, 1), a, b })
          agrees("where", { support.integers({ 6, 5, 64 }, "u8", 0, 1), b, a })
        end
      end)
    end
  end)

  it("items, more than a turn of the grid has, and the tail", function()
    for _, dtype in ipairs(floats) do
      gm.scope(function()
        local n = 70001
        local x, g = whole({ n }, dtype, 9), whole({ n }, dtype, 9)
        agrees("unary", { x }, { ["function"] = "square" })
        agrees("unary_grad", { x, g }, { ["function"] = "relu" })
        agrees("binary", { x, g }, { ["function"] = "mul" })
        agrees("affine", { x }, { alpha = 2, beta = -3 })
        agrees("axpy", { x }, { alpha = 2 }, support.absolute(4, 3), { support.given({ n }, dtype) })
        agrees("fill", {}, { value = 1.7 }, nil, { support.given({ n }, dtype) })
      end)
    end
  end)

  it("dropout: items at every place of a philox block", function()
    for _, dtype in ipairs(floats) do
      for _, offset in ipairs { 0, 1, 3, 4, 8 } do
        gm.scope(function()
          agrees("dropout", { whole({ 7, 128 }, dtype, 9) },
            { p = 0.1, stream = { key = 12345, step = 6 }, box = { shape = { 9, 200 }, offset = { 1, offset } } })
        end)
      end
    end
  end)

  it("sums: one pass and two, across and down", function()
    for _, dtype in ipairs(floats) do
      local most = dtype == "bf16" and 0 or 9 -- of bf16 a sum of ones, which stays representable
      gm.scope(function()
        for _, case in ipairs {
          { { 70003 }, 0 }, { { 70003 }, 1 }, { { 3, 40000 }, 2 }, { { 30000, 5 }, 1 }, { { 4000, 3, 8 }, 5 },
          { { 3, 4000, 8 }, 2 }, { { 40, 1500 }, 2 }, { { 2, 64, 2, 512 }, 10 }, { { 500, 3 }, 2 },
          { { 2100, 272 }, 1 }, { { 5, 3, 7, 16 }, 5 },
        } do
          local x = most > 0 and whole(case[1], dtype, most) or gm.full(case[1], 1, { dtype = dtype })
          agrees("sum", { x }, { dims = case[2] }, support.relative(1))
        end
      end)
    end
  end)

  it("extremes of long lines, across and down", function()
    for _, dtype in ipairs(floats) do
      gm.scope(function()
        for _, shape in ipairs { { 3, 5000 }, { 5000, 3 }, { 50, 300 }, { 170, 272 }, { 3, 5008 } } do
          local x = whole(shape, dtype, 100)
          for dim = 0, 1 do
            agrees("max", { x }, { dim = dim }, nil, { true, true })
            agrees("min", { x }, { dim = dim }, nil, { true, true })
            agrees("argmax", { x }, { dim = dim })
          end
        end
      end)
    end
  end)

  it("top_k by a warp, a block, and the largest block", function()
    gm.scope(function()
      for _, case in ipairs { { { 5, 100 }, 100 }, { { 2, 700 }, 70 } } do
        agrees("top_k", { whole(case[1], "f32", 50) }, { k = case[2] }, nil, { true, true })
      end
      local ramp = gm.uniform({ 20000 }, { low = 0, high = 1, dtype = "f32", seed = 3 })
      local out = core.run_op("cuda", "top_k", { ramp }, { true, true }, { k = 3 })
      local first = core.run_op("ref", "argmax", { ramp }, { true }, { dim = 0 })[1]
      local v, i = out[1]:totable(), out[2]:totable()
      assert.equal(first:totable(), i[1])
      assert.is_true(v[1] >= v[2] and v[2] >= v[3])
      for k = 1, 3 do assert.equal(ramp:totable()[i[k] + 1], v[k]) end
    end)
  end)

  it("scatter of many lines, and an index outside: told with its place", function()
    gm.scope(function()
      local index = support.integers({ 5000 }, "i64", 0, 6)
      agrees("scatter", { index, whole({ 5000 }, "f32", 9) }, { dim = 1 }, nil, { support.given({ 5000, 7 }, "f32") })
      local bad = gm.tensor({ 0, 6, 7, 1 }, { dtype = "i64" })
      local ok, message = pcall(core.run_op, "cuda", "scatter", { bad, whole({ 4 }, "f32", 9) },
        { (support.given({ 4, 7 }, "f32")()) }, { dim = 1 })
      assert.is_false(ok)
      assert.is_truthy(tostring(message):find("scatter: index 7 at position 2", 1, true), message)
      agrees("fill", {}, { value = 2 }, nil, { support.given({ 3 }, "f32") }) -- and the device goes on
    end)
  end)

  it("one launch an op; a copy without gaps is the driver's", function()
    if not emulation.is_on() then return end
    gm.scope(function()
      local function made(op, inputs, attrs, outputs)
        local first = emulation.counts()
        core.run_op("cuda", op, inputs, outputs or { true }, attrs)
        local last = emulation.counts()
        return last.launches - first.launches, last.on_device - first.on_device
      end
      local x = whole({ 64, 128 }, "bf16", 9)
      assert.equal(1, (made("unary", { x }, { ["function"] = "gelu" })))
      assert.equal(1, (made("binary", { x, x }, { ["function"] = "add" })))
      assert.equal(1, (made("dropout", { x }, { p = 0.5, stream = { key = 1, step = 1 } })))
      assert.equal(1, (made("copy", { x:permute { 2, 1 } }, { dtype = "bf16" })))
      assert.equal(1, (made("sum", { x }, { dims = 2 })))
      assert.same({ 0, 1 }, { made("copy", { x }, { dtype = "bf16" }) })
    end)
  end)
end)
