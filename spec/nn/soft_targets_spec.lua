--- Targets that are probabilities: CrossEntropyLoss and BCEWithLogitsLoss against PyTorch 2's numbers, cut by rows and
-- by classes, and in pieces.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local x0, t0 = { { 0.5, -1.25, 2.0 }, { 0.0, 0.25, -3.0 } }, { { 0.2, 0.3, 0.5 }, { 1, 0, 0 } }
-- torch.nn.functional.cross_entropy(x, t, label_smoothing = s) and its gradient
local soft = {
  [0] = { 1.177562586572888, { -0.01158990894627786, -0.1346366298367818, 0.1462265387830596, -0.285758280409539,
    0.27509181326904, 0.01066646714049902 } },
  [0.1] = { 1.238812586572888, { -0.01825657561294453, -0.1363032965034485, 0.154559872116393, -0.2524249470762057,
    0.2584251466023733, -0.006000199526167649 } },
}
-- torch.nn.functional.binary_cross_entropy_with_logits({ 0, 1.5, -40, 800 }, { 1, 0.25, 1, 0 }, pos_weight = w)
local yes_or_no = {
  [1] = { 210.5048901146357, { -0.125, 0.1418936190484109, -0.25, 0.25 } },
  [3] = { 230.8766403646635, { -0.375, 0.1190904285726164, -0.75, 0.25 } },
}

local cuts = { { cuts = {} } }
if core.world() > 1 then cuts = { { cuts = {} }, { cuts = { { "data" } } }, { cuts = { {}, { "data" } } } } end

local function f64(list) return gm.tensor(list, { dtype = "f64" }) end

describe("targets that are probabilities", function()
  before_each(function() gm.context.load_config {} end)

  for smoothing, want in pairs(soft) do
    it(("give PyTorch's loss and gradient, smoothed by %g"):format(smoothing), numeric.f64(function()
      local criterion = nn.CrossEntropyLoss { label_smoothing = smoothing }
      for _, layout in ipairs(cuts) do
        local x = core.redistribute(f64(x0), layout):detach():requires_grad(true)
        local target = core.redistribute(f64(t0), layout.cuts[1] and #layout.cuts[1] > 0 and layout or { cuts = {} })
        local loss = criterion(x, target)
        assert.near(want[1], loss:item(), 1e-14)
        loss:settle():backward()
        numeric.agree(core.gather(x:grad()), want[2], 1e-14)
        assert.equal(2, criterion:count(target))
      end
    end))
  end

  it("equal the loss of classes where all of the probability is one class's", numeric.f64(function()
    local criterion, x = nn.CrossEntropyLoss(), gm.normal({ 6, 5 }, { seed = 3 })
    local classes = gm.tensor({ 0, 4, 2, 2, 1, 3 }, { dtype = "i64" })
    local hot = gm.ops.one_hot(classes, 5)
    assert.near(criterion(x, classes):item(), criterion(x, hot):item(), 1e-14)
    local a = criterion(x:narrow(1, 1, 2), hot:narrow(1, 1, 2), 6)
    local b = criterion(x:narrow(1, 3, 4), hot:narrow(1, 3, 4), 6)
    assert.near(criterion(x, classes):item(), (a + b):item(), 1e-14)
    assert.equal(gm.metrics.correct(x, classes), gm.metrics.correct(x, hot))
    assert.error_matches(function() criterion(x, gm.ones { 6, 4 }) end, "output.s shape %(6, 5%); got %(6, 4%)")
  end))

  for weight, want in pairs(yes_or_no) do
    it(("of yes or no give PyTorch's loss and gradient, with weight %d"):format(weight), numeric.f64(function()
      local criterion = nn.BCEWithLogitsLoss { positive_weight = weight }
      for _, layout in ipairs { cuts[1], cuts[2] } do
        local x = core.redistribute(f64 { 0, 1.5, -40, 800 }, layout):detach():requires_grad(true)
        local target = core.redistribute(f64 { 1, 0.25, 1, 0 }, layout)
        local loss = criterion(x, target)
        assert.near(want[1], loss:item(), 1e-13 * want[1])
        loss:settle():backward()
        numeric.agree(core.gather(x:grad()), want[2], 1e-14)
        -- 0 is no yes, and the others say the opposite of their targets
        assert.equal(0, criterion:hits(x, target)[1]:item())
        assert.equal(3, criterion:hits(x, core.redistribute(f64 { 0, 1, 0.5, 0 }, layout))[1]:item())
      end
    end))
  end

  it("of yes or no may be integers, and must have the shape of the logits", function()
    local criterion = nn.BCEWithLogitsLoss()
    local x, is = gm.tensor { 0.5, -2 }, gm.tensor({ 1, 0 }, { dtype = "i64" })
    assert.equal(criterion(x, gm.tensor { 1, 0 }):item(), criterion(x, is):item())
    assert.equal(2, criterion:hits(x, is)[1]:item())
    assert.error_matches(function() criterion(gm.ones { 2, 1 }, is) end, "output %(2, 1%) and target %(2%)")
  end)
end)
