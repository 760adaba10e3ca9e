-- GM_KEEPS_ZERO in ops.def and functions.def: of inputs that are zero such an op makes zeros, on every backend. The
-- padding of its results is not cleared, so a mark that is wrong leaves numbers there that nobody wrote.
local gm = require "ganymede"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local support = require "spec.kernels.support"

local backends = { "ref" }
for _, name in ipairs(support.backends) do table.insert(backends, name) end

local function zeros(dtype, shape) return gm.zeros(shape or { 3, 20 }, { dtype = dtype }) end

-- Inputs and attributes of the marked ops that are no functions, and how many results they have.
local calls = {
  copy = { inputs = { "f" } },
  affine = { inputs = { "f" }, attrs = { alpha = -3 } },
  where = { inputs = { "u8", "f", "f" } },
  dropout = { inputs = { "f" }, attrs = { p = 0.5 } },
  sum = { inputs = { "f" }, attrs = { dims = 2 } },
  cumsum = { inputs = { "f" }, attrs = { dim = 1 } },
  max = { inputs = { "f" }, attrs = { dim = 1 }, results = 2 },
  min = { inputs = { "f" }, attrs = { dim = 1 }, results = 2 },
  argmax = { inputs = { "f" }, attrs = { dim = 1 } },
  rotary = { inputs = { "f", "wide" }, shapes = { { 2, 3, 4 }, { 2 } }, n = 3 }, -- no positions are given
  -- the third result has no padding
  float8_encode = { inputs = { "f", "wide" }, shapes = { { 3, 20 }, {} }, results = 2, outputs = 3 },
}

-- Are all results of the op zero, for inputs that are?
local function makes_zeros(backend, op, call, dtype)
  local inputs, outputs, zero = {}, {}, true
  for i, kind in ipairs(call.inputs) do
    if kind == "f" then kind = dtype elseif kind == "wide" then kind = support.wide(dtype) end
    inputs[i] = zeros(kind, (call.shapes or {})[i])
  end
  inputs.n = call.n
  for i = 1, call.results or 1 do outputs[i] = true end
  outputs.n = call.outputs
  for _, y in ipairs(core.run_op(backend, op, inputs, outputs, call.attrs or {})) do
    for _, v in ipairs(numeric.flat(y:totable())) do zero = zero and v == 0 end
  end
  return zero
end

local function each(fn)
  for _, backend in ipairs(backends) do
    for _, dtype in ipairs(support.dtypes) do
      gm.scope(function() fn(backend, dtype) end)
    end
  end
end

describe("zeros of zeros:", function()
  for _, f in ipairs(core.function_list()) do
    it(f.name, function()
      local attrs = { ["function"] = f.name, low = 0.5 } -- clamp would keep zeros between its bounds
      local call = { inputs = f.op == "unary" and { "f" } or { "f", "f" }, attrs = attrs }
      each(function(backend, dtype)
        assert.equal(core.keeps_zero(f.op, attrs), makes_zeros(backend, f.op, call, dtype))
      end)
    end)
  end

  for _, op in ipairs(core.op_list()) do
    if core.keeps_zero(op.name, {}) then
      it(op.name, function()
        local call = assert(calls[op.name], "a marked op without a call in this spec")
        each(function(backend, dtype) assert.is_true(makes_zeros(backend, op.name, call, dtype)) end)
      end)
    end
  end

  it("affine with a summand makes none", function()
    assert.is_false(core.keeps_zero("affine", { beta = 1 }))
    assert.is_false(core.keeps_zero("affine", { alpha = 1 / 0 }))
  end)
end)
