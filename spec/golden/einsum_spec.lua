--- ops.einsum against torch.einsum (einsum.py): 100 random equations, results and gradients, in f64 and f32.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "einsum"
local tolerances = { f32 = 1e-5, f64 = 1e-12 } -- of sums of some hundred products of numbers of order 1

local function judge(case, dtype)
  local function golden(what, shape) return file:tensor(("%s/%s"):format(case.name, what), dtype):reshape(shape) end
  local inputs = {}
  for i, shape in ipairs(case.shapes) do inputs[i] = golden("input." .. i, shape):detach():requires_grad(true) end
  local y = gm.ops.einsum(case.equation, unpack(inputs))
  assert.same(case.output, y:shape())
  numeric.agree(y, golden("output", case.output), tolerances[dtype])
  ;(y * golden("seed", case.output)):sum():backward()
  for i, x in ipairs(inputs) do
    numeric.agree(x:grad(), golden("grad.input." .. i, case.shapes[i]), tolerances[dtype])
  end
end

describe("golden einsum", function()
  assert(#file.cases == 100)
  for _, case in ipairs(file.cases) do
    it(("%s %q equals PyTorch"):format(case.name, case.equation), function()
      for _, dtype in ipairs { "f64", "f32" } do gm.scope(judge, case, dtype) end
    end)
  end
end)

describe("einsum refuses", function()
  local a, b = gm.ones { 2, 3 }, gm.ones { 3, 4 }
  for _, case in ipairs {
    { "two sizes of a label", "label 'i' is 3 in operand 2 and 2 before it", "ij,ik->jk", a, b },
    { "two sizes in one operand", "label 'i' is 2 and 3 in one operand", "ii", a },
    { "too few operands", "it has 2 operands, 1 are given", "ij,jk", a },
    { "labels that do not fit", "operand 1 has 2 dimensions, 'ijk' names 3", "ijk", a },
    { "dimensions without a label", "operand 1 has 2 dimensions, 'i' names 1", "i", a },
    { "an unknown label", "no operand has the label 'z'", "ij->z", a },
    { "a label twice in the result", "the result has the label 'i' twice", "ij->ii", a },
    { "two ellipses", "has two ellipses", "...i...", a },
    { "other signs", "'1' is no label", "i1", a },
  } do
    it(case[1], function()
      assert.error_matches(function() gm.ops.einsum(case[3], unpack(case, 4)) end, case[2])
    end)
  end
end)
