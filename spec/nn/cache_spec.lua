--- Kept keys and values: tokens in pieces give what all of them at once give.
local caches = require "ganymede.nn.cache"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local f64 = numeric.f64

local models = {
  llama = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
      qk_norm = true, rotary = { base = 100 } }
  end,
  ["llama with packed queries"] = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 2, kv_heads = 2, hidden = 24 }
  end,
  ["llama with windows"] = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 3, heads = 4, kv_heads = 2, hidden = 24,
      window = { 5, 0, 1 }, attention_softcap = 0.5, logit_softcap = 0.1 }
  end,
  gpt = function() return gm.models.GPT { vocabulary = 50, width = 16, depth = 2, heads = 4, sequence_length = 32 } end,
}

local function tokens(first, last)
  local list = {}
  for i = first, last do list[#list + 1] = (7 * i) % 50 end
  return list
end

local function batch(...) return gm.tensor({ ... }, { dtype = "i64" }) end

-- The same sums in another order: attention goes over kept keys in other blocks.
local TOLERANCE = 1e-13

it("a cache takes no text over the border of LongRoPE, and one that begins behind it", f64(function()
  local model = gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
    rotary = { base = 100, scaling = { type = "longrope", length = 6, factor = 4, short = { 1, 1.3 },
               long = { 2, 5 } } } }
  model:eval()
  local function refused(kept)
    local ok, err = pcall(caches.with, kept, 1, model, batch({ 12 }, { 11 }))
    assert.is_false(ok)
    assert.matches("row 2 grows from 6 to 7 positions, and LongRoPE turns a text of more than 6 otherwise", err)
  end
  local long, short = tokens(1, 9), tokens(20, 25)
  local kept, other = caches.new { 0, 3 }, gm.no_grad(model, batch(short))
  local y = caches.with(kept, 9, model, batch(long, { 3, 3, 3, unpack(short) })) -- both at once
  numeric.agree(y[1], gm.no_grad(model, batch(long))[1], TOLERANCE)
  numeric.agree(y[2]:narrow(1, 4, 6):contiguous(), other[1], TOLERANCE)
  refused(kept)
  kept.idle = { [2] = true } -- nobody reads what it gives
  y = caches.with(kept, 1, model, batch({ 12 }, { 11 }))
  long[10] = 12
  numeric.agree(y[1], gm.no_grad(model, batch(long))[1]:narrow(1, 10, 1):contiguous(), TOLERANCE)
  kept:close()
end))

it("a dynamic base turns each text of a call by its own length, and keeps no key of a longer one", f64(function()
  local function llama(scaling)
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
      rotary = { base = 100, scaling = scaling } }:eval()
  end
  local model, plain = llama { type = "dynamic", length = 6, factor = 4 }, llama(nil)
  gm.no_grad(function()
    for i, p in ipairs(plain:parameters()) do p:copy_(model:parameters()[i]) end
  end)
  local texts, kept = { tokens(1, 9), tokens(20, 24), tokens(30, 37) }, caches.new { 0, 4, 1 }
  local y = caches.with(kept, 9, model, batch(texts[1], { 3, 3, 3, 3, unpack(texts[2]) }, { 3, unpack(texts[3]) }))
  for r, text in ipairs(texts) do -- of 9, 5 and 8 positions, all at once
    numeric.agree(y[r]:narrow(1, 10 - #text, #text):contiguous(), gm.no_grad(model, batch(text))[1], TOLERANCE)
  end
  numeric.agree(gm.no_grad(model, batch(texts[2])), gm.no_grad(plain, batch(texts[2])), TOLERANCE)
  local ok, err = pcall(caches.with, kept, 1, model, batch({ 12 }, { 11 }, { 10 }))
  assert.is_false(ok)
  assert.matches("row 1 grows from 9 to 10 positions, and a dynamic base turns a text of more than 6 otherwise", err)
  kept:close()
  local row = { { 1, 2, 3, 4, 5, 6 }, { 0, 0, 0, 0, 1, 1 } }
  numeric.agree(gm.no_grad(model, batch(row)), gm.no_grad(plain, batch(row)), TOLERANCE)
  for _, list in ipairs(row) do list[7] = list[6] end
  assert.error_matches(function() gm.no_grad(model, batch(row)) end,
    "rows of 7 positions hold several documents, and a dynamic base turns each of more than 6 by its length")
end))

for name, make in pairs(models) do
  describe("a cache for " .. name, function()
    it("continues where it was, over borders of its room", f64(function()
      local model = make():eval()
      local whole = gm.no_grad(model, batch(tokens(1, 30)))
      local kept = caches.new(nil, 4)
      for _, part in ipairs { { 1, 7 }, { 8, 8 }, { 9, 9 }, { 10, 30 } } do
        local y = caches.with(kept, part[2] - part[1] + 1, model, batch(tokens(part[1], part[2])))
        numeric.agree(y, whole:narrow(2, part[1], part[2] - part[1] + 1):contiguous(), TOLERANCE)
      end
      assert.equal(30, kept.length)
      assert.is_true(kept:bytes() >= 2 * 2 * 30 * 8) -- two layers, keys and values
      kept:close()
      assert.equal(0, kept:bytes())
      assert.is_nil(caches.current())
    end))

    it("hides what stands before a shorter prompt", f64(function()
      local model = make():eval()
      local long, short = tokens(1, 9), tokens(20, 24)
      local kept = caches.new { 0, 4 }
      local a = caches.with(kept, #long, model, batch(long, { 3, 3, 3, 3, unpack(short) }))
      local b = caches.with(kept, 1, model, batch({ 11 }, { 12 }))
      long[10], short[6] = 11, 12
      local first, second = gm.no_grad(model, batch(long)), gm.no_grad(model, batch(short))
      numeric.agree(a[1], first[1]:narrow(1, 1, 9):contiguous(), TOLERANCE)
      numeric.agree(a[2]:narrow(1, 5, 5):contiguous(), second[1]:narrow(1, 1, 5):contiguous(), TOLERANCE)
      numeric.agree(b[1], first[1]:narrow(1, 10, 1):contiguous(), TOLERANCE)
      numeric.agree(b[2], second[1]:narrow(1, 6, 1):contiguous(), TOLERANCE)
    end))
  end)
end

describe("a cache", function()
  it("records nothing, and is gone after an error", f64(function()
    local model = models.gpt():eval()
    local kept = caches.new()
    assert.is_false(caches.with(kept, 3, model, batch(tokens(1, 3))):requires_grad())
    local function fail() error("stop here", 0) end
    assert.error_matches(function() caches.with(kept, 1, fail, batch { 1 }) end, "stop here")
    assert.is_nil(caches.current())
    assert.equal(3, kept.length)
    local function surplus() caches.with(kept, 30, model, batch(tokens(1, 30))) end
    assert.error_matches(surplus, "longer than the 32 positions")
  end))

  it("is refused by attention that sees what comes", f64(function()
    local layer = gm.nn.MultiHeadAttention { width = 8, heads = 2 }
    local ok, err = pcall(caches.with, caches.new(), 2, layer, gm.ones { 1, 2, 8 })
    assert.is_false(ok)
    assert.matches("a cache needs causal attention", err)
  end))
end)
