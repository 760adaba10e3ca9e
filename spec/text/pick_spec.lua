--- The choice of a token from scores, against the rules written down in Lua, and the frequencies of draws.
local core = require "ganymede.core"
local gm = require "ganymede"

local function pick(scores, rule, seen, dtype)
  return gm.scope(function() return core.pick(gm.tensor(scores, { dtype = dtype or "f64" }), rule, seen or {}) end)
end

-- token (from 0) -> probability, by the rules as they are described in pick.h.
local function probabilities(scores, rule)
  local list, sum = {}, 0
  for i, s in ipairs(scores) do list[i] = { token = i - 1, p = math.exp(s / rule.temperature) } end
  table.sort(list, function(a, b) return a.p > b.p or a.p == b.p and a.token < b.token end)
  while rule.top_k and rule.top_k > 0 and #list > rule.top_k do list[#list] = nil end
  for _, c in ipairs(list) do sum = sum + c.p end
  local reached, kept = 0, {}
  for _, c in ipairs(list) do
    if reached < (rule.top_p or 1) * sum * (1 - 1e-12) then kept[#kept + 1] = c end
    reached = reached + c.p
  end
  local out, total = {}, 0
  for _, c in ipairs(kept) do
    if c.p >= (rule.min_p or 0) * kept[1].p then out[c.token], total = c.p, total + c.p end
  end
  for token, p in pairs(out) do out[token] = p / total end
  return out
end

describe("a pick", function()
  local scores = { 1.5, -2, 0.25, 3, 3, -0.5, 2.75, 0 }

  it("takes the largest score, the first of equals, in every dtype", function()
    for _, dtype in ipairs { "f32", "f64", "bf16", "f16" } do assert.equal(3, pick(scores, {}, nil, dtype)) end
    assert.equal(0, pick({ 7 }, {}))
    assert.equal(1, pick({ -1 / 0, -5, 0 / 0 }, {}))
  end)

  it("divides scores of tokens seen, or multiplies them below zero, once each", function()
    assert.equal(4, pick(scores, { penalty = 1.05 }, { 3, 3, 3 }))
    assert.equal(6, pick(scores, { penalty = 1.2 }, { 3, 4, 4, 900 })) -- 2.5, 2.5, 2.75
    assert.equal(1, pick({ -1, -1.5 }, { penalty = 2 }, { 0 }))
    assert.equal(0, pick({ 2, 1.9 }, { penalty = 1.04 }, { 0, 0, 0 })) -- 1.923; by 1.04 twice it would be 1.849
  end)

  -- 4,000 draws: a share p differs from its mean by less than 5 standard deviations.
  local rules = {
    { temperature = 1 }, { temperature = 0.5 }, { temperature = 2, top_k = 3 }, { temperature = 1, top_p = 0.7 },
    { temperature = 1, min_p = 0.3 }, { temperature = 1.5, top_k = 6, top_p = 0.9, min_p = 0.1 },
    { temperature = 1, top_k = 100 }, { temperature = 1, top_p = 1e-9 },
  }
  for n, rule in ipairs(rules) do
    it("draws with the probabilities of rule " .. n, function()
      local want, count, draws = probabilities(scores, rule), {}, 4000
      for i = 1, draws do
        rule.seed, rule.prompt, rule.position = 5, i % 7, i
        local token = pick(scores, rule)
        count[token] = (count[token] or 0) + 1
      end
      for token in pairs(count) do assert.is_truthy(want[token], token .. " must not be drawn") end
      for token, p in pairs(want) do
        local got = (count[token] or 0) / draws
        assert.is_true(math.abs(got - p) <= 5 * math.sqrt(p * (1 - p) / draws) + 1e-9,
          ("token %d: %.4f, should be %.4f"):format(token, got, p))
      end
    end)
  end

  it("is a function of seed, prompt and position", function()
    local function draws(seed, prompt)
      local list = {}
      for i = 1, 40 do
        list[i] = pick(scores, { temperature = 1, seed = seed, prompt = prompt, position = i })
      end
      return list
    end
    assert.same(draws(1, 0), draws(1, 0))
    assert.not_same(draws(1, 0), draws(2, 0))
    assert.not_same(draws(1, 0), draws(1, 1))
  end)

  it("keeps the likeliest of very many", function()
    local many = {}
    for i = 1, 50000 do many[i] = ((i * 7919) % 50021) / 5000 end
    local rule, seen = { temperature = 1, top_k = 20, top_p = 0.5, seed = 1 }, {}
    local want = probabilities(many, rule)
    for i = 1, 100 do
      rule.position = i
      seen[pick(many, rule)] = true
    end
    for token in pairs(seen) do assert.is_truthy(want[token], token) end
  end)

  it("refuses what is out of range, and scores that are no numbers", function()
    for words, rule in pairs {
      ["temperature is %-1"] = { temperature = -1 }, ["temperature is %-?nan"] = { temperature = 0 / 0 },
      ["top_p is 0"] = { temperature = 1, top_p = 0 }, ["top_p is 1%.5"] = { temperature = 1, top_p = 1.5 },
      ["min_p is 2"] = { min_p = 2 }, ["top_k is %-1"] = { top_k = -1 }, ["penalty is 0"] = { penalty = 0 },
    } do
      assert.error_matches(function() pick(scores, rule) end, words)
    end
    assert.error_matches(function() pick({ 0 / 0, 0 / 0 }, {}) end, "not finite")
    assert.error_matches(function() pick({ 1, 1 / 0 }, {}) end, "not finite")
    assert.error_matches(function() pick({}, {}) end, "no tokens")
  end)
end)
