--- Optimizers against their recurrences, written out in Lua numbers (which are f64); groups; state.
local gm = require "ganymede"
local optim = require "ganymede.optim"
local options = require "ganymede.base.options"

-- a parameter of these numbers, and the way to give it a gradient
local function parameter(values)
  return gm.tensor(values, { dtype = "f64" }):keep():requires_grad(true)
end

-- sum(p * g) has gradient g
local function set_gradient(p, g)
  gm.scope(function()
    (p * gm.tensor(g, { dtype = "f64", shape = p:shape() })):sum():backward()
  end)
end

local function gradient(step, i) return math.sin(3.1 * step + 1.7 * i) * (1 + 0.3 * i) end

-- Recurrences: one number at a time, as in the papers.
local recurrence = {}

function recurrence.sgd(o)
  local v
  return function(w, g, lr)
    g = g + (o.weight_decay or 0) * w
    if (o.momentum or 0) ~= 0 then
      v = v and o.momentum * v + (1 - (o.dampening or 0)) * g or g
      g = o.nesterov and g + o.momentum * v or v
    end
    return w - lr * g
  end
end

function recurrence.adam(o)
  local m, v, t = 0, 0, 0
  local b1, b2 = (o.betas or { 0.9 })[1], (o.betas or { 0, 0.999 })[2]
  local decay = o.weight_decay or (o.decoupled and 0.01 or 0)
  return function(w, g, lr)
    t = t + 1
    if o.decoupled then w = w - lr * decay * w else g = g + decay * w end
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return w - lr * (m / (1 - b1 ^ t)) / (math.sqrt(v / (1 - b2 ^ t)) + (o.eps or 1e-8))
  end
end

local cases = {
  { "SGD", "sgd", {} },
  { "SGD", "sgd", { momentum = 0.9 } },
  { "SGD", "sgd", { momentum = 0.8, dampening = 0.3, weight_decay = 0.1 } },
  { "SGD", "sgd", { momentum = 0.9, nesterov = true, weight_decay = 0.05 } },
  { "Adam", "adam", {} },
  { "Adam", "adam", { betas = { 0.5, 0.9 }, eps = 1e-3, weight_decay = 0.2 } },
  { "AdamW", "adam", { decoupled = true } },
  { "AdamW", "adam", { decoupled = true, betas = { 0.8, 0.95 }, weight_decay = 0.3 } },
}

local function given(opt)
  local out = {}
  for name, value in pairs(opt) do
    if name ~= "decoupled" then out[name] = value end
  end
  return out
end

describe("optimizers", function()
  for _, case in ipairs(cases) do
    local name, kind, opt = unpack(case)
    it(name .. " follows its recurrence: " .. options.literal(opt), function()
      local start = { 0.5, -1.5, 2, 0.01, -3 }
      local p = parameter(start)
      local optimizer = optim[name](given(opt), { p })
      local expected, rule = {}, {}
      for i, w in ipairs(start) do expected[i], rule[i] = w, recurrence[kind](opt) end
      for step = 1, 40 do
        local lr, g = 0.1 / step, {}
        for i = 1, #start do
          g[i] = gradient(step, i)
          expected[i] = rule[i](expected[i], g[i] * 0.5, lr)
        end
        optimizer:zero_grad()
        set_gradient(p, g)
        optimizer.lr = lr
        optimizer:step { clip = 0.5 }
      end
      -- the same operations up to contraction: a few ulp a step, values near 1
      for i, w in ipairs(expected) do assert.near(w, p:get(i), 1e-13) end
      assert.equal(40, optimizer:steps())
    end)
  end

  it("have PyTorch's defaults", function()
    local p = parameter { 1 }
    local sgd, adam, adamw = optim.SGD({}, { p }).opt, optim.Adam({}, { p }).opt, optim.AdamW({}, { p }).opt
    assert.same({ 1e-3, 0, 0, 0, false }, { sgd.lr, sgd.momentum, sgd.dampening, sgd.weight_decay, sgd.nesterov })
    assert.same({ 1e-3, 0.9, 0.999, 1e-8, 0 }, { adam.lr, adam.betas[1], adam.betas[2], adam.eps, adam.weight_decay })
    assert.same({ 1e-3, 0.9, 0.999, 1e-8, 0.01 },
      { adamw.lr, adamw.betas[1], adamw.betas[2], adamw.eps, adamw.weight_decay })
  end)

  it("pick settings by the names of parameters; the first match counts", function()
    local model = gm.nn.Sequential { gm.nn.Linear(2, 3), gm.nn.Linear(3, 2) }
    local optimizer = optim.AdamW({ weight_decay = 0.5, groups = {
      { match = "^2%.", lr_scale = 0.1 }, { match = "bias$", weight_decay = 0 } } }, model)
    local seen = {}
    for i, item in ipairs(optimizer.items) do seen[i] = { item.name, item.lr_scale, item.weight_decay } end
    assert.same({ { "1.weight", 1, 0.5 }, { "1.bias", 1, 0 }, { "2.weight", 0.1, 0.5 }, { "2.bias", 0.1, 0.5 } }, seen)
  end)

  it("leave norms and biases alone when asked", function()
    local model = gm.nn.Sequential { gm.nn.Linear(2, 3), gm.nn.LayerNorm(3) }
    local optimizer = optim.AdamW({ weight_decay = 0.5, no_decay = "norm_and_bias" }, model)
    local seen = {}
    for i, item in ipairs(optimizer.items) do seen[i] = item.weight_decay end
    assert.same({ 0.5, 0, 0, 0 }, seen)
  end)

  it("step each group at its own rate and decay", function()
    local a, b = parameter { 1, 2 }, parameter { 3 }
    local optimizer = optim.SGD({ lr = 0.5, weight_decay = 0.1 },
      { { params = { a } }, { params = { b }, lr_scale = 0.1, weight_decay = 1 } })
    set_gradient(a, { 1, 1 })
    set_gradient(b, { 1 })
    optimizer:step()
    assert.near(1 - 0.5 * (1 + 0.1 * 1), a:get(1), 1e-15)
    assert.near(2 - 0.5 * (1 + 0.1 * 2), a:get(2), 1e-15)
    assert.near(3 - 0.05 * (1 + 3), b:get(1), 1e-15)
  end)

  it("leave parameters without a gradient as they are", function()
    local a, b = parameter { 1 }, parameter { 1 }
    local optimizer = optim.AdamW({}, { a, b })
    set_gradient(a, { 1 })
    optimizer:step()
    assert.is_true(a:get(1) < 1)
    assert.equal(1, b:get(1))
  end)

  it("give their state by name, and continue from it with the same bits", function()
    local function run(optimizer, p, first, last)
      for step = first, last do
        optimizer:zero_grad()
        set_gradient(p, { gradient(step, 1), gradient(step, 2) })
        optimizer:step()
      end
      return p:totable()
    end
    for _, make in ipairs { function(p) return optim.Adam({}, { { name = "w", tensor = p } }) end,
                            function(p) return optim.SGD({ momentum = 0.9 }, { { name = "w", tensor = p } }) end } do
      local p = parameter { 1, 2 }
      local whole = make(p)
      local expected = run(whole, p, 1, 20)
      local first = parameter { 1, 2 }
      local half = make(first)
      run(half, first, 1, 10)
      local second = parameter(first:totable())
      local resumed = make(second)
      local names = {}
      for i, entry in ipairs(resumed:state()) do
        names[i] = entry.name
        entry.tensor:copy_(half:state()[i].tensor)
      end
      resumed:set_steps(half:steps())
      assert.same(expected, run(resumed, second, 11, 20))
      assert.equal(whole.name == "Adam" and "exp_avg/w exp_avg_sq/w" or "momentum_buffer/w", table.concat(names, " "))
    end
  end)

  it("can change their momentum on the way (OneCycleLR does)", function()
    local p = parameter { 0 }
    local optimizer = optim.SGD({ lr = 1, momentum = 0.5 }, { p })
    set_gradient(p, { 1 })
    optimizer:step()             -- v = 1, w = -1
    optimizer:set_momentum(0.25)
    optimizer:step()             -- v = 0.25 + 1, w = -2.25
    assert.equal(-2.25, p:get(1))
    assert.error_matches(function() optim.SGD({}, { p }):set_momentum(0.9) end, "SGD has no momentum to change")
    assert.error_matches(function() optimizer:set_momentum(1.5) end, "not in %[0, 1%)")
    local scheduler = require("ganymede.lr_scheduler").OneCycleLR({ total_steps = 10 }, optimizer)
    scheduler:step()
    assert.equal(scheduler:lr(1), optimizer.lr)
  end)

  it("can be written in Lua", function()
    local SignSGD = optim.class("SpecSignSGD", { slow = { type = "number", default = 1 } })
    function SignSGD:build() self.counts = gm.zeros({ 1 }, { dtype = "f64" }):keep() end
    function SignSGD:step(settings)
      gm.scope(gm.no_grad, function()
        for _, item in ipairs(self.items) do
          local g = item.tensor:grad()
          item.tensor:copy_(item.tensor - (g / g:abs()) * (settings.lr or self.lr) * self.opt.slow)
        end
        self.counts:copy_(self.counts + 1)
      end)
      self:set_steps(self:steps() + 1)
    end
    function SignSGD:state() return { { name = "counts", tensor = self.counts } } end
    local model = gm.nn.Linear(3, 2)
    local engine = gm.initialize { model = model, criterion = { type = "MSELoss" },
                                   optimizer = { type = "SpecSignSGD", lr = 0.25, slow = 2 } }
    local before = model.bias:totable()
    local x, y = gm.uniform({ 4, 3 }, { seed = 1 }), gm.uniform({ 4, 2 }, { seed = 2 })
    engine:zero_grad()
    engine:backward(engine:criterion(engine(x), y))
    engine:step()
    for i = 1, 2 do assert.near(0.5, math.abs(model.bias:get(i) - before[i]), 1e-6) end
    assert.equal(1, engine.optimizer:state()[1].tensor:get(1))
  end)

  it("say what is wrong with their options", function()
    local p = parameter { 1 }
    assert.error_matches(function() optim.Adam({ beta = 0.9 }, { p }) end, "no option 'beta' %(did you mean 'betas'")
    assert.error_matches(function() optim.Adam({ betas = { 0.9, 1 } }, { p }) end, "betas%[2%] must be a number")
    local layer = gm.nn.Linear { inputs = 1, outputs = 1 } -- PyTorch's order
    for _, first in ipairs { { p }, layer } do
      local _, why = pcall(function() return (optim.Adam(first, { lr = 1 })) end)
      assert.matches("optimizers_spec.lua:%d+: Adam: options come first, parameters second", why)
    end
    local _, none = pcall(function() return (optim.Adam { lr = 1 }) end)
    assert.matches("optimizers_spec.lua:%d+: Adam needs parameters", none)
    assert.error_matches(function() optim.SGD({ nesterov = true }, { p }) end, "nesterov needs momentum")
    assert.error_matches(function() optim.SGD({ momentum = 1 }, { p }) end, "momentum.*below 1; got 1")
    assert.error_matches(function() optim.SGD({ groups = { { match = "xyz" } } }, { p }) end, "no parameter is left")
    assert.error_matches(function() optim.SGD({ groups = { { weight_decay = 1 } } }, { p }) end, "needs 'match'")
    assert.error_matches(function() optim.SGD({}, { { params = { p } }, { params = { p } } }) end,
      "parameter '2.1' is given twice, also as '1.1'")
    assert.error_matches(function()
      optim.SGD({}, { { name = "w", tensor = p }, { name = "w", tensor = parameter { 1 } } })
    end, "parameter 'w' is given twice")
    assert.error_matches(function() optim.SGD({}, {}) end, "there are no parameters")
    assert.error_matches(function() optim.SGD({}, { p, gm.ones { 1 } }) end, "tensor 2 is not a parameter")
    assert.error_matches(function() optim.SGD({}) end, "SGD needs parameters")
    assert.error_matches(function() optim.SGD({}, gm.ones { 2 }) end, "a module or a list of tensors; got a tensor")
    for _, class in ipairs { optim.Adam, optim.Lion } do
      local function refused(betas, why) assert.error_matches(function() class({ betas = betas }, { p }) end, why) end
      refused({ 0.9, 0.99, 0.5 }, "betas has 2 numbers; got {")
      refused({ 0.9, 0.99, beta3 = 0.5 }, "a list has no field 'beta3'")
    end
    assert.error_matches(function() optim.SGD({}, { { params = { p } }, { params = { p }, rate = 1 } }) end, "rate")
  end)

  it("refuse a step with a rate below 0, and change nothing", function()
    local p = parameter { 1, 2 }
    local sgd = optim.SGD({ lr = 0.1 }, { p })
    set_gradient(p, { 1, 1 })
    for _, lr in ipairs { -1, 0 / 0 } do
      assert.error_matches(function() sgd:step { lr = lr } end, "option 'lr' must be a number, at least 0; got")
    end
    assert.same({ 1, 2 }, p:totable())
  end)

  for _, class in ipairs { optim.SGD, optim.Adafactor, optim.Muon } do
    it("refuse an optimizer.lr that is no rate, at the line that makes the step, and change nothing: " .. class.name,
      function()
        local p = gm.ones { 2, 2 }:keep():requires_grad(true)
        local optimizer = class({ lr = 0.1 }, { p })
        gm.scope(function() p:sum():backward() end)
        for _, lr in ipairs { -1, 0 / 0, math.huge, "fast", false } do
          optimizer.lr = lr
          local _, why = pcall(function() optimizer:step() end)
          assert.matches("optimizers_spec.lua:%d+: optimizer.lr must be a finite number, at least 0; got ", why)
        end
        assert.same({ { 1, 1 }, { 1, 1 } }, p:totable())
        optimizer.lr = 0.1
        optimizer:step()
        assert.is_true(p:get(1, 1) < 1)
      end)
  end

  it("refuse an optimizer.lr that is no rate at the line of engine:step()", function()
    local engine = gm.initialize { model = { type = "MLP", inputs = 2, hidden = { 3 }, classes = 2 },
      criterion = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }
    engine:train()
    engine:zero_grad()
    engine:backward(engine:criterion(engine(gm.ones { 4, 2 }), gm.zeros({ 4 }, { dtype = "i64" })))
    engine.optimizer.lr = 0 / 0
    local _, why = pcall(function() engine:step() end)
    assert.matches("optimizers_spec.lua:%d+: optimizer.lr must be a finite number, at least 0; got ", why)
  end)
end)
