--- Products by our own kernels for Hopper (kernels/cuda/ops/gemm/wgmma.cu): against the plain loops, at sizes that are
-- no multiples of their tiles (128 by 192), with rows that have gaps, with all that they do beside the product, and
-- with sums in pieces. Which products are theirs by the rule: at the end.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local kernels = require "spec.kernels.support"

if emulation.lacks(pending) then return end

gm.scope(function() core.run_op("cuda", "fill", {}, { gm.zeros { 1 } }, { alpha = 0 }) end) -- opens the device
local rows, columns = 136, 200
local about = core.choices_about()
if not about:find("sm_90", 1, true) then
  pending("these kernels are for sm_90, this is " .. about)
  return
end
after_each(function() core.time_products "none" end)

-- A matrix; with_gaps: in a larger one, so that its rows start at multiples of 16 bytes and are not neighbours.
local function matrix(n, m, dtype, with_gaps, low, high)
  local t = kernels.input({ n, with_gaps and m + 24 or m }, dtype, nil, low, high)
  return with_gaps and t:narrow(2, 9, m) or t
end

local bounds = {}

local function agree(case, got, want, got_whole, want_whole, label)
  for i = 1, #case.outputs do
    local shape = case.outputs[i]
    if shape then
      kernels.compare(got[i], want[i], case.within[i], label)
      if want_whole[i] then
        local left = {}
        for k, w in ipairs { want_whole[i], got_whole[i] } do
          left[k] = w:clone()
          left[k]:narrow(2, 9, shape[2]):narrow(1, 2, shape[1]):fill_(0)
        end
        kernels.compare(left[2], left[1], kernels.exact, label .. ", outside of it")
      end
    end
  end
end

-- Runs the op on "cuda", by our kernels, and on ref, with results in larger matrices whose other elements must stay.
local function compare(case)
  gm.scope(function()
    local label = ("%s %s%s"):format(case.op, case.label, case.gaps and ", with gaps" or "")
    local function outputs()
      local list, whole = { n = #case.outputs }, {}
      for i, shape in ipairs(case.outputs) do
        if shape and #shape == 2 and case.gaps then
          whole[i] = gm.full({ shape[1] + 3, shape[2] + 16 }, 7, { dtype = case.dtype })
          list[i] = whole[i]:narrow(2, 9, shape[2]):narrow(1, 2, shape[1])
          if case.adds then list[i]:copy_(case.adds[i]) end
        elseif shape then
          list[i] = case.adds and case.adds[i]:clone() or true
        else
          list[i] = false
        end
      end
      return list, whole
    end
    local inputs = case.inputs
    inputs.n = inputs.n or #inputs
    local attrs = case.attrs or {}
    attrs.accumulate = case.adds and true or nil
    local want, want_whole = outputs()
    want = core.run_op("ref", case.op, inputs, want, attrs)
    local before = #core.choices()
    core.time_products "alone"
    core.run_op("cuda", case.op, inputs, outputs(), attrs)
    core.time_products "none"
    local choice, offered = core.choices()[before + 1], false
    for _, t in ipairs(choice.tried) do offered = offered or t.way == "wgmma" end
    assert.is_true(offered, label .. ": not offered")
    for pieces = 1, case.pieces or 1 do
      core.choices_take(choice.kind, "wgmma", ("%016x"):format(pieces), 0)
      local got, got_whole = outputs()
      got = core.run_op("cuda", case.op, inputs, got, attrs)
      agree(case, got, want, got_whole, want_whole, label .. ", pieces: " .. pieces)
    end
  end)
end

function bounds.product(depth, by) -- sums of `depth` products of numbers up to 1, times `by`
  return kernels.terms(depth, (by or 1) * depth)
end

-- One stage and a part of it; more than once around the four stages. Sanitizers look at the code that launches kernels.
local depths = { bf16 = { 72, 272 }, f16 = { 72 } }
if emulation.is_sanitized() then depths = { bf16 = { 136 }, f16 = {} } end

for _, dtype in ipairs { "bf16", "f16" } do
  for _, depth in ipairs(depths[dtype]) do
    it(("dense layers of %d inputs, %s"):format(depth, dtype), function()
      for i, f in ipairs { "none", "relu", "gelu_tanh", "relu", "gelu_tanh" } do
        local pre, gaps = i > 3, i % 2 == 0
        local x, w = matrix(rows, depth, dtype, gaps), matrix(columns, depth, dtype, gaps)
        local b = i ~= 2 and kernels.input({ columns }, dtype) or nil
        compare { op = "linear", label = f .. (pre and " with its argument" or "") .. " " .. depth, dtype = dtype,
          inputs = { n = 3, x, w, b }, attrs = { ["function"] = f }, gaps = gaps,
          outputs = { { rows, columns }, pre and { rows, columns } },
          within = { bounds.product(depth, 2), bounds.product(depth) } }
      end
    end)

    it(("gradients of inputs along %d, %s"):format(depth, dtype), function()
      for i, f in ipairs { "none", "relu", "gelu_tanh" } do
        local gaps = i ~= 2
        local g, w = matrix(rows, depth, dtype, gaps), matrix(depth, columns, dtype, gaps)
        local pre = f ~= "none" and matrix(rows, columns, dtype, gaps, -6, 6) or nil
        compare { op = pre and "linear_input_grad" or "matmul", label = f .. " " .. depth, dtype = dtype, gaps = gaps,
          inputs = { g, w, pre }, attrs = pre and { ["function"] = f }, outputs = { { rows, columns } },
          -- the slope of gelu_tanh has lost digits where tanh is near 1 (contraction_spec.lua)
          within = { bounds.product(depth, f == "gelu_tanh" and 8 or 2) } }
      end
    end)

    it(("gradients of weights along %d, %s"):format(depth, dtype), function()
      for i = 1, 3 do
        local gaps, sums, adds = i == 2, i ~= 2, nil
        local g, x = matrix(depth, rows, dtype, gaps), matrix(depth, columns, dtype, gaps)
        if i == 3 then adds = { kernels.input({ rows, columns }, dtype), kernels.input({ rows }, dtype) } end
        compare { op = "linear_weight_grad", label = (sums and "with sums " or "") .. depth, dtype = dtype, gaps = gaps,
          inputs = { g, x }, outputs = { { rows, columns }, sums and { rows } }, adds = adds,
          pieces = depth > 128 and 3 or 1,
          within = { bounds.product(depth), bounds.product(depth) } }
      end
    end)
  end
end

it("odd numbers of columns are left to others: parts are stored, and biases read, in pairs", function()
  gm.scope(function()
    local function padded(n, m) return kernels.input({ n, 208 }, "bf16"):narrow(2, 1, m) end
    local depth, odd = 72, columns - 1
    local g, x, w, b = padded(depth, rows), padded(depth, odd), padded(odd, depth), kernels.input({ odd }, "bf16")
    for _, case in ipairs {
      { "linear_weight_grad", { n = 2, g, x }, { rows, odd } },
      { "linear", { n = 3, padded(rows, depth), w, b }, { rows, odd } },
    } do
      local op, inputs, shape = unpack(case)
      local function run(backend)
        return core.run_op(backend, op, inputs, { n = 2, padded(unpack(shape)):fill_(0), false }, {})[1]
      end
      local before = #core.choices()
      core.time_products "alone"
      kernels.compare(run "cuda", run "ref", bounds.product(depth, 2), op)
      core.time_products "none"
      local choice = core.choices()[before + 1]
      for _, t in ipairs(choice and choice.tried or {}) do assert.is_true(t.way ~= "wgmma", op) end
    end
  end)
end)

it("NaN and infinities pass, and stay where they belong", function()
  gm.scope(function()
    local x, w = matrix(rows, 72, "bf16"), matrix(columns, 72, "bf16")
    x:narrow(1, 3, 1):narrow(2, 5, 1):fill_(0 / 0)
    w:narrow(1, 8, 1):narrow(2, 1, 1):fill_(math.huge)
    local attrs = { ["function"] = "gelu_tanh" }
    local want = core.run_op("ref", "linear", { n = 3, x, w }, { true, false }, attrs)[1]
    local got = core.run_op("cuda", "linear", { n = 3, x, w }, { true, false }, attrs)[1]
    kernels.compare(got, want, bounds.product(72, 2), "linear with NaN")
  end)
end)

-- Who makes a product without a choice: launches of kernels, products of cuBLASLt.
local function made(op, inputs, outputs, attrs)
  return gm.scope(function()
    local before = emulation.counts()
    inputs.n = inputs.n or #inputs
    core.run_op("cuda", op, inputs, outputs, attrs or {})
    local after = emulation.counts()
    return { after.launches - before.launches, after.products - before.products }
  end)
end

-- The emulated GPU has two multiprocessors.
if emulation.is_on() then
  it("has by rule what does more than multiply, and keeps all multiprocessors busy", function()
    gm.scope(function()
      local x, w = matrix(256, 80, "bf16"), matrix(192, 80, "bf16")
      local wide = matrix(80, 192, "bf16")
      local gelu = { ["function"] = "gelu_tanh" }
      assert.same({ 1, 0 }, made("linear", { n = 3, x, w }, { true, true }, gelu))
      assert.same({ 0, 1 }, made("linear", { n = 3, x, w }, { true, false }))
      assert.same({ 1, 0 }, made("linear_input_grad", { x, wide, matrix(256, 192, "bf16") }, { true }, gelu))
      assert.same({ 2, 0 }, made("linear_weight_grad", { matrix(80, 256, "bf16"), wide }, { true, true }))
      assert.same({ 0, 1 }, made("linear_weight_grad", { matrix(80, 256, "bf16"), wide }, { true, false }))
      assert.same({ 0, 1 }, made("linear", { n = 3, matrix(128, 80, "bf16"), w }, { true, true }, gelu)) -- one tile
      -- rows that are no multiples of 16 bytes
      local odd = { n = 3, matrix(256, 81, "bf16"), matrix(192, 81, "bf16") }
      assert.equal(1, made("linear", odd, { true, true }, gelu)[2])
    end)
  end)
end
