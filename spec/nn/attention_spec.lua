--- Attention and transformer blocks: what cannot be read off golden numbers.
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local f64 = numeric.f64

local function normal(shape, seed) return gm.normal(shape, { seed = seed }) end

describe("nn.MultiHeadAttention", function()
  it("causal: later positions do not change earlier ones", f64(function()
    local layer = nn.MultiHeadAttention { width = 8, heads = 2, causal = true }
    local x = normal({ 1, 6, 8 }, 1)
    local before = layer(x):narrow(2, 1, 4):contiguous():totable()
    x:narrow(2, 5, 2):fill_(9)
    local after = layer(x)
    assert.same(before, after:narrow(2, 1, 4):contiguous():totable())
    assert.is_false(numeric.relative_error(after:narrow(2, 5, 1):contiguous(), before[1][4]) == 0)
  end))

  it("hidden keys do not matter, and a query that sees nothing gives the output bias", f64(function()
    local layer = nn.MultiHeadAttention { width = 8, heads = 2 }
    local mask = gm.tensor({ { 1, 0, 1 }, { 0, 0, 0 } }, { dtype = "u8" })
    local x = normal({ 2, 3, 8 }, 1)
    local before = layer(x, mask)
    local bias = layer.output.bias:totable()
    for i = 1, 3 do numeric.agree(before:select(1, 2)[i], bias, 1e-15) end
    local first = before:select(1, 1):select(1, 1):totable()
    x:narrow(1, 1, 1):narrow(2, 2, 1):fill_(7)
    numeric.agree(layer(x, mask):select(1, 1):select(1, 1), first, 1e-15)
  end))

  it("grouped heads equal full attention with repeated keys and values", f64(function()
    local grouped = nn.MultiHeadAttention { width = 8, heads = 4, kv_heads = 2, bias = false, causal = true }
    local full = nn.MultiHeadAttention { width = 8, heads = 4, bias = false, causal = true }
    local rows = grouped.qkv.weight:reshape(2, 4, 2, 8) -- key head, (2 queries, key, value), head size, width
    local parts = {}
    for head = 0, 3 do
      local group = rows:select(1, math.floor(head / 2) + 1)
      for _, r in ipairs { head % 2 + 1, 3, 4 } do parts[#parts + 1] = group:narrow(1, r, 1) end
    end
    full.qkv.weight:detach():copy_(gm.ops.cat(parts, 1):reshape(24, 8):detach())
    full.output.weight:detach():copy_(grouped.output.weight:detach())
    local x = normal({ 2, 5, 8 }, 1)
    numeric.agree(grouped(x), full(x), 1e-14) -- the same sums in another order
    assert.equal(4 * 2 * 2 * 8 + 64, grouped:count())
  end))

  it("drops attention probabilities in training only", f64(function()
    local layer = nn.MultiHeadAttention { width = 8, heads = 2, dropout = 0.5 }
    local x = normal({ 2, 6, 8 }, 1)
    assert.is_false(numeric.relative_error(layer(x), layer(x)) == 0)
    layer:eval()
    assert.same(layer(x):totable(), layer(x):totable())
  end))

  it("refuses heads that do not divide", function()
    assert.error_matches(function() nn.MultiHeadAttention { width = 10, heads = 3 } end,
      "heads = 3 must divide width = 10")
    assert.error_matches(function() nn.MultiHeadAttention { width = 12, heads = 4, kv_heads = 3 } end,
      "kv_heads = 3 must divide heads = 4")
  end)
end)

describe("norms", function()
  for _, name in ipairs { "LayerNorm", "RMSNorm" } do
    it(name .. " with a residual is the norm of the sum, and gives the sum", f64(function()
      local layer, a, b = nn[name] { width = 6, eps = 0.7 }, normal({ 3, 6 }, 1), normal({ 3, 6 }, 2)
      local y, sum = layer(a, b)
      assert.same((a + b):totable(), sum:totable())
      numeric.agree(y, layer(a + b), 1e-15)
    end))
  end
end)

describe("nn.MLP", function()
  it("is four times as wide in between by default, and drops what it returns", f64(function()
    local layer = nn.MLP { width = 6, dropout = 0.5 }
    assert.same({ 24, 6 }, layer.up.weight:shape())
    local zeros = 0
    for _, v in ipairs(numeric.flat(layer(normal({ 50, 6 }, 1)))) do if v == 0 then zeros = zeros + 1 end end
    assert.near(150, zeros, 5 * math.sqrt(300 / 4)) -- binomial, five deviations
  end))
end)

describe("nn.TransformerBlock", function()
  it("is x + attention(norm(x)), then + mlp(norm(.))", f64(function()
    local block = nn.TransformerBlock { width = 8, heads = 2, causal = true }
    local x = normal({ 2, 5, 8 }, 1)
    local h = x + block.attention(block.norm1(x))
    numeric.agree(block(x), h + block.mlp(block.norm2(h)), 1e-14)
  end))

  it("post-norm is norm(x + attention(x)), then norm(. + mlp(.))", f64(function()
    local block = nn.TransformerBlock { width = 8, heads = 2, post_norm = true }
    local x = normal({ 2, 5, 8 }, 1)
    local h = block.norm1(x + block.attention(x))
    numeric.agree(block(x), block.norm2(h + block.mlp(h)), 1e-14)
  end))

  for _, post_norm in ipairs { false, true } do
    it("hides masked positions from the others, post_norm = " .. tostring(post_norm), f64(function()
      local block = nn.TransformerBlock { width = 8, heads = 2, post_norm = post_norm }
      local x, mask = normal({ 1, 3, 8 }, 1), gm.tensor({ { 1, 1, 0 } }, { dtype = "u8" })
      local before = block(x, mask):narrow(2, 1, 2):contiguous():totable()
      x:narrow(2, 3, 1):fill_(9)
      numeric.agree(block(x, mask):narrow(2, 1, 2):contiguous(), before, 1e-15)
    end))

    it("hands eps to both norms, post_norm = " .. tostring(post_norm), f64(function()
      for _, norm in ipairs { "LayerNorm", "RMSNorm" } do
        local block = nn.TransformerBlock { width = 8, heads = 2, post_norm = post_norm, eps = 0.5, norm = norm }
        assert.equal(norm, block.norm1.name)
        assert.same({ 0.5, 0.5 }, { block.norm1.opt.eps, block.norm2.opt.eps })
      end
    end))

    it("a chain equals its blocks one by one, mask included, post_norm = " .. tostring(post_norm), f64(function()
      local blocks = nn.ModuleList()
      for _ = 1, 3 do blocks:append(nn.TransformerBlock { width = 8, heads = 2, post_norm = post_norm }) end
      local x, mask = normal({ 2, 3, 8 }, 1), gm.tensor({ { 1, 1, 0 }, { 0, 1, 1 } }, { dtype = "u8" })
      local one_by_one = x
      for _, block in blocks:each() do one_by_one = block(one_by_one, mask) end
      local branch, stream = nn.TransformerBlock.chain(blocks, x, mask)
      assert.equal(post_norm, stream == nil)
      numeric.agree(stream and branch + stream or branch, one_by_one, 1e-14)
    end))
  end

  it("skips both branches of a sample with its drop path", f64(function()
    local block = nn.TransformerBlock { width = 4, heads = 1, drop_path = 0.9 }
    local x = normal({ 64, 2, 4 }, 1)
    local y, untouched = block(x):totable(), 0
    for i, sample in ipairs(x:totable()) do
      if sample[1][1] == y[i][1][1] and sample[2][4] == y[i][2][4] then untouched = untouched + 1 end
    end
    -- 0.81 of 64 skip both branches: 52, with a deviation of 3.1
    assert.is_true(untouched > 36 and untouched < 64, tostring(untouched))
  end))

  it("counts its floating point operations", function()
    local block = nn.TransformerBlock { width = 8, heads = 2, mlp_ratio = 2 }
    -- per token: qkv 2*8*24, output 2*8*8, mlp 2 * 2*8*16; attention 2 * 2*10*8
    assert.equal(10 * (384 + 128 + 512 + 320), block:flops(10))
    local causal = nn.TransformerBlock { width = 8, heads = 2, mlp_ratio = 2, causal = true }
    assert.equal(10 * (384 + 128 + 512 + 160), causal:flops(10))
  end)

  it("refuses a hidden width that is no whole number", function()
    assert.error_matches(function() nn.TransformerBlock { width = 6, heads = 2, mlp_ratio = 1.3 } end,
      "mlp_ratio 1.3 times width 6 must be a whole number")
  end)
end)
