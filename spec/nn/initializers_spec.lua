--- Initial values: PyTorch's formulas, statistics of what is drawn, same seed same bits.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local gm = require "ganymede"
local init = require "ganymede.nn.initializers"
local numeric = require "spec.support.numeric"
local registry = require "ganymede.base.registry"

-- Formulas of torch.nn.init for fan_in 24, fan_out 40, worked out by hand.
local bounds = {
  { "kaiming_uniform", {}, 0.5 },                                              -- sqrt(2) sqrt(3/24)
  { "kaiming_uniform", { a = math.sqrt(5) }, 1 / math.sqrt(24) },
  { "kaiming_uniform", { mode = "fan_out", nonlinearity = "linear" }, math.sqrt(3 / 40) },
  { "xavier_uniform", {}, math.sqrt(6 / 64) },
  { "xavier_uniform", { gain = 2 }, 2 * math.sqrt(6 / 64) },
  { "lecun_uniform", {}, math.sqrt(3 / 24) },
}
local deviations = {
  { "kaiming_normal", { nonlinearity = "relu" }, math.sqrt(2 / 24) },
  { "kaiming_normal", { mode = "fan_out", nonlinearity = "tanh" }, 5 / 3 / math.sqrt(40) },
  { "kaiming_normal", { nonlinearity = "selu" }, 0.75 / math.sqrt(24) },
  { "xavier_normal", {}, math.sqrt(2 / 64) },
}

local function statistics(t)
  local list = numeric.flat(t)
  local sum, squares, low, high = 0, 0, math.huge, -math.huge
  for _, v in ipairs(list) do
    sum, squares, low, high = sum + v, squares + v * v, math.min(low, v), math.max(high, v)
  end
  local mean = sum / #list
  return { n = #list, mean = mean, std = math.sqrt(squares / #list - mean * mean), low = low, high = high }
end

-- What a Linear(inputs, outputs) with this initializer holds.
local function drawn(rule, inputs, outputs)
  return gm.scope(function()
    return statistics(gm.nn.Linear { inputs = inputs, outputs = outputs, weight_initializer = rule }.weight)
  end)
end

describe("initializers", function()
  for _, case in ipairs(bounds) do
    it(("%s has PyTorch's bounds (%.4f)"):format(case[1], case[3]), function()
      local got = init[case[1]](case[2])(24, 40)
      assert.equal("uniform", got.kind)
      assert.near(case[3], got.high, 1e-15)
      assert.near(-case[3], got.low, 1e-15)
    end)
  end

  for _, case in ipairs(deviations) do
    it(("%s has PyTorch's deviation (%.4f)"):format(case[1], case[3]), function()
      local got = init[case[1]](case[2])(24, 40)
      assert.equal("normal", got.kind)
      assert.near(case[3], got.std, 1e-15)
    end)
  end

  it("a bias knows fan_in alone: U(-1/sqrt(fan_in), 1/sqrt(fan_in))", function()
    assert.near(1 / math.sqrt(24), init.dense_bias(24).high, 1e-15)
  end)

  it("asks for the fans it needs", function()
    assert.error_matches(function() init.kaiming_uniform {}() end, "kaiming_uniform needs fan_in")
    assert.error_matches(function() init.kaiming_normal { mode = "fan_out" }(3) end, "needs fan_out")
  end)

  it("names options it does not know", function()
    assert.error_matches(function() init.normal { sdt = 1 } end,
      "initializer normal has no option 'sdt' %(did you mean 'std'%?%)")
    assert.error_matches(function() init.uniform { low = 2, high = 1 } end, "low 2 is above high 1")
    assert.error_matches(function() init.trunc_normal { low = 1, high = 1 } end, "must be below")
  end)

  -- n = 40000 numbers: the sample deviation has a relative error of 1/sqrt(2n) = 0.35 %, the mean of std/200;
  -- five of these errors are allowed
  it("uniform fills its interval evenly", function()
    local s = drawn(init.uniform { low = -3, high = 5 }, 200, 200)
    assert.is_true(s.low >= -3 and s.high < 5)
    assert.is_true(s.low < -2.99 and s.high > 4.99)
    assert.near(1, s.mean, 5 * s.std / 200)
    assert.near(8 / math.sqrt(12), s.std, 0.02 * s.std)
  end)

  it("normal has its mean and deviation", function()
    local s = drawn(init.normal { mean = 2, std = 0.5 }, 200, 200)
    assert.near(2, s.mean, 5 * 0.5 / 200)
    assert.near(0.5, s.std, 0.02 * 0.5)
    assert.is_true(s.high > 2 + 3 * 0.5)
  end)

  it("trunc_normal stays between its ends and has the deviation of the cut distribution", function()
    local s = drawn(init.trunc_normal { std = 1, low = -2, high = 2 }, 200, 200)
    assert.is_true(s.low >= -2 and s.high <= 2)
    assert.near(0.8796, s.std, 0.02)
    local tight = drawn(init.trunc_normal { std = 1, low = 0.5, high = 1 }, 100, 100)
    assert.is_true(tight.low >= 0.5 and tight.high <= 1 and tight.low < tight.high)
  end)

  it("lecun_normal keeps the variance 1 / fan_in although it is cut", function()
    local s = drawn("lecun_normal", 200, 200)
    assert.near(math.sqrt(1 / 200), s.std, 0.02 * s.std)
    assert.is_true(s.high <= 2 * math.sqrt(1 / 200) / 0.8796)
  end)

  it("the default of Linear is PyTorch's", function()
    local s = drawn(nil, 100, 400)
    assert.is_true(s.high <= 0.1 and s.low >= -0.1 and s.high > 0.099)
    assert.near(0.1 / math.sqrt(3), s.std, 0.02 * s.std)
  end)

  it("may be a name, a table with a type, a rule, a distribution or a function", function()
    local function constant(choice)
      return gm.scope(function()
        return gm.nn.Linear { inputs = 2, outputs = 1, weight_initializer = choice }.weight:totable()
      end)
    end
    assert.same({ { 1, 1 } }, constant "ones")
    assert.same({ { 3, 3 } }, constant { type = "constant", value = 3 })
    assert.same({ { 4, 4 } }, constant(init.constant { value = 4 }))
    assert.same({ { 5, 5 } }, constant { kind = "constant", value = 5 })
    local function of_fans(fan_in, fan_out) return { kind = "constant", value = 10 * fan_out + fan_in } end
    assert.same({ { 12, 12 } }, constant(of_fans))
  end)

  it("are open to users", function()
    registry.initializers:register("spec_fan", function(opt)
      return function(fan_in) return { kind = "constant", value = opt.factor * fan_in } end
    end)
    gm.scope(function()
      local layer = gm.nn.Linear { inputs = 3, outputs = 1, weight_initializer = { type = "spec_fan", factor = 2 } }
      assert.same({ { 6, 6, 6 } }, layer.weight:totable())
    end)
    assert.error_matches(function() gm.nn.Linear { inputs = 3, outputs = 1, weight_initializer = "xavier_norml" } end,
      "did you mean 'xavier_normal'")
    for said, choice in pairs { ["must return a distribution"] = function() end,
                                ["it returned 3"] = function() return 3 end, ["an initializer is a name"] = {},
                                ["got { std = 1 }"] = { std = 1 } } do
      assert.error_matches(function() gm.nn.Linear { inputs = 3, outputs = 1, weight_initializer = choice } end, said)
    end
  end)

  it("the padding row of an embedding starts as zeros", function()
    gm.scope(function()
      local rows = gm.nn.Embedding { count = 4, width = 3, padding_index = 2 }.weight:totable()
      assert.same({ 0, 0, 0 }, rows[3])
      for _, i in ipairs { 1, 2, 4 } do assert.is_true(rows[i][1] ~= 0) end
    end)
  end)
end)

describe("initial values", function()
  local function weights(seed, build)
    return gm.scope(function()
      core.set_seed(seed)
      local out = {}
      for _, p in ipairs(build():named_parameters()) do out[p.name] = numeric.flat(p.tensor) end
      return out
    end)
  end
  local function two() return gm.nn.Sequential { gm.nn.Linear(5, 5), gm.nn.Linear(5, 5) } end
  local seed
  before_each(function() seed = core.seed() end)
  after_each(function() core.set_seed(seed) end)

  it("are the same bits with the same seed, others with another", function()
    local a, b, c = weights(7, two), weights(7, two), weights(8, two)
    assert.same(a, b)
    assert.is_false(a["1.weight"][1] == c["1.weight"][1])
  end)

  it("differ between two layers of one shape", function()
    local a = weights(7, two)
    local equal = 0
    for i, v in ipairs(a["1.weight"]) do if v == a["2.weight"][i] then equal = equal + 1 end end
    assert.equal(0, equal)
  end)

  it("depend on the path, not on what else there is", function()
    local three = function() return gm.nn.Sequential { gm.nn.Linear(5, 5), gm.nn.Linear(5, 5), gm.nn.Linear(5, 9) } end
    local a, b = weights(7, two), weights(7, three)
    assert.same(a["1.weight"], b["1.weight"])
    assert.same(a["2.bias"], b["2.bias"])
  end)
end)
