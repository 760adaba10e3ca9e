--- Two dense layers after each other: the second's input gradient goes back through the first's activation in the same
-- product, where nothing else reads what lies between them, and gradients of weights bring those of biases. The
-- gradients are those of central differences; the counters of ops say which way they came.
local core = require "ganymede.core"
local gm = require "ganymede"
local ops = gm.ops

local function calls(name) return (core.counters().by_op[name] or { calls = 0 }).calls end

describe("gradients of dense layers", function()
  local before
  setup(function() before = gm.default_dtype() gm.set_default_dtype "f64" end)
  teardown(function() gm.set_default_dtype(before) end)

  local seed = 100
  local function any(...)
    seed = seed + 1
    return gm.uniform({ ... }, { low = -1, high = 1, seed = seed })
  end

  -- How often each of these ops ran in one backward pass of fn's sum.
  local function ran(fn, inputs)
    local names, first, list = { "linear_input_grad", "bias_activation_grad", "linear_weight_grad" }, {}, {}
    gm.scope(function()
      for _, t in ipairs(inputs) do t:requires_grad(true) end
      local loss = fn(unpack(inputs)):sum()
      for i, name in ipairs(names) do first[i] = calls(name) end
      loss:backward()
      for i, name in ipairs(names) do list[i] = calls(name) - first[i] end
    end)
    return list
  end

  local function layers(n) -- x, and w and b of n layers: 3 to 5 to 4 to 4 ...
    local list, wide = { any(2, 6, 3) }, { 3, 5, 4, 4 }
    for i = 1, n do
      list[2 * i], list[2 * i + 1] = any(wide[i + 1], wide[i]), any(wide[i + 1])
    end
    return list
  end

  -- want: calls of the three ops
  local function case(name, want, fn, n)
    it(name, function()
      gm.scope(function()
        gm.gradcheck(fn, layers(n or 2))
        assert.same(want, ran(fn, layers(n or 2)))
      end)
    end)
  end

  for _, f in ipairs { "relu", "gelu", "gelu_tanh", "silu" } do
    case("go through " .. f .. " with the next product", { 1, 0, 2 },
      function(x, w, b, v, c) return ops.linear(ops.linear(x, w, b, f), v, c) end)
  end
  case("go through each of two activations", { 2, 0, 3 }, function(x, w, b, v, c, u, d)
    return ops.linear(ops.linear(ops.linear(x, w, b, "gelu_tanh"), v, c, "silu"), u, d)
  end, 3)
  case("go through the last activation by themselves", { 1, 1, 1 }, function(x, w, b, v, c)
    return ops.linear(ops.linear(x, w, b, "gelu"), v, c, "gelu")
  end)
  case("are added up before an activation that two read", { 0, 1, 1 }, function(x, w, b, v, c)
    local h = ops.linear(x, w, b, "gelu_tanh")
    return ops.linear(h, v, c) + ops.matmul(h, v:transpose(1, 2))
  end)
  case("are added up before an activation that two layers read", { 0, 1, 2 }, function(x, w, b, v, c)
    local h = ops.linear(x, w, b, "gelu_tanh")
    return ops.linear(h, v, c) * ops.linear(h, v, c)
  end)
  case("do not go through what is not a layer's", { 0, 0, 2 }, function(x, w, b, v, c)
    return ops.linear(ops.linear(x, w, b), v, c)
  end)
  case("reach a layer through a view", { 0, 1, 1 }, function(x, w, b, v, c)
    return ops.linear(ops.linear(x, w, b, "silu"):reshape(12, 5), v, c)
  end)

  it("of a value that is a root as well are added up first", function()
    gm.scope(function()
      local list = layers(2)
      local function both(x, w, b, v, c)
        local h = ops.linear(x, w, b, "gelu")
        return h, ops.linear(h, v, c)
      end
      gm.gradcheck(both, list)
    end)
  end)

  it("come in two halves too", function()
    local mlp = gm.nn.MLP { width = 4, hidden = 8, activation = "gelu_tanh" }
    gm.gradcheck(mlp, { any(3, 4) }, { halves = true })
  end)

  it("of weights that want none leave the biases theirs", function()
    gm.scope(function()
      local x, w, b, v, c = unpack(layers(2))
      gm.gradcheck(function(bias, last) return ops.linear(ops.linear(x, w, bias, "relu"), v, last) end, { b, c })
    end)
  end)

  it("are added to what weight and bias hold, or begin where only one of them holds something", function()
    gm.scope(function()
      local x, w, b = unpack(layers(1))
      for _, t in ipairs { w, b } do t:requires_grad(true) end
      local function once() ops.linear(x, w, b):sum():backward() end
      once()
      local dw, db = w:grad():clone():totable(), b:grad():clone():totable()
      once()
      local twice = b:grad():totable()
      for i = 1, #db do assert.near(2 * db[i], twice[i], 1e-12) end
      core.zero_grad { b } -- its next gradient is set, that of w added to
      once()
      local third, again = w:grad():totable(), b:grad():totable()
      for i = 1, #db do
        assert.near(db[i], again[i], 1e-12)
        for k = 1, #dw[i] do assert.near(3 * dw[i][k], third[i][k], 1e-12) end
      end
    end)
  end)
end)
