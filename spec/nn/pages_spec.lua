--- Keys and values in pages: tokens in pieces, in rows of any lengths, give what all of them at once give.
local core = require "ganymede.core"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local pages = require "ganymede.nn.pages"

local f64 = numeric.f64

local models = {
  llama = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
      qk_norm = true, rotary = { base = 100 } }
  end,
  windowed = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
      window = { 4, 0 }, attention_softcap = 0.8, norm_offset = true, branch_norms = true }
  end,
  joint = function()
    return gm.models.Llama { vocabulary = 50, width = 16, depth = 2, heads = 4, kv_heads = 2, hidden = 24,
      qk_norm = true, qk_norm_joint = true, input_norms = false, branch_norms = true }
  end,
  gpt = function() return gm.models.GPT { vocabulary = 50, width = 16, depth = 2, heads = 4, sequence_length = 32 } end,
}

local function tokens(first, last)
  local list = {}
  for i = first, last do list[#list + 1] = (7 * i) % 50 end
  return list
end

local function batch(...) return gm.tensor({ ... }, { dtype = "i64" }) end

-- The same sums in another order.
local TOLERANCE = 1e-13

-- The logits of the last `count` tokens of a list.
local function last_of(model, list, count)
  return gm.no_grad(model, batch(list)):narrow(2, #list - count + 1, count):contiguous()
end

for name, make in pairs(models) do
  describe("pages for " .. name, function()
    it("continue rows of any lengths, also where others have ended", f64(function()
      local model, pool = make():eval(), pages.new { page = 3, pages = 9 }
      local a, b, c = pool:row(), pool:row(), pool:row()
      assert.is_true(pool:reserve(a, 10) and pool:reserve(b, 6))
      assert.equal(3, #pool.free)
      local long, short = tokens(1, 9), tokens(20, 24)
      local first = pages.with(pool, { a, b }, { 9, 5 }, 9, model, batch(long, { 3, 3, 3, 3, unpack(short) }))
      numeric.agree(first:narrow(1, 1, 1), last_of(model, long, 9), TOLERANCE)
      numeric.agree(first:narrow(1, 2, 1):narrow(2, 5, 5):contiguous(), last_of(model, short, 5), TOLERANCE)
      long[10], short[6] = 11, 12
      local next_ = pages.with(pool, { b, a }, { 1, 1 }, 1, model, batch({ 12 }, { 11 }))
      numeric.agree(next_:narrow(1, 1, 1), last_of(model, short, 1), TOLERANCE)
      numeric.agree(next_:narrow(1, 2, 1), last_of(model, long, 1), TOLERANCE)
      pool:drop(b)
      assert.equal(5, #pool.free)
      local third = tokens(30, 36) -- in the pages that b had
      assert.is_true(pool:reserve(c, 9) and pool:reserve(a, 12))
      assert.is_false(pool:reserve(pool:row(), 7)) -- three pages, and two are left
      pages.with(pool, { c }, { 7 }, 7, model, batch(third))
      for _, id in ipairs { 41, 42 } do -- two tokens of one row and one of the other, which kept some before
        long[#long + 1], third[#third + 1] = id, id + 1
      end
      local both = pages.with(pool, { a, c }, { 2, 2 }, 2, model, batch({ 41, 42 }, { 42, 43 }))
      numeric.agree(both:narrow(1, 1, 1), last_of(model, long, 2), TOLERANCE)
      numeric.agree(both:narrow(1, 2, 1), last_of(model, third, 2), TOLERANCE)
      assert.equal(2 * 2 * 9 * 3 * model.blocks[1].attention.kv_heads * 4 * 8, pool:bytes())
      assert.equal(pool:bytes(), 9 * pages.bytes_of_page(model, 3))
      pool:close()
      assert.equal(0, pool:bytes())
    end))
  end)
end

describe("pages", function()
  local function refused(words, ...)
    local given = { n = select("#", ...), ... }
    local ok, err = pcall(function()
      given[1](unpack(given, 2, given.n))
      core.synchronize() -- a GPU says what it refuses where something waits
    end)
    assert.is_false(ok)
    assert.matches(words, err)
  end

  it("refuse rows without room, other shapes, and options that they do not know", f64(function()
    local pool, x = gm.zeros { 4, 2, 3, 5 }, gm.ones { 1, 2, 2, 5 }
    local index, count = batch { 0 }, gm.tensor({ 4 }, { dtype = "i64" })
    refused("row 1 keeps 4 positions, but has 1 pages of 3", core.pages_write, pool, x, index, count)
    refused("row 1 names page 4 of a pool of 4", core.pages_write, pool, x, batch { 1, 4 }, count)
    refused("row 1 names page %-1", core.attention_paged, x, pool, pool, batch { 1, -1 }, count)
    refused("index %(1, 1%), should be %(2", core.pages_write, pool, gm.ones { 2, 2, 2, 5 }, index, count)
    refused("into the pool", core.pages_write, pool, gm.ones { 1, 2, 3, 5 }, index, count)
    refused("3 query heads are no multiple of 2", core.attention_paged, gm.ones { 1, 1, 3, 5 }, pool, pool,
      batch { 0, 1 }, count)
    local own = pages.new { page = 2, pages = 2 }
    refused("knows no option dropout", own.attend, own, {}, x, x, x, { causal = true, dropout = 0.5 })
    local places = { x, pool, pool, batch { 0, 1 }, count }
    local function with(scale, window, softcap) -- of attention_paged
      places[6], places[7], places[8] = scale, window, softcap
      return unpack(places, 1, 8)
    end
    refused("window is %-1, should be a number of keys", core.attention_paged, with(0, -1, 0))
    refused("softcap is %-2, should not be negative", core.attention_paged, with(0, 0, -2))
  end))

  it("write at the end of each row, and nothing for places before its first token", f64(function()
    local pool = gm.full({ 3, 1, 2, 1 }, 7)
    local x = gm.tensor { { { { 1 } }, { { 2 } }, { { 3 } } } }
    core.pages_write(pool, x, batch { 2, 0 }, gm.tensor({ 2 }, { dtype = "i64" }))
    assert.same({ { { { 7 }, { 7 } } }, { { { 7 }, { 7 } } }, { { { 2 }, { 3 } } } }, pool:totable())
    core.pages_write(pool, x:narrow(2, 1, 1), batch { 2, 0 }, gm.tensor({ 3 }, { dtype = "i64" }))
    assert.same({ { { { 1 }, { 7 } } }, { { { 7 }, { 7 } } }, { { { 2 }, { 3 } } } }, pool:totable())
  end))
end)
