-- Several documents in one row: GPT and Llama give each of them the logits, the loss and the gradients that they give
-- the documents alone, in f64 up to the order of sums.
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"

local lengths = { { 4, 1, 7 }, { 9, 3 } } -- of the documents in each row of 12

local function token(row, i) return (7 * i * i + 5 * row + 3) % 37 end

-- (2, 2, 12) i64: tokens, and the numbers of their documents.
local function packed_rows()
  local rows = {}
  for r, list in ipairs(lengths) do
    local tokens, segments = {}, {}
    for n, length in ipairs(list) do
      for _ = 1, length do
        tokens[#tokens + 1], segments[#segments + 1] = token(r, #tokens), 10 * r + n % 2
      end
    end
    rows[r] = { tokens, segments }
  end
  return gm.tensor(rows, { dtype = "i64" })
end

local function each_document(fn)
  for r, list in ipairs(lengths) do
    local first = 1
    for _, length in ipairs(list) do
      fn(r, first, length)
      first = first + length
    end
  end
end

local cases = {
  GPT = function()
    return models.GPT { vocabulary = 37, sequence_length = 12, width = 16, depth = 2, heads = 4, std = 0.3 }
  end,
  ["Llama with windows and caps"] = function()
    return models.Llama { vocabulary = 37, sequence_length = 12, width = 16, depth = 2, heads = 4, kv_heads = 2,
                          hidden = 24, window = { 3, 0 }, attention_softcap = 2, std = 0.3, qk_norm = true }
  end,
  ["Llama with partial, interleaved rotation"] = function()
    return models.Llama { vocabulary = 37, sequence_length = 12, width = 16, depth = 2, heads = 4, kv_heads = 2,
                          hidden = 24, rotary = { fraction = 0.5, interleaved = true }, std = 0.3 }
  end,
}

cases["Llama with factors for short and for long documents"] = function() -- up to 4, and from 5 on
  return models.Llama { vocabulary = 37, sequence_length = 12, width = 16, depth = 2, heads = 4, kv_heads = 2,
                        hidden = 24, std = 0.3, rotary = { base = 100, scaling = { type = "longrope", length = 4,
                        factor = 3, short = { 1, 1.3 }, long = { 2, 5 } } } }
end

local function gradients(model)
  local list = {}
  for i, p in ipairs(model:named_parameters()) do list[i] = { p.name, numeric.flat(p.tensor:grad():totable()) } end
  return list
end

describe("documents in one row", function()
  local before
  before_each(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
    core.set_seed(3)
  end)
  after_each(function() gm.set_default_dtype(before) end)

  for name, make in pairs(cases) do
    it("are for " .. name .. " what each of them is alone", function()
      gm.scope(function()
        local model, x = make(), packed_rows()
        local weights = gm.normal({ 2, 12, 37 }, { seed = 8 })
        local logits = model(x);
        (logits * weights):sum():backward()
        local want = gradients(model)
        core.zero_grad(model:parameters())
        each_document(function(r, first, n)
          local alone = model(x:narrow(1, r, 1):select(2, 1):narrow(2, first, n))
          local part = logits:narrow(1, r, 1):narrow(2, first, n)
          assert.is_true(numeric.relative_error(numeric.flat(part:totable()), numeric.flat(alone:totable())) <= 1e-13);
          (alone * weights:narrow(1, r, 1):narrow(2, first, n)):sum():backward()
        end)
        for i, got in ipairs(gradients(model)) do
          assert.equal(want[i][1], got[1])
          assert.is_true(numeric.relative_error(want[i][2], got[2]) <= 1e-12, got[1])
        end
      end)
    end)
  end

  it("do not see padding, and padding sees nothing", function()
    gm.scope(function()
      local model = cases.GPT()
      local tokens = { 3, 1, 4, 1, 5, 9 }
      local function run(last, segment)
        return model(gm.tensor({ { { 3, 1, 4, 1, last, last }, { 0, 0, 1, 1, segment, segment } } }, { dtype = "i64" }))
      end
      local padded = run(5, -1):totable()[1]
      for i, want in ipairs(run(9, -1):totable()[1]) do
        if i <= 4 then assert.same(want, padded[i]) end
      end
      local whole = model(gm.tensor({ { tokens, { 0, 0, 1, 1, 1, 1 } } }, { dtype = "i64" })):totable()[1]
      for i = 1, 4 do
        assert.is_true(numeric.relative_error(padded[i], whole[i]) <= 1e-13)
      end
      assert.same(padded[5], padded[6]) -- the same token at the same place, which sees nothing
    end)
  end)

  it("are refused where they have no meaning, with what would be right", function()
    gm.scope(function()
      local model, x = cases.GPT(), packed_rows()
      local mask = gm.ones({ 2, 12 }, { dtype = "u8" })
      assert.error_matches(function() model(x, mask) end, "take no key mask", 1, true)
      assert.error_matches(function() model(gm.zeros({ 2, 3, 12 }, { dtype = "i64" })) end,
        "or (batch, 2, sequence)", 1, true)
      local attention = gm.nn.MultiHeadAttention { width = 8, heads = 2 }
      assert.error_matches(function() attention(gm.ones { 2, 5, 8 }, gm.zeros({ 2, 4, 3 }, { dtype = "i64" })) end,
        "documents (2, 5, 3), which ops.documents finds; got (2, 4, 3)", 1, true)
      local cache = require "ganymede.nn.cache"
      assert.error_matches(function() cache.with(cache.new(), 12, model, x) end, "give each of them a row", 1, true)
    end)
  end)
end)
