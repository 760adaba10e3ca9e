-- step_control: is there an update, with which factor? Every table against the rule written out here in Lua, over
-- sequences of steps whose losses and gradients are good, too large, or not finite, and of ranks that disagree.
local gm = require "ganymede"
local core = require "ganymede.core"
local support = require "spec.kernels.support"

local LOSS, NORM, FACTOR, GO, SCALE, GOOD, SKIPPED, HALTED, CAUSE, ASKED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local inf, nan = math.huge, 0 / 0

local function finite(x) return x == x and math.abs(x) < inf end

local function decide(c, rule, loss, asked, apart, total)
  if c[HALTED] == 1 then
    c[GO] = 0
    return
  end
  local scale = c[SCALE]
  local norm = math.sqrt(total) / scale
  local clip = rule.max_norm > 0 and rule.max_norm / (norm + 1e-6) or 1
  c[LOSS], c[NORM], c[ASKED], c[CAUSE] = loss, norm, asked, 0
  c[FACTOR] = (clip > 1 and 1 or clip) / scale
  local may_shrink = rule.growth_interval > 0 and scale > 1
  local good = finite(norm) and (finite(loss) or may_shrink) -- where losses are scaled, gradients alone decide
  if apart ~= 0 then -- whatever else is
    c[CAUSE], c[GO], c[HALTED] = 4, 0, 1
  elseif good or rule.not_finite == 2 and not may_shrink then
    c[CAUSE] = good and 0 or 1
    c[GO], c[GOOD] = 1, c[GOOD] + 1
    if rule.growth_interval > 0 and c[GOOD] == rule.growth_interval then c[GOOD], c[SCALE] = 0, scale * rule.growth end
  elseif may_shrink then
    c[CAUSE], c[SCALE] = 2, math.max(scale * rule.backoff, 1)
    c[GO], c[GOOD], c[SKIPPED] = 0, 0, c[SKIPPED] + 1
  elseif rule.not_finite == 1 then
    c[CAUSE], c[GO], c[GOOD], c[SKIPPED] = 1, 0, 0, c[SKIPPED] + 1
  else
    c[CAUSE], c[GO], c[HALTED] = 1, 0, 1
  end
end

-- loss, ranks asked to stop, squares by tensor, the sum that is 0 where ranks agree (default 0)
local steps = {
  { 2.5, 0, { { 4 } } },
  { 2.25, 0, { { 1e4, 3, 0.5 }, { 7 } } },
  { 2, 1, { { 0 } } },
  { 1.5, 0, { { 1, inf }, { 2 } } },
  { 1.25, 0, { {}, { 16, 9 } } },
  { 1, 0, { { nan } } },
  { 3, 0, { { 0.25 } } },
  { nan, 0, { { 1 } } },
  { inf, 2, { { nan } } },
  { 0.5, 0, { { 1e-30 } } },
  { 0.25, 0, { { 1 } }, -3 },
  { 0.125, 0, { { 1 } } },
}

local rules = {
  { max_norm = 0, not_finite = 0, growth_interval = 0 },
  { max_norm = 1.5, not_finite = 1, growth_interval = 0 },
  { max_norm = 1.5, not_finite = 2, growth_interval = 0 },
  { max_norm = 0.1, not_finite = 1, growth_interval = 2, growth = 4, backoff = 0.25, scale = 8 },
  { max_norm = 0.1, not_finite = 0, growth_interval = 1, growth = 2, backoff = 0.5, scale = 1 },
  { max_norm = 0.1, not_finite = 2, growth_interval = 3, growth = 2, backoff = 0.5, scale = 2 ^ 16 },
}

local function attributes(rule)
  local out = {}
  for key, value in pairs(rule) do out[key] = key ~= "scale" and value or nil end
  return out
end

local function start(rule) return { 0, 0, 0, 0, rule.scale or 1, 0, 0, 0, 0, 0, 42 } end

describe("step_control", function()
  for r, rule in ipairs(rules) do
    it("follows rule " .. r, function()
      gm.scope(function()
        for _, layout in ipairs { "contiguous", "window" } do
          for _, backend in ipairs { "ref", unpack(support.backends) } do
            local want, got = start(rule), support.numbers(start(rule), layout)
            for s, step in ipairs(steps) do
              local inputs, total = { support.numbers({ step[1], step[2], step[4] or 0 }, layout), false }, 0
              for _, squares in ipairs(step[3]) do
                local sum = 0
                for _, x in ipairs(squares) do sum = sum + x end
                inputs[#inputs + 1], total = support.numbers(squares, layout), total + sum
              end
              decide(want, rule, step[1], step[2], step[4] or 0, total)
              core.run_op(backend, "step_control", inputs, { got }, attributes(rule))
              support.compare(got, support.numbers(want), support.exact, ("step %d on %s"):format(s, backend))
            end
          end
        end
      end)
    end)
  end

  it("takes a norm in place of squares", function()
    gm.scope(function()
      for _, backend in ipairs { "ref", unpack(support.backends) } do
        local got = support.numbers(start { scale = 4 })
        local norm = gm.tensor(1e200, { dtype = "f64" }) -- whose square no f64 holds
        core.run_op(backend, "step_control", { support.numbers { 1, 0, 0 }, norm }, { got }, { max_norm = 1 })
        local c = got:totable()
        assert.same({ 1e200 / 4, 1 / (1e200 / 4) / 4, 1 }, { c[NORM], c[FACTOR], c[GO] })
      end
    end)
  end)

  it("refuses what it cannot read", function()
    gm.scope(function()
      local loss, control = support.numbers { 1, 0, 0 }, function() return support.numbers(start {}) end
      local refuses, f32 = support.refuses, { dtype = "f32" }
      refuses("step_control", { gm.ones({ 3 }, f32), false }, { control }, {}, "loss is f32, should be f64")
      refuses("step_control", { loss, gm.ones({ 1 }, { dtype = "f64" }) }, { control }, {},
        "norm is %(1%), should be %(%)")
      refuses("step_control", { loss, false, gm.ones({ 2 }, f32) }, { control }, {}, "squares 1 are f32 %(2%)")
      refuses("step_control", { loss, false }, { function() return support.numbers { 1 } end }, {}, "should be %(11%)")
      refuses("step_control", { loss, false }, { control }, { not_finite = 3 }, "not_finite is 3")
      refuses("step_control", { loss, false }, { control }, { growth = 0.5 }, "growth is 0.5")
      refuses("sgd", { support.numbers { 1 }, false }, {}, {}, "control is %(1%), should be %(11%)")
    end)
  end)
end)
