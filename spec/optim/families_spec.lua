--- Lion, LAMB and LARS against their papers' formulas, a parameter at a time in Lua numbers (which are f64); options
-- and groups of these and of Colossal-AI's names. spec/golden/families_spec.lua compares the others with PyTorch.
local gm = require "ganymede"
local optim = require "ganymede.optim"
local options = require "ganymede.base.options"

local function parameter(values, dtype)
  return gm.tensor(values, { dtype = dtype or "f64" }):keep():requires_grad(true)
end

-- sum(p * g) has gradient g
local function set_gradient(p, g)
  gm.scope(function()
    (p * gm.tensor(g, { dtype = "f64", shape = p:shape() }):to(p:dtype())):sum():backward()
  end)
end

local function gradient(step, i) return math.sin(3.1 * step + 1.7 * i) * (1 + 0.3 * i) end

local function norm(x)
  local sum = 0
  for _, v in ipairs(x) do sum = sum + v * v end
  return math.sqrt(sum)
end

local function clamped(o, ratio) return math.max(o.min_trust or 0, math.min(o.max_trust or math.huge, ratio)) end

-- Formulas: f(w, g, lr) changes the list w.
local formulas = {}

-- Algorithm 2 of Chen et al. 2023
function formulas.Lion(o)
  local m = {}
  local b1, b2 = (o.betas or { 0.9 })[1], (o.betas or { 0, 0.99 })[2]
  return function(w, g, lr)
    for i = 1, #w do
      local c = b1 * (m[i] or 0) + (1 - b1) * g[i]
      w[i] = w[i] - lr * ((c > 0 and 1 or c < 0 and -1 or 0) + (o.weight_decay or 0) * w[i])
      m[i] = b2 * (m[i] or 0) + (1 - b2) * g[i]
    end
  end
end

-- Algorithm 2 of You et al. 2020, phi the identity
function formulas.LAMB(o)
  local m, v, t = {}, {}, 0
  local b1, b2 = (o.betas or { 0.9 })[1], (o.betas or { 0, 0.999 })[2]
  local decay = o.weight_decay or 0.01
  return function(w, g, lr, trust)
    local u = {}
    t = t + 1
    local c1, c2 = 1 - b1 ^ t, 1 - b2 ^ t
    if o.bias_correction == false then c1, c2 = 1, 1 end
    for i = 1, #w do
      m[i] = b1 * (m[i] or 0) + (1 - b1) * g[i]
      v[i] = b2 * (v[i] or 0) + (1 - b2) * g[i] ^ 2
      u[i] = m[i] / c1 / (math.sqrt(v[i] / c2) + (o.eps or 1e-6)) + decay * w[i]
    end
    local ratio = trust and norm(w) > 0 and clamped(o, norm(w) / norm(u)) or 1
    for i = 1, #w do w[i] = w[i] - lr * ratio * u[i] end
  end
end

-- You, Gitman and Ginsburg 2017; the rate multiplies the whole momentum, as PyTorch's SGD has it
function formulas.LARS(o)
  local buffer
  local momentum, decay = o.momentum or 0.9, o.weight_decay or 0
  return function(w, g, lr, trust)
    local ratio = 1
    if trust and norm(w) > 0 and norm(g) > 0 then
      ratio = clamped(o, (o.trust_coefficient or 1e-3) * norm(w) / (norm(g) + decay * norm(w) + (o.eps or 0)))
    end
    local first = not buffer
    buffer = buffer or {}
    for i = 1, #w do
      local d = ratio * (g[i] + decay * w[i])
      buffer[i] = first and d or momentum * buffer[i] + d
      w[i] = w[i] - lr * (o.nesterov and d + momentum * buffer[i] or buffer[i])
    end
  end
end

local cases = {
  { "Lion", {} },
  { "Lion", { betas = { 0.5, 0.8 }, weight_decay = 0.3 } },
  { "LAMB", {} },
  { "LAMB", { betas = { 0.8, 0.95 }, eps = 1e-3, weight_decay = 0.2, bias_correction = false } },
  { "LAMB", { weight_decay = 0, max_trust = 1.5, min_trust = 0.5 } },
  { "LARS", {} },
  { "LARS", { momentum = 0.8, nesterov = true, weight_decay = 0.1, trust_coefficient = 0.02, eps = 0.1 } },
  { "LARS", { momentum = 0, trust_coefficient = 0.5, max_trust = 0.2 } },
}

local starts = { { 0.5, -1.5, 2, 0.01, -3 }, { 4, 4, -4 }, { 0, 0 } }

describe("optimizers", function()
  for _, case in ipairs(cases) do
    local name, opt = unpack(case)
    it(name .. " follows its paper: " .. options.literal(opt), function()
      local ps, expected, rule, given = {}, {}, {}, {}
      for n, start in ipairs(starts) do
        ps[n] = parameter(start)
        expected[n], rule[n] = { unpack(start) }, formulas[name](opt)
        given[n] = { params = { ps[n] } }
        if name ~= "Lion" then given[n].trust = n ~= 2 end
      end
      local optimizer = optim[name](opt, given)
      for step = 1, 50 do
        local lr = (name == "Lion" and 0.02 or 0.2) / step
        optimizer:zero_grad()
        for n, p in ipairs(ps) do
          local g = {}
          for i = 1, #starts[n] do g[i] = gradient(step, i + n) end
          set_gradient(p, g)
          for i = 1, #g do g[i] = g[i] * 0.5 end
          rule[n](expected[n], g, lr, n ~= 2)
        end
        optimizer.lr = lr
        optimizer:step { clip = 0.5 }
      end
      -- the same operations in another order: a few ulp a step, values near 1
      for n, p in ipairs(ps) do
        for i, w in ipairs(expected[n]) do assert.near(w, p:get(i), 1e-12) end
      end
    end)
  end

  it("keep a trust ratio of 1 where a norm is 0", function()
    local w = parameter { 3, 4 }
    local optimizer = optim.LARS({ lr = 1, momentum = 0 }, { w })
    set_gradient(w, { 0, 0 })
    optimizer:step()
    assert.same({ 3, 4 }, w:totable())
    optimizer:zero_grad()
    set_gradient(w, { 10, 0 }) -- |w| = 5, |g| = 10
    optimizer:step()
    assert.near(3 - 1e-3 * 5 / 10 * 10, w:get(1), 1e-15)
  end)

  -- The variance of equal gradients is 0, and rounding makes it negative now and then.
  it("take no root of a negative variance", function()
    local values, g = {}, {}
    for i = 1, 64 do values[i], g[i] = 1, 0.1 + i / 37 end
    local w = parameter(values, "f32")
    local optimizer = optim.RMSprop({ centered = true, alpha = 0.7, lr = 0 }, { w })
    for _ = 1, 60 do
      optimizer:zero_grad()
      set_gradient(w, g)
      optimizer:step()
    end
    assert.same(values, w:totable())
  end)

  it("have their papers' and PyTorch's defaults", function()
    local p = parameter { 1 }
    local function of(name, ...)
      local opt, out = optim[name]({}, { p }).opt, {}
      for i, key in ipairs { ... } do out[i] = opt[key] end
      return out
    end
    assert.same({ 1e-2, 0.99, 1e-8, 0, false, 0, false },
      of("RMSprop", "lr", "alpha", "eps", "momentum", "centered", "weight_decay", "maximize"))
    assert.same({ 1e-2, 0, 0, 1e-10, 0 },
      of("Adagrad", "lr", "lr_decay", "initial_accumulator_value", "eps", "weight_decay"))
    assert.same({ 1e-4, { 0.9, 0.99 }, 0 }, of("Lion", "lr", "betas", "weight_decay"))
    assert.same({ { 0.9, 0.999 }, 1e-6, 0.01, 0 }, of("LAMB", "betas", "eps", "weight_decay", "min_trust"))
    assert.same({ 2e-4, { 0.9, 0.999, 0.9999 }, { 1e-30, 1e-16 }, 1, 0 },
      of("CAME", "lr", "betas", "eps", "clip_threshold", "weight_decay"))
    assert.same({ 0.9, 1e-3, 0, 0 }, of("LARS", "momentum", "trust_coefficient", "eps", "weight_decay"))
    assert.is_nil(optim.LAMB({}, { p }).opt.max_trust)
  end)

  it("give the trust ratio to the parameters that shall have it", function()
    local model = gm.nn.Sequential { gm.nn.Linear(2, 3), gm.nn.LayerNorm(3) }
    local function shown(opt)
      local out = {}
      for i, item in ipairs(optim.LAMB(opt, model).items) do out[i] = item.trust end
      return out
    end
    assert.same({ true, true, true, true }, shown {})
    assert.same({ true, false, false, false }, shown { no_trust = "norm_and_bias" })
    assert.same({ false, true, true, true }, shown { groups = { { match = "^1%.weight", trust = false } } })
    assert.same({ true, true, false, false },
      shown { no_trust = "norm_and_bias", groups = { { match = "^1%.", trust = true } } })
  end)

  it("give all their state by name, and continue from it with the same bits", function()
    local function run(optimizer, p, first, last)
      for step = first, last do
        optimizer:zero_grad()
        set_gradient(p, { gradient(step, 1), gradient(step, 2) })
        optimizer:step()
      end
      return p:totable()
    end
    local makes = {
      { "AdamW", { amsgrad = true }, "exp_avg/w exp_avg_sq/w max_exp_avg_sq/w" },
      { "RMSprop", {}, "square_avg/w" }, { "RMSprop", { momentum = 0.5 }, "square_avg/w momentum_buffer/w" },
      { "RMSprop", { centered = true }, "square_avg/w grad_avg/w" },
      { "Adagrad", { lr_decay = 0.1, initial_accumulator_value = 0.5 }, "sum/w" }, { "Lion", {}, "exp_avg/w" },
      { "LAMB", {}, "exp_avg/w exp_avg_sq/w" }, { "LARS", {}, "momentum_buffer/w" }, { "Adafactor", {}, "variance/w" },
      { "CAME", {}, "exp_avg/w exp_avg_sq/w" },
    }
    for _, make in ipairs(makes) do
      local name, opt, states = unpack(make)
      local function of(p) return optim[name](opt, { { name = "w", tensor = p } }) end
      local p = parameter { 1, 2 }
      local expected = run(of(p), p, 1, 20)
      local first = parameter { 1, 2 }
      local half = of(first)
      run(half, first, 1, 10)
      local second = parameter(first:totable())
      local resumed = of(second)
      local names = {}
      for i, entry in ipairs(resumed:state()) do
        names[i] = entry.name
        entry.tensor:copy_(half:state()[i].tensor)
      end
      resumed:set_steps(half:steps())
      assert.same(expected, run(resumed, second, 11, 20))
      assert.equal(states, table.concat(names, " "))
    end
  end)

  it("understand Colossal-AI's names", function()
    local function after(name, opt)
      local p = parameter { 3, -4 }
      local optimizer = optim[name](opt, { p })
      for step = 1, 3 do
        optimizer:zero_grad()
        set_gradient(p, { gradient(step, 1), gradient(step, 2) })
        optimizer:step { lr = 0.1 }
      end
      return p:totable()
    end
    for _, name in ipairs { "FusedAdam", "HybridAdam", "CPUAdam" } do
      assert.same(after("AdamW", { weight_decay = 0.1 }), after(name, { weight_decay = 0.1 }))
      assert.same(after("Adam", { weight_decay = 0.1 }), after(name, { weight_decay = 0.1, adamw_mode = false }))
    end
    assert.same(after("SGD", { momentum = 0.9 }), after("FusedSGD", { momentum = 0.9 }))
    assert.same(after("LAMB", { weight_decay = 0, bias_correction = false }), after("Lamb", {}))
    assert.same(after("LAMB", {}), after("FusedLAMB", { max_grad_norm = 0 }))
    assert.same(after("LARS", { momentum = 0.5, trust_coefficient = 0.01, eps = 0.1 }),
      after("Lars", { momentum = 0.5, eeta = 0.01, epsilon = 0.1 }))
  end)

  it("say what is wrong with their options", function()
    local p = parameter { 1 }
    local function says(text, name, opt, params)
      assert.error_matches(function() optim[name](opt, params or { p }) end, text)
    end
    says("max_trust 0.5 is below min_trust 1", "LAMB", { min_trust = 1, max_trust = 0.5 })
    says("nesterov needs momentum", "LARS", { momentum = 0, nesterov = true })
    for _, name in ipairs { "SGD", "FusedSGD" } do says("dampening needs momentum", name, { dampening = 0.5 }) end
    says("Lamb: max_trust is for trust ratios, which adam = true", "Lamb", { adam = true, max_trust = 9 })
    says("Lamb: no_trust is for trust ratios, which adam = true", "Lamb", { adam = true, no_trust = "norm_and_bias" })
    says("Adam: no_decay spares .* give weight_decay", "Adam", { no_decay = "norm_and_bias" })
    optim.Adam({ no_decay = "norm_and_bias", weight_decay = 0 }, { p }) -- a point of a search
    for _, name in ipairs { "AdamW", "Muon" } do
      says(name .. ": master_weights = false is for parameters of bf16 and f16; those of f64", name,
        { master_weights = false })
    end
    says("betas%[1%] must be a number", "Lion", { betas = { 1, 0 } })
    says("CAME: betas has 3 numbers; got {", "CAME", { betas = { 0.9, 0.999 } })
    says("CAME: betas%[3%] must be a number from 0, below 1; got 1", "CAME", { betas = { 0.9, 0.999, 1 } })
    says("CAME: betas has 3 numbers; got {", "CAME", { betas = { 0.9, 0.999, 0.9999, 0 } })
    says("CAME: eps%[1%] must be a number above 0; got 0", "CAME", { eps = { 0, 1e-16 } })
    says("CAME: eps has 2 numbers; got {", "CAME", { eps = { 1e-30, 1e-16, 1 } })
    says("AdamW: group 1 has trust, but AdamW has no trust ratio", "AdamW", {}, { { params = { p }, trust = false } })
    says("groups%[1%] has trust", "SGD", { groups = { { match = "1", trust = true } } })
    says("FusedLAMB: write max_grad_norm = 0, and clip_grad_norm = 1 ", "FusedLAMB", {})
    says("eps.*above 0", "LAMB", { eps = 0 })
    assert.error_matches(function() optim.Adagrad({}, { p }):set_momentum(0.5) end, "Adagrad has no momentum")
    assert.error_matches(function() optim.RMSprop({}, { p }):set_momentum(0.5) end, "RMSprop has no momentum")
    assert.error_matches(function() return optim.RMSProp end, "write optim.RMSprop")
  end)
end)
