--- A parameter that has no gradient in some steps: its bias corrections (Adam's t, SGD's first buffer, Adafactor's
-- share) count its own updates, as PyTorch's do. Against the recurrences, also where updates are left out, and over a
-- resume.
local fit = require("ganymede.train.fit").fit
local gm = require "ganymede"
local numbers = require("spec.train.support").numbers
local optim = require "ganymede.optim"
local support = require "spec.resume.support"

local function parameter(value) return gm.tensor({ value }, { dtype = "f64" }):keep():requires_grad(true) end

local function set_gradient(p, g)
  gm.scope(function() (p * gm.tensor({ g }, { dtype = "f64" })):sum():backward() end)
end

-- One number by Kingma and Ba's formulas, and PyTorch's SGD: f(w, g) -> w; called for updates of it alone.
local function adam(lr, decay)
  local m, v, t = 0, 0, 0
  return function(w, g)
    t = t + 1
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return w * (1 - lr * decay) - lr * (m / (1 - 0.9 ^ t)) / (math.sqrt(v / (1 - 0.999 ^ t)) + 1e-8)
  end
end

local function sgd(lr)
  local v
  return function(w, g)
    v = v and 0.9 * v + 0.5 * g or g
    return w - lr * v
  end
end

-- Algorithm 5 of Shazeer and Stern 2018, for a parameter of one number
local function adafactor(lr)
  local v, t = 0, 0
  return function(w, g)
    t = t + 1
    v = v + (g * g - v) * t ^ -0.8
    local u = g / math.max(math.sqrt(v), 2 ^ -52)
    return w - u / math.max(1, math.abs(u)) * math.max(1e-3, math.abs(w)) * math.min(lr, 1 / math.sqrt(t))
  end
end

local makers = {
  Adafactor = { function(list) return optim.Adafactor({ lr = 0.5 }, list) end,
                function() return adafactor(0.5) end },
  AdamW = { function(list) return optim.AdamW({ lr = 0.1, weight_decay = 0.5 }, list) end,
            function() return adam(0.1, 0.5) end },
  SGD = { function(list) return optim.SGD({ lr = 0.1, momentum = 0.9, dampening = 0.5 }, list) end,
          function() return sgd(0.1) end },
}

-- In which of the steps each parameter has a gradient. The third and the fourth never part; the first and the last miss
-- nothing, before and behind those that do.
local patterns = { { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 0, 1, 0, 0, 1, 1, 1 }, { 0, 0, 1, 1, 0, 1, 0, 1 },
                   { 0, 0, 1, 1, 0, 1, 0, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 } }

describe("optimizers, of parameters without a gradient in some steps,", function()
  after_each(support.clean)

  for name, make in pairs(makers) do
    it(name .. " counts the updates of each", function()
      local list, rules, want, missed = {}, {}, {}, {}
      for k = 1, #patterns do list[k], rules[k], want[k], missed[k] = parameter(k), make[2](), k, 0 end
      local optimizer = make[1](list)
      for step = 1, 8 do
        optimizer:zero_grad()
        for k, pattern in ipairs(patterns) do
          local g = math.sin(3 * step + k)
          if pattern[step] == 1 then
            set_gradient(list[k], g)
            want[k] = rules[k](want[k], g)
          else
            missed[k] = missed[k] + 1
          end
        end
        optimizer:step()
      end
      for k = 1, #patterns do assert.near(want[k], list[k]:get(1), 1e-13) end -- a few roundings a step
      local told = {}
      for _, entry in ipairs(optimizer:missed()) do told[tonumber(entry.name)] = entry.updates end
      assert.same({ nil, missed[2], missed[3], missed[4] }, told)
      assert.equal(8, optimizer:steps())
    end)
  end

  -- An update that the control tensor leaves out is missed by nobody, whether there was a gradient or not.
  it("leave out what the device leaves out", function()
    local Two = gm.nn.class("SpecTwoBranches", nil, false)
    function Two:build()
      for _, key in ipairs { "a", "b" } do
        self[key] = gm.nn.Linear { inputs = 1, outputs = 1, bias = false,
                                   weight_initializer = gm.nn.init.constant { value = 1 } }
      end
    end
    function Two:forward(x)
      local y = self.a(x)
      return self.both and self.b(y) or y
    end
    local model = Two {}
    local engine = gm.initialize { model = model, optimizer = { type = "AdamW", lr = 0.1, weight_decay = 0 },
                                   criterion = { type = "MSELoss" } }
    engine.on_not_finite = "skip"
    engine:train()
    local a, b, wa, wb = adam(0.1, 0), adam(0.1, 0), 1, 1
    for step, kind in ipairs { "both", "one", "one, NaN", "both, NaN", "both", "one", "both" } do
      gm.scope(function()
        model.both = kind:find "both" ~= nil
        local x = gm.ones { 1, 1 }
        if kind:find "NaN" then x = x * (0 / 0) end
        engine:zero_grad()
        engine:backward(engine:criterion(engine(x), gm.zeros { 1, 1 }))
        engine:step()
        if kind:find "NaN" then return end
        local y = model.both and wa * wb or wa
        local ga, gb = 2 * y * (model.both and wb or 1), 2 * y * wa
        wa = a(wa, ga)
        if model.both then wb = b(wb, gb) end
      end)
      assert.near(wa, model.a.weight:get(1, 1), 2e-6, step .. kind)
      assert.near(wb, model.b.weight:get(1, 1), 2e-6, step .. kind)
    end
  end)

  it("go on after a resume with the same bits", function()
    local Alternates = gm.nn.class("SpecAlternates", nil, false)
    function Alternates:build()
      self.a, self.b = gm.nn.Linear { inputs = 6, outputs = 4 }, gm.nn.Linear { inputs = 6, outputs = 4 }
      self.calls = 0
    end
    function Alternates:forward(x)
      if not self.training then return self.a(x) end
      self.calls = self.calls + 1
      return self.calls % 2 == 1 and self.a(x) or self.a(x) + self.b(x)
    end
    local function run(folder, steps, resume)
      return fit(support.config { model = function() return Alternates {} end, gradient_accumulation = 1 },
        { steps = steps, out = folder, resume = resume, log = function() end })
    end
    local whole, folder = run(support.folder(), 8), support.folder()
    run(folder, 4)
    local second = run(folder, 8, "auto")
    assert.same({ { name = "b.weight", updates = 4 }, { name = "b.bias", updates = 4 } },
      second.engine.optimizer:missed())
    assert.same(numbers(whole.engine.model), numbers(second.engine.model))
  end)
end)
