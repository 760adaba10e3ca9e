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

  -- The formula with ops of their own, every score there.
  local function plain(q, k, v, window, cap)
    local s, seen = q:size(2), {}
    for i = 1, s do
      seen[i] = {}
      for j = 1, s do seen[i][j] = j <= i and j > i - window and 1 or 0 end
    end
    local scores = gm.ops.matmul(q:permute { 1, 3, 2, 4 }, k:permute { 1, 3, 4, 2 }) * 0.5
    if cap then scores = gm.ops.tanh(scores * (1 / cap)) * cap end
    local hidden = gm.tensor(-1 / 0)
    local p = gm.ops.softmax(gm.ops.where(gm.tensor(seen, { dtype = "u8" }), scores, hidden))
    return gm.ops.matmul(p, v:permute { 1, 3, 2, 4 }):permute { 1, 3, 2, 4 }
  end

  it("windows and caps are those of the formula, values and gradients", f64(function()
    for _, case in ipairs { { 3 }, { 1 }, { 100, 0.7 }, { 4, 2 } } do
      local inputs, got = {}, {}
      for i = 1, 3 do inputs[i] = normal({ 2, 9, 2, 4 }, 10 + i) * 2 end
      for way = 1, 2 do
        local x = {}
        for i = 1, 3 do x[i] = inputs[i]:detach():clone():requires_grad(true) end
        local o = way == 1 and plain(x[1], x[2], x[3], case[1], case[2])
          or gm.ops.attention(x[1], x[2], x[3], { causal = true, window = case[1], softcap = case[2] })
        gm.ops.sum(o * normal({ 2, 9, 2, 4 }, 20)):backward()
        got[way] = { o:contiguous(), x[1]:grad(), x[2]:grad(), x[3]:grad() }
      end
      -- one key has no slope in q and k, up to rounding
      for i = 1, 4 do
        if case[1] > 1 or i == 1 or i == 4 then numeric.agree(got[2][i], got[1][i], 1e-13) end
      end
    end
  end))

  it("a window shows the position itself and those just before", f64(function()
    local layer = nn.MultiHeadAttention { width = 8, heads = 2, causal = true, window = 3 }
    local x = normal({ 1, 8, 8 }, 1)
    local before = layer(x):narrow(2, 5, 4):contiguous():totable()
    x:narrow(2, 1, 3):fill_(9) -- position 6 sees 4 to 6
    local after = layer(x):narrow(2, 5, 4):contiguous()
    assert.same({ before[1][2], before[1][3], before[1][4] }, after[1]:narrow(1, 2, 3):contiguous():totable())
    assert.is_false(numeric.relative_error(after[1][1]:contiguous(), before[1][1]) == 0)
  end))

  it("windows and caps that cannot be meant are refused", function()
    local q = gm.ones { 1, 2, 1, 1 }
    for _, window in ipairs { 0, 1.5, -1 } do
      assert.error_matches(function() gm.ops.attention(q, q, q, { causal = true, window = window }) end,
        "option 'window' must be an integer, at least 1")
    end
    assert.error_matches(function() gm.ops.attention(q, q, q, { window = 1 }) end, "needs causal attention")
    assert.error_matches(function() gm.ops.attention(q, q, q, { softcap = -2 }) end,
      "option 'softcap' must be a number, above 0")
    assert.error_matches(function() nn.MultiHeadAttention { width = 4, heads = 2, window = 3 } end,
      "window = 3 needs causal = true")
    local small = { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, hidden = 8, depth = 2 }
    local function llama(key, value, words)
      local options = { [key] = value }
      for k, v in pairs(small) do options[k] = v end
      assert.error_matches(function() gm.models.Llama(options) end, words, 1, true)
    end
    llama("window", {}, "a list of at least one")
    llama("window", { 4, -1 }, "window[2] must be a number of positions")
    assert.error_matches(function() nn.Classifier { inputs = 4, classes = 3, softcap = 2, chunk = 8 } end,
      "softcap = 2 is not there for scores that are computed 8 rows at a time")
  end)

  it("the blocks of a model take the windows of a list in turn, and its work is less", f64(function()
    local function llama(window)
      return gm.models.Llama { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, hidden = 8, depth = 4,
                               sequence_length = 16, window = window, bias = false }
    end
    local windows = {}
    for i, block in llama({ 3, 0, 5 }).blocks:each() do windows[i] = block.attention.opt.window or 0 end
    assert.same({ 3, 0, 5, 3 }, windows)
    -- pairs of query and key, a half of the last one counted as causal attention counts it
    local pairs_less = 16 * 16 / 2 - (16 * 4 - 4 * 4 / 2)
    assert.near(3 * 4 * 4 * 8 * pairs_less, llama():flops_per_sample() - llama(4):flops_per_sample(), 1e-6)
  end))

  it("padding behind a text changes no logit of it", f64(function()
    for _, class in ipairs { "Llama", "GPT" } do
      local model = gm.models[class] { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, depth = 2,
                                       sequence_length = 16 }
      local mask = gm.tensor({ { 1, 1, 1, 1, 0, 0 }, { 1, 0, 1, 1, 1, 1 } }, { dtype = "u8" })
      local function ids(...) return gm.tensor({ ... }, { dtype = "i64" }) end
      local y = model(ids({ 1, 2, 3, 4, 5, 6 }, { 1, 2, 3, 4, 5, 6 }), mask)
      numeric.agree(y[1]:narrow(1, 1, 4):contiguous(), model(ids { 1, 2, 3, 4 })[1]:contiguous(), 1e-13)
      local other = model(ids({ 1, 2, 3, 4, 5, 6 }, { 1, 7, 3, 4, 5, 6 }), mask) -- the hidden one changes nothing else
      numeric.agree(other[2]:narrow(1, 3, 4):contiguous(), y[2]:narrow(1, 3, 4):contiguous(), 1e-15)
    end
  end))

  it("capped logits are the formula", f64(function()
    local layer = nn.Classifier { inputs = 4, classes = 3, softcap = 0.5 }
    local x = normal({ 2, 4 }, 5)
    local y = gm.ops.linear(x, layer.weight, layer.bias)
    numeric.agree(layer(x), gm.ops.tanh(y * 2) * 0.5, 1e-15)
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

  it("without input norms is x + norm(attention(x)), then + norm(mlp(.)), also behind another block", f64(function()
    local block = nn.TransformerBlock { width = 8, heads = 2, norm = "RMSNorm", input_norms = false,
                                        branch_norms = true }
    local x, blocks = normal({ 2, 5, 8 }, 1), nn.ModuleList()
    gm.no_grad(function()
      for _, norm in ipairs { block.attention_norm, block.mlp_norm } do norm.weight:copy_(normal({ 8 }, 1)) end
    end)
    local function formula(y)
      local h = y + block.attention_norm(block.attention(y))
      return h + block.mlp_norm(block.mlp(h))
    end
    numeric.agree(block(x), formula(x), 1e-14)
    blocks:append(nn.TransformerBlock { width = 8, heads = 2 })
    blocks:append(block)
    numeric.agree(nn.TransformerBlock.chain(blocks, x), formula(blocks[1](x)), 1e-14)
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

  it("refuses norms that cannot be meant", function()
    for words, options in pairs {
      ["leaves the block without norms"] = { input_norms = false },
      ["say two things of where the norms are"] = { post_norm = true, branch_norms = true, input_norms = false },
      ["set qk_norm too"] = { qk_norm_joint = true },
    } do
      options.width, options.heads = 4, 2
      assert.error_matches(function() nn.TransformerBlock(options) end, words, 1, true)
    end
  end)

  it("refuses a hidden width that is no whole number", function()
    assert.error_matches(function() nn.TransformerBlock { width = 6, heads = 2, mlp_ratio = 1.3 } end,
      "mlp_ratio 1.3 times width 6 must be a whole number")
  end)
end)
