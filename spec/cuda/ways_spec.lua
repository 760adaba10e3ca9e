--- The ways to make a matrix product on CUDA (kernels/cuda/products): each way that is offered is right, trials write
-- nothing that the product does not, and choices are refused where they cannot be followed.
--
-- The truth is ref.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local kernels = require "spec.kernels.support"

if emulation.lacks(pending) then return end

gm.scope(function() core.run_op("cuda", "fill", {}, { gm.zeros { 1 } }, { alpha = 0 }) end) -- opens the device
after_each(function() core.time_products "none" end)

-- Calls fn, which must raise an error with this text.
local function refused(part, fn)
  local ok, err = pcall(fn)
  assert.is_false(ok)
  assert.is_truthy(tostring(err):find(part, 1, true), tostring(err))
end

local input = kernels.input

-- A function that runs the case on `backend` and returns its outputs.
local function runner(case)
  return function(backend)
    local outputs = { n = #case.outputs }
    for i, out in ipairs(case.outputs) do outputs[i] = type(out) == "function" and (out()) or out end
    return core.run_op(backend, case.op, case.inputs, outputs, case.attrs or {})
  end
end

-- What is added to y may be rounded to 16 bits before: a GPU's cuBLASLt has a way that does so.
local function agree(case, got, want, label)
  local within = kernels.terms(case.terms, 4 * case.terms)
  local rounded = case.attrs and case.attrs.accumulate and kernels.wide(case.dtype) ~= case.dtype
  if rounded then within.k = within.k + kernels.epsilon[case.dtype] / kernels.epsilon.f32 end
  for i = 1, #case.outputs do
    if want[i] then kernels.compare(got[i], want[i], within, label) end
  end
end

-- Runs the op in each way: while kinds are timed, as the fastest way does it, and by `ways`, which must be offered.
local function each_way(case, ways)
  gm.scope(function()
    local run = runner(case)
    case.inputs.n = case.inputs.n or #case.inputs
    local want, before = run "ref", #core.choices()
    core.time_products "alone"
    agree(case, run "cuda", want, case.op .. ", timed")
    core.time_products "none"
    local choice = core.choices()[before + 1]
    local tried = {}
    for _, t in ipairs(choice and choice.tried or {}) do tried[t.way] = true end
    agree(case, run "cuda", want, case.op .. ", the fastest")
    for _, way in ipairs(ways) do
      assert.is_true(tried[way], ("%s is not offered for %s"):format(way, choice and choice.kind or "this"))
      core.choices_take(choice.kind, way, "", 0)
      agree(case, run "cuda", want, case.op .. ", " .. way)
    end
  end)
end

for _, dtype in ipairs { "f32", "bf16", "f16" } do
  describe("a way to make a product of " .. dtype, function()
    it("with the sums of rows", function()
      local g, x = input({ 24, 16 }, dtype), input({ 24, 32 }, dtype)
      each_way({ op = "linear_weight_grad", inputs = { g, x }, outputs = { true, true }, terms = 25 },
        { "sums after" })
      -- whole numbers, because cuBLASLt's sums are rounded before they are added
      local whole = kernels.integers({ 24, 16 }, "i32", -2, 2):to(dtype)
      each_way({ op = "linear_weight_grad", inputs = { whole, x }, terms = 25, dtype = dtype,
        attrs = { accumulate = true },
        outputs = { kernels.given({ 16, 32 }, dtype), kernels.given({ 16 }, dtype) } }, { "sums after" })
      each_way({ op = "linear_weight_grad", inputs = { input({ 24, 16 }, dtype, "turned"), x }, terms = 25,
        outputs = { true, kernels.given({ 16 }, dtype, "turned") } }, { "sums after" })
    end)

    it("with a slope", function()
      local g, w = input({ 24, 32 }, dtype), input({ 32, 16 }, dtype)
      each_way({ op = "linear_input_grad", inputs = { g, w, input({ 24, 16 }, dtype, nil, -3, 3) },
        outputs = { true }, attrs = { ["function"] = "gelu_tanh" }, terms = 33 },
        dtype == "f32" and {} or { "slope after" }) -- in f32 it is the only way
    end)

    it("with a function", function()
      local x, w, b = input({ 24, 32 }, dtype), input({ 16, 32 }, dtype), input({ 16 }, dtype)
      for _, pre in ipairs { true, false } do
        each_way({ op = "linear", inputs = { x, w, b }, outputs = { true, pre }, terms = 33,
          attrs = { ["function"] = "gelu_tanh" } }, dtype == "f32" and {} or { "function after" })
      end
      each_way({ op = "linear", inputs = { x, w, b }, outputs = { true, false }, terms = 33,
        attrs = { ["function"] = "relu" } }, { "function after" })
    end)

    it("that is added to", function()
      local a, b = input({ 3, 24, 32 }, dtype), input({ 3, 32, 16 }, dtype)
      each_way({ op = "matmul", inputs = { a, b }, outputs = { kernels.given({ 3, 24, 16 }, dtype) },
        attrs = { accumulate = true }, terms = 34, dtype = dtype }, {})
    end)
  end)
end

describe("a choice", function()
  local function product(columns)
    gm.scope(function()
      core.run_op("cuda", "matmul", { input({ 8, 16 }, "bf16"), input({ 16, columns }, "bf16") }, { true }, {})
    end)
  end

  -- Times a product that was not met so far -> its choice, and how many there were before.
  local function timed(columns, timing)
    local before = #core.choices()
    core.time_products(timing or "alone")
    product(columns)
    core.time_products "none"
    return core.choices()[before + 1], before
  end

  it("is timed once, with all that was tried", function()
    local choice, before = timed(24)
    assert.is_true(choice.counts)
    assert.is_truthy(choice.kind:find("bf16 to bf16 (8, 16) (16, 24); ", 1, true), choice.kind)
    local least = math.huge
    for _, t in ipairs(choice.tried) do least = math.min(least, t.seconds) end
    assert.is_true(#choice.tried > 1)
    assert.equal(least, choice.seconds)
    assert.is_nil((timed(24)))
    assert.equal(before + 1, #core.choices())
  end)

  it("waits to be taken, where ranks choose together", function()
    local choice = timed(32, "together")
    assert.is_false(choice.counts)
    assert.equal(1, (core.choices_waiting()))
    core.choices_take(choice.kind, choice.way, choice.variant, choice.seconds)
    assert.equal(0, (core.choices_waiting()))
    product(32)
  end)

  it("of a way that there is not, or that cannot make the kind, is refused", function()
    local choice = timed(40)
    refused('there is no way to make products named "magic"; there are wgmma, cublaslt, ',
      function() core.choices_take(choice.kind, "magic", "", 0) end)
    refused("at most 8 words of 16 hexadecimal digits",
      function() core.choices_take(choice.kind, choice.way, "7", 0) end)
    core.choices_take(choice.kind, "sums after", "", 0)
    refused('the chosen way to make products, "sums after", cannot make this one (' .. choice.kind,
      function() product(40) end)
    core.choices_take(choice.kind, "cublaslt", ("f"):rep(16), 0)
    refused('"cublaslt", cannot make this one',
      function() product(40) end)
    core.choices_take(choice.kind, choice.way, choice.variant, choice.seconds)
    product(40)
  end)
end)
