-- DiceLoss against PyTorch's numbers, plain loops and numeric slopes; cut by samples, space and classes; in pieces.
-- ranks: 1 2 4
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"
local padding = require "spec.support.padding"

local world = core.world()
local B, H, W, C = 3, 5, 2, 3
local IGNORED = -100

local function logits() return gm.normal({ B, H, W, C }, { seed = 5, dtype = "f64" }) end

-- Classes by a formula; class 2 is in no place of sample 2, and some places are ignored.
local function target()
  local list = {}
  for i = 0, B * H * W - 1 do
    local sample, class = math.floor(i / (H * W)), (i * 7 + math.floor(i / 3)) % C
    if sample == 1 and class == 2 then class = 0 end
    list[i + 1] = i % 11 == 4 and IGNORED or class
  end
  return gm.tensor(list, { dtype = "i64", shape = { B, H, W } })
end

-- The same by loops over nested lists.
local function by_hand(x, t, opt)
  local sum, first = 0, opt.background == false and 2 or 1
  for b = 1, B do
    for c = first, C do
      local both, all = 0, 0
      for h = 1, H do
        for w = 1, W do
          local z = x[b][h][w]
          local e = math.exp(z[1]) + math.exp(z[2]) + math.exp(z[3])
          local p, is = math.exp(z[c]) / e, t[b][h][w] == c - 1 and 1 or 0
          if t[b][h][w] ~= IGNORED then both, all = both + p * is, all + p + is end
        end
      end
      sum = sum + (1 - (2 * both + opt.smooth) / (all + opt.smooth)) / (C - first + 1)
    end
  end
  return sum / B
end

local options = { { smooth = 1 }, { smooth = 1e-5 }, { smooth = 0.5, background = false } }

-- How output and target may lie.
local layouts = { { {}, {} } }
if world > 1 then
  for _, cut in ipairs { { { "data" } }, { {}, { "data" } }, { {}, {}, { "data" } } } do
    layouts[#layouts + 1] = { cut, cut }
  end
  layouts[#layouts + 1] = { { {}, {}, {}, { "data" } }, {} }
  layouts[#layouts + 1] = { { {}, { "data" } }, {} }
end

local function laid(t, cuts) return core.redistribute(t, { cuts = cuts }):detach() end

-- Of PyTorch 2.15: softmax, one_hot, the sums over places and the mean of 1 less the quotients, and its gradient.
local small_x = { { { 0.5, -1.25, 2 }, { 0, 0.25, -3 }, { 1.5, 0.75, 0.5 } },
                  { { -0.5, 1, 0 }, { 2, -2, 0.5 }, { 0.25, 0.5, 0.75 } } }
local small_t = { { 0, 2, 1 }, { 1, IGNORED, 1 } }
local golden = {
  { { smooth = 1 }, 0.43866967740179036, { -0.01494798162840305, 0.0009185871134725049, 0.01402939451493054,
    -0.0009761071024407414, 0.003461527573234209, -0.002485420470793467, 0.01558346119582052, -0.0205922355558441,
    0.005008774360023584, 0.01304575859591968, -0.02888519178220122, 0.01583943318628154, 0, 0, 0,
    0.01415166201616284, -0.02720471946855387, 0.01305305745239103 } },
  { { smooth = 0.5, background = false }, 0.5546109559851957, { -0.003260416239205333, 0.0008580040147820292,
    0.002402412224423305, -0.009307849083838672, 0.01355656882309822, -0.004248719739259549, 0.02103580375236607,
    -0.0330666184474207, 0.01203081469505463, 0.005244741506409896, -0.03572946722847257, 0.03048472572206267, 0, 0, 0,
    -0.002243597705776857, -0.03365081111597218, 0.03589440882174903 } },
}

describe("DiceLoss", function()
  before_each(function() gm.context.load_config {} end)

  it("gives PyTorch's numbers and gradients", numeric.f64(function()
    for _, case in ipairs(golden) do
      local x, t = gm.tensor(small_x, { dtype = "f64" }):requires_grad(true), gm.tensor(small_t, { dtype = "i64" })
      local loss = nn.DiceLoss(case[1])(x, t)
      assert.near(case[2], loss:item(), 1e-15)
      loss:backward()
      numeric.agree(x:grad(), case[3], 1e-14)
    end
  end))

  for _, opt in ipairs(options) do
    it(("is the mean over samples and classes, also where ranks share them: smooth %g%s"):format(opt.smooth,
      opt.background == false and ", without background" or ""), numeric.f64(function()
      local criterion, x0, t0 = nn.DiceLoss(opt), logits(), target()
      local want = by_hand(x0:totable(), t0:totable(), opt)
      local slopes
      for _, layout in ipairs(layouts) do
        padding.poisoned(function()
          local x, t = laid(x0, layout[1]):requires_grad(true), laid(t0, layout[2])
          local loss = criterion(x, t)
          assert.near(want, loss:item(), 1e-14) -- some dozen roundings of numbers near 1
          loss:settle():backward()
          local gradient = core.gather(x:grad())
          slopes = slopes or gradient:detach():clone()
          numeric.agree(gradient, slopes, 1e-14)
          assert.equal(B, criterion:count(t))
        end)
      end
      for _, at in ipairs { { 1, 1, 1, 1 }, { 2, 3, 2, 3 }, { 3, 5, 1, 2 } } do -- slopes of f64: half of its digits
        local function moved(by)
          local list = x0:totable()
          list[at[1]][at[2]][at[3]][at[4]] = list[at[1]][at[2]][at[3]][at[4]] + by
          return by_hand(list, t0:totable(), opt)
        end
        assert.near((moved(1e-5) - moved(-1e-5)) / 2e-5, slopes:get(unpack(at)), 1e-9)
      end
    end))
  end

  it("of pieces adds up to that of the batch", numeric.f64(function()
    local criterion, x, t = nn.DiceLoss(), logits(), target()
    local a = criterion(x:narrow(1, 1, 1), t:narrow(1, 1, 1), B)
    local b = criterion(x:narrow(1, 2, 2), t:narrow(1, 2, 2), B)
    assert.near(criterion(x, t):item(), (a + b):item(), 1e-14)
  end))

  it("is 0 where all is right or ignored, and refuses what does not fit", numeric.f64(function()
    local criterion, t = nn.DiceLoss(), target()
    local keep = gm.ops.one_hot(gm.ops.cast(gm.ops.maximum(gm.ops.cast(t, "f64"), 0), "i64"), C)
    assert.near(0, criterion(keep * 200, t):item(), 1e-14)
    assert.equal(0, criterion(logits(), gm.full({ B, H, W }, IGNORED, { dtype = "i64" })):item())
    assert.error_matches(function() criterion(logits(), gm.zeros({ B, H, C }, { dtype = "i64" })) end,
      "output must be %(batch, space%.%.%., classes%)")
    assert.error_matches(function() criterion(logits(), gm.zeros({ B, H, W }, { dtype = "f64" })) end, "of f64")
    assert.error_matches(function() criterion(logits(), gm.full({ B, H, W }, 3, { dtype = "i64" })) end, "3")
    assert.error_matches(function() nn.DiceLoss { smooth = 0 } end, "above 0")
    assert.error_matches(function() nn.DiceLoss { background = false }(gm.ones { 1, 4, 1 },
      gm.zeros({ 1, 4 }, { dtype = "i64" })) end, "has 1 class")
  end))
end)
