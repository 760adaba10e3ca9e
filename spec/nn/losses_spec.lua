--- Losses: counts, the count of a larger step, nothing to count.
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local function logits(rows) return gm.normal({ rows, 5 }, { dtype = "f64", seed = 1 }) end
local function targets(list, dtype) return gm.tensor(list, { dtype = dtype or "i64" }) end

describe("nn.CrossEntropyLoss", function()
  it("counts the targets that are not ignored, in i64 and i32, of any shape", function()
    gm.scope(function()
      local loss = nn.CrossEntropyLoss { ignore_index = 2 }
      assert.equal(3, loss:count(targets { 0, 2, 1, 4 }))
      assert.equal(2, loss:count(targets({ { 2, 2 }, { 3, 0 } }, "i32")))
      assert.equal(4, nn.CrossEntropyLoss {}:count(targets { 0, 2, 1, 4 }))
      assert.equal(3, nn.CrossEntropyLoss {}:count(targets { 0, -100, 1, 4 }))
    end)
  end)

  it("of pieces with the count of the whole adds up to the whole, gradients too", function()
    gm.scope(function()
      local loss, target = nn.CrossEntropyLoss { ignore_index = 2 }, targets { 0, 2, 1, 4, 3, 2 }
      local x = logits(6):requires_grad(true)
      local whole = loss(x, target)
      local value = whole:item()
      whole:backward()
      local wanted = numeric.flat(x:grad())
      x = logits(6):requires_grad(true)
      local count = loss:count(target)
      local a = loss(x:narrow(1, 1, 2), target:narrow(1, 1, 2), count)
      local b = loss(x:narrow(1, 3, 4), target:narrow(1, 3, 4), count)
      local sum = a + b
      assert.near(value, sum:item(), 1e-14)
      sum:backward()
      numeric.agree(x:grad(), wanted, 1e-14)
    end)
  end)

  it("is 0, with gradient 0, when every target is ignored", function()
    gm.scope(function()
      local x = logits(2):requires_grad(true)
      local loss = nn.CrossEntropyLoss {}(x, targets { -100, -100 })
      assert.equal(0, loss:item())
      loss:backward()
      for _, g in ipairs(numeric.flat(x:grad())) do assert.equal(0, g) end
    end)
  end)

  it("counts right answers, none of them ignored, also where ignore_index is a class", function()
    gm.scope(function()
      local x = gm.tensor({ { 3, 0, 0 }, { 3, 0, 0 }, { 0, 3, 0 }, { 0, 0, 3 } }, { dtype = "f64" })
      local target = targets { 0, 0, 1, 1 }
      assert.equal(1, nn.CrossEntropyLoss({ ignore_index = 0 }):hits(x, target)[1]:item())
      assert.equal(3, nn.CrossEntropyLoss({}):hits(x, target)[1]:item())
      local of_pairs = gm.tensor({ { 3, 0 }, { 0, 3 } }, { dtype = "f64" })
      local found = nn.BERTLoss({ ignore_index = 0 }):hits({ x:reshape(2, 2, 3), of_pairs },
        targets { { 0, 0, 0 }, { 1, 1, 1 } })
      assert.same({ 1, 1 }, { found[1]:item(), found[2]:item() })
      assert.error_matches(function() nn.CrossEntropyLoss({}):hits(x, target:reshape(4, 1)) end,
        "labels %(4, 1%) are not one for each of the outputs' rows %(4%)")
    end)
  end)

  it("refuses a smoothing that leaves the target nothing", function()
    assert.error_matches(function() nn.CrossEntropyLoss {}(gm.zeros { 3, 10 }, gm.zeros { 3 }) end,
      "targets of f32 are probabilities.* shape %(3, 10%); got %(3%)%. Numbers of classes are i64 or i32")
    assert.error_matches(function() nn.CrossEntropyLoss { label_smoothing = 1 } end, "label_smoothing.*below 1; got 1")
  end)

  it("refuses the list that a model with a loss of its own returns, as other losses do", function()
    local list = { gm.zeros { 2, 3 }, gm.zeros { 2, 3 } }
    for name, target in pairs { CrossEntropyLoss = targets { 1, 2 }, MSELoss = gm.zeros { 2, 3 },
      BCEWithLogitsLoss = gm.zeros { 2, 3 }, DiceLoss = targets { { 1 }, { 1 } } } do
      assert.error_matches(function() nn[name] {}(list, target) end, name .. ": output must be a tensor; got { tensor "
        .. ".*%. Models that return a list have a loss of their own, such as DiffusionLoss")
    end
  end)

  it("refuses a target that is no class", function()
    gm.scope(function()
      -- a GPU tells when it is waited for
      assert.error_matches(function() return nn.CrossEntropyLoss {}(logits(2), targets { 0, 5 }):item() end, "5")
    end)
  end)
end)

describe("nn.MSELoss", function()
  it("is the mean over elements, and divides by a given count", function()
    gm.scope(function()
      local loss = nn.MSELoss {}
      local a, b = gm.tensor { { 1, 2 }, { 3, 4 } }, gm.tensor { { 0, 2 }, { 3, 1 } }
      assert.equal(4, loss:count(b))
      assert.equal(2.5, loss(a, b):item())
      assert.equal(1, loss(a, b, 10):item())
    end)
  end)

  it("refuses shapes that differ, which would broadcast", function()
    gm.scope(function()
      assert.error_matches(function() nn.MSELoss {}(gm.ones { 4 }, gm.ones { 4, 1 }) end,
        "output %(4%) and target %(4, 1%)")
    end)
  end)
end)

describe("losses of differences", function()
  local function of(fn) return function() gm.scope(fn) end end

  -- The formulas of the papers, in Lua numbers.
  local formulas = {
    L1Loss = { {}, function(z) return z end },
    HuberLoss = { { delta = 0.7 }, function(z) return z <= 0.7 and z * z / 2 or 0.7 * (z - 0.35) end },
    SmoothL1Loss = { { beta = 0.5 }, function(z) return z < 0.5 and z * z / 1 or z - 0.25 end },
  }

  for name, entry in pairs(formulas) do
    local options, formula = unpack(entry)
    it(name .. " is its formula, and its gradient the slope of it", of(function()
      local loss, a, b, want = nn[name](options), {}, {}, 0
      for i = 1, 40 do
        a[i], b[i] = math.sin(i), 1.5 * math.cos(2.3 * i)
        want = want + formula(math.abs(a[i] - b[i]))
      end
      local x, y = gm.tensor(a, { dtype = "f64" }), gm.tensor(b, { dtype = "f64" })
      assert.equal(40, loss:count(y))
      numeric.agree(loss(x, y), want / 40, 1e-14)
      numeric.agree(loss(x, y, 10), want / 10, 1e-14)
      gm.gradcheck(function(p) return loss(p, y) end, { x:requires_grad(true) })
      assert.error_matches(function() loss(x, gm.ones({ 40, 1 }, { dtype = "f64" })) end, name .. ": output %(40%)")
    end))
  end

  it("have no slope where nothing differs, and that of the line at the bound", of(function()
    local x = gm.tensor({ 1, 2, 3 }, { dtype = "f64" }):requires_grad(true)
    local y = gm.tensor({ 1, 1, 5 }, { dtype = "f64" })
    for name, want in pairs { L1Loss = { 0, 1, -1 }, HuberLoss = { 0, 1, -1 }, SmoothL1Loss = { 0, 1, -1 } } do
      gm.core.zero_grad { x }
      nn[name] {}(x, y, 1):backward()
      assert.same(want, x:grad():totable())
    end
  end))

  it("are in f32 of numbers of 16 bits", of(function()
    local one = gm.ones({ 4 }, { dtype = "bf16" })
    assert.equal("f32", nn.HuberLoss {}(one, one):dtype())
  end))

  it("refuse bounds that are none", function()
    assert.error_matches(function() nn.HuberLoss { delta = 0 } end, "delta.*above 0")
    assert.error_matches(function() nn.SmoothL1Loss { beta = -1 } end, "beta.*above 0")
  end)
end)

describe("losses of several outputs", function()
  it("refuse a tensor, whose rows they would take for outputs", function()
    gm.scope(function()
      local x = gm.ones { 3, 3 }
      for name, what in pairs { DiffusionLoss = "prediction", VAELoss = "image", BERTLoss = "logits" } do
        local loss, why = nn[name] {}, name .. ": output must be a list { " .. what
        for given, said in pairs { [x] = "got a tensor %(3, 3%)", [{ x }] = "got { tensor" } do
          assert.error_matches(function() loss(given, name == "BERTLoss" and targets { { 0, 0 } } or x) end,
            why .. ".*" .. said)
        end
      end
    end)
  end)
end)
