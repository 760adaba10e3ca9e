-- Convolutions of bf16 where the processor multiplies it (kernels/cpu/convolution_pairs.c): all three ops, in random
-- settings of 1 to 3 dimensions, with numbers beside the tensors that are not theirs. Whole numbers up to 4: products
-- and sums of 5,000 of them are exact in f32, in any order, and are rounded once, as by the plain loops. Other tables
-- pass the same examples. spec/kernels/convolution_spec.lua has other numbers, and what else convolutions do.
local bf16 = require "spec.kernels.bf16_numbers"
local convolutions = require "spec.kernels.convolutions"
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local draw, with, layouts = bf16.draws(), support.with, { "contiguous", "window", "turned" }

-- A setting of spec.kernels.convolutions.
local function setting(case)
  local space, groups = case % 3 + 1, case % 5 == 0 and 2 or 1
  local c, o, n = draw(space == 1 and 90 or 20) + 1, draw(30) + (case % 7 == 0 and 1 or 4), draw(3) + 1
  local s = { attrs = { stride = {}, dilation = {}, pad_low = {}, pad_high = {}, groups = groups },
              kernel = {}, x = { n, c * groups }, y = { n, o * groups }, w = { o * groups, c } }
  for d = 1, space do
    local kernel, stride, dilation = draw(space == 1 and 9 or 4) + 1, draw(3) + 1, draw(2) + 1
    local low, high = draw(3), draw(3)
    convolutions.add(s, d, kernel, stride, dilation, low, high, draw(space == 1 and 60 or space == 2 and 20 or 5))
  end
  return s
end

-- make() -> outputs, which both runs get anew.
local function check(backend, op, inputs, make, attrs, label)
  local got = core.run_op(backend, op, inputs, make(), attrs)
  local want = core.run_op("ref", op, inputs, make(), attrs)
  for i = 1, 2 do
    if want[i] then support.compare(got[i], want[i], support.exact, ("%s, %s, output %d"):format(op, label, i)) end
  end
end

local function whole(shape, layout) return bf16.numbers(shape, layout, -4, 4) end

local function try(backend, s, case)
  local layout, label = layouts[case % 3 + 1], ("x %s w %s, case %d"):format(support.show(s.x), support.show(s.w), case)
  local x, y, w = whole(s.x, layout), whole(s.y, layout), whole(s.w, layout)
  local b, made = case % 2 == 0 and whole({ s.w[1] }, "contiguous") or nil, whole({ s.x[2] }, "contiguous")
  local f = case % 4 == 0 and "relu" or "none"
  local function two() return { n = 2, true, f ~= "none" } end
  check(backend, "convolution", { n = 3, x, w, b }, two, with(s.attrs, { ["function"] = f }), label)
  check(backend, "transposed_convolution", { n = 3, y, w, b and made }, two,
    with(s.attrs, { ["function"] = f, output_padding = convolutions.left_over(s) }), label)
  local adds = case % 3 == 0
  local dw, db = whole(s.w, layout), whole({ s.w[1] }, "contiguous")
  local function gradients()
    return adds and { n = 2, support.copy(dw), support.copy(db) } or { n = 2, true, true }
  end
  check(backend, "convolution_weight_grad", { n = 2, y, x }, gradients,
    with(s.attrs, { kernel = s.kernel, accumulate = adds }), label)
end

-- The instruction takes numbers below 2^-126 as zeros (gemm_pairs.c); f32 does not.
describe("convolutions of bf16", function()
  it("are computed as they are where the processor multiplies bf16", function()
    if not core.has_backend "cpu-avx512bf16" then return pending "this machine or this build lacks cpu-avx512bf16" end
    local function full(shape, value) return gm.full(shape, value, { dtype = "bf16" }) end
    local small, large, results = full({ 1, 4, 6 }, 2 ^ -130), full({ 4, 4, 1 }, 2 ^ 100), full({ 1, 4, 6 }, 2 ^ 100)
    local attrs = { stride = { 1 }, dilation = { 1 }, pad_low = { 0 }, pad_high = { 0 }, groups = 1 }
    local inputs = { convolution = { n = 3, small, large }, transposed_convolution = { n = 3, small, large },
                     convolution_weight_grad = { n = 2, results, small } }
    for _, op in ipairs { "convolution", "transposed_convolution", "convolution_weight_grad" } do
      attrs.kernel = op:find "grad" and { 1 } or nil
      for _, backend in ipairs { "cpu-avx512bf16", "cpu-amx-emulated" } do
        assert.equal(0, core.run_op(backend, op, inputs[op], { n = 2, true }, attrs)[1]:data()[0], backend .. " " .. op)
      end
    end
  end)

  it("are computed in tiles of AMX also of 3 x 3, where other tables go Winograd's way in f32", function()
    if not core.has_backend "cpu-avx512bf16" then return pending "this machine or this build lacks cpu-avx512bf16" end
    local function full(shape, value) return gm.full(shape, value, { dtype = "bf16" }) end
    local x, w = full({ 1, 64, 16, 16 }, 2 ^ -130), full({ 64, 64, 3, 3 }, 2 ^ 100)
    local attrs = { stride = { 1, 1 }, dilation = { 1, 1 }, pad_low = { 1, 1 }, pad_high = { 1, 1 }, groups = 1 }
    local function first(backend, op)
      return core.run_op(backend, op, { n = 3, x, w }, { n = 2, true }, attrs)[1]:data()[0]
    end
    for _, op in ipairs { "convolution", "transposed_convolution" } do
      assert.equal(0, first("cpu-amx-emulated", op))
      assert.is_true(first("cpu-avx512bf16", op) ~= 0)
    end
  end)
end)

for _, backend in ipairs(bf16.tables) do describe("convolutions of bf16 by " .. backend .. ",", function()
  it("of whole numbers are exact, in random settings", function()
    for case = 1, 60 do
      gm.scope(function() try(backend, setting(case), case) end)
    end
  end)

  -- More pairs than one depth of a product holds, an odd number of them, panels across images and rows.
  it("of whole numbers are exact, in blocks", function()
    for case, s in ipairs {
      { x = { 3, 115, 9, 11 }, w = { 37, 115, 3, 3 }, y = { 3, 37, 4, 5 }, stride = { 2, 2 }, kernel = { 3, 3 } },
      { x = { 1, 67, 40 }, w = { 5, 67, 17 }, y = { 1, 5, 24 }, stride = { 1 }, kernel = { 17 } },
      -- more numbers along k than tiles of AMX keep packed: of one unit of rows, and of many units of columns
      { x = { 2, 1830, 4, 4 }, w = { 5, 1830, 3, 3 }, y = { 2, 5, 2, 2 }, stride = { 1, 1 }, kernel = { 3, 3 } },
      { x = { 1, 150, 22, 22 }, w = { 130, 150, 3, 3 }, y = { 1, 130, 20, 20 }, stride = { 1, 1 }, kernel = { 3, 3 } },
      { x = { 2, 40, 21, 17 }, w = { 70, 40, 1, 1 }, y = { 2, 70, 21, 17 }, stride = { 1, 1 }, kernel = { 1, 1 } },
    } do
      local ones, none = {}, {}
      for d = 1, #s.stride do ones[d], none[d] = 1, 0 end
      s.attrs = { stride = s.stride, dilation = ones, pad_low = none, pad_high = none, groups = 1 }
      gm.scope(function() try(backend, s, 2 * case) end)
    end
  end)

  it("let NaN and infinity through to the results that read them, and to no other", function()
    for _, value in ipairs { 0 / 0, 1 / 0 } do
      local x, w = gm.ones({ 2, 3, 19 }, { dtype = "bf16" }), gm.ones({ 5, 3, 4 }, { dtype = "bf16" })
      core.run_op("ref", "fill", {}, { n = 1, x:narrow(1, 1, 1):narrow(2, 2, 1):narrow(3, 8, 1) }, { value = value })
      local attrs = { stride = { 2 }, dilation = { 1 }, pad_low = { 0 }, pad_high = { 0 }, groups = 1 }
      check(backend, "convolution", { n = 3, x, w }, function() return { n = 2, true } end, attrs, tostring(value))
    end
  end)
end) end
