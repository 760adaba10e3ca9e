--- Values and gradients at inf, NaN, zeros and ties, against PyTorch (edges.py): where its result is NaN or
-- infinite or 0, so is ours. (Kernels of every instruction set agree with kernels/ref: spec/kernels.)
local examples = require "spec.golden.examples"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "edges"

local function show(list)
  local out = {}
  for i, v in ipairs(list) do out[i] = v ~= v and "nan" or ("%.5g"):format(v + 0) end -- + 0: -0 is 0
  return table.concat(out, " ")
end

local function check(name, dtype, got, what)
  assert.equal(show(numeric.flat(file:tensor(name .. what, dtype))), show(numeric.flat(got)), name .. what)
end

local function judge(case, dtype)
  local inputs, weights = {}, {}
  for n = 1, case.inputs do
    inputs[n] = file:tensor(("%s/input.%d"):format(case.name, n), dtype)
    if case.name:find "of a number$" then inputs[n] = inputs[n]:reshape {} end -- NumPy wrote a row of one
    inputs[n] = inputs[n]:detach():requires_grad(true)
  end
  for i = 1, inputs[1]:numel() do weights[i] = i end
  local output = gm.ops[case.op](unpack(inputs))
  output:backward(gm.tensor(weights, { dtype = dtype, shape = output:shape() }))
  check(case.name, dtype, output, "/output")
  for n, x in ipairs(inputs) do check(case.name, dtype, x:grad(), "/grad.input." .. n) end
end

describe("golden edges:", function()
  -- torch.nn.functional's layer_norm, rms_norm and softmax give what they are given, and its gradient
  it("norms and softmax of rows of nothing are rows of nothing", function()
    for _, shape in ipairs { { 0 }, { 3, 0 }, { 2, 3, 0 } } do
      gm.scope(function()
        local w, b = gm.ones({ 0 }):requires_grad(true), gm.zeros({ 0 }):requires_grad(true)
        for name, fn in pairs { layer_norm = function(x) return gm.ops.layer_norm(x, w, b) end,
                                rms_norm = function(x) return gm.ops.rms_norm(x, w) end, softmax = gm.ops.softmax } do
          local x = gm.zeros(shape):requires_grad(true)
          local y = fn(x)
          assert.same(shape, y:shape(), name)
          y:sum():backward()
          assert.same(shape, x:grad():shape(), name)
        end
      end)
    end
  end)

  examples(it, file, judge)
end)
