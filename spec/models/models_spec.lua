--- Models: numbers of parameters, configs, initial values, shapes, operations counted, what they refuse.
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local registry = require "ganymede.base.registry"
local tables = require "spec.support.tables"

local small_gpt = { vocabulary = 11, sequence_length = 6, width = 8, depth = 2, heads = 2 }
local small_vit = { image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 8, depth = 2, heads = 2 }

local with = tables.with

local function tokens(b, s, vocabulary)
  return numeric.integers({ b, s }, function(i) return 7 * (i + 1) % vocabulary end)
end

-- weights and biases of a pre-norm block, from the formula
local function block_count(width, hidden)
  local attention, mlp, norms = 4 * width * width + 4 * width, 2 * width * hidden + hidden + width, 4 * width
  return attention + mlp + norms
end

describe("numbers of parameters", function()
  it("GPT-2 has 124,439,808", function()
    assert.equal(124439808, models.GPT { vocabulary = 50257 }:count())
  end)

  -- the sizes of Hugging Face's gpt2-medium, gpt2-large, gpt2-xl
  local sizes = {
    medium = { 1024, 24, 16, 354823168 }, large = { 1280, 36, 20, 774030080 }, xl = { 1600, 48, 25, 1557611200 },
  }
  for name, size in pairs(sizes) do
    it("GPT-2 " .. name, function()
      local model = models.GPT { vocabulary = 50257, width = size[1], depth = size[2], heads = size[3] }
      assert.equal(size[4], model:count())
    end)
  end

  it("ViT-B/16 has 86,567,656 (torchvision's vit_b_16)", function()
    assert.equal(86567656, models.VisionTransformer {}:count())
  end)

  it("follow closed formulas", function()
    local width, v = 8, 11
    assert.equal(v * width + 6 * width + 2 * block_count(width, 32) + 2 * width, models.GPT(small_gpt):count())
    assert.equal(v * width, models.GPT(with(small_gpt, { tied = false })):count() - models.GPT(small_gpt):count())
    local vit = 16 * width + width + width + 5 * width + 2 * block_count(width, 32) + 2 * width + 3 * width + 3
    assert.equal(vit, models.VisionTransformer(small_vit):count())
    assert.equal(vit - 2 * width, models.VisionTransformer(with(small_vit, { pool = "mean" })):count())
    assert.equal(6 * 9 + 9 + 9 * 7 + 7 + 7 * 3 + 3, models.MLP { inputs = 6, hidden = { 9, 7 }, classes = 3 }:count())
    local no_bias = models.GPT(with(small_gpt, { bias = false }))
    for _, p in ipairs(no_bias:declared()) do assert.is_nil(p.name:find "bias$", p.name) end
  end)

  it("a tied head is one parameter, under one name", function()
    gm.scope(function()
      local model = models.GPT(small_gpt)
      for _, p in ipairs(model:named_parameters()) do assert.is_nil(p.name:find "^head", p.name) end
      model.tokens.weight:detach():fill_(3)
      assert.equal(3, model.head.weight:get(1, 1))
    end)
  end)
end)

describe("models from config tables", function()
  it("are built by type, with aliases", function()
    local vit = registry.models:build(with(small_vit, { type = "VisionTransformer" }))
    assert.equal("VisionTransformer", vit.name)
    local gpt = registry.models:build { type = "GPT", vocab_size = 11, block_size = 6, width = 8, depth = 2, heads = 2 }
    assert.equal(models.GPT(small_gpt):count(), gpt:count())
    assert.equal("MLP", registry.models:build { type = "MLP", inputs = 4, classes = 2 }.name)
  end)

  it("names what it does not know", function()
    assert.error_matches(function() registry.models:build { type = "VisionTransfomer" } end,
      "did you mean 'VisionTransformer'")
    assert.error_matches(function() registry.models:build { type = "GPT", vocabulary = 3, layers = 2 } end,
      "GPT has no option 'layers'")
    assert.error_matches(function() models.GPT {} end, "GPT: option 'vocabulary' is missing")
    assert.error_matches(function() models.MLP { inputs = 3, classes = 2, hidden = { 4, "5" } } end, "hidden%[2%]")
    assert.error_matches(function() models.GPT(with(small_gpt, { heads = 3 })) end, "heads = 3 must divide width = 8")
  end)
end)

describe("forward passes", function()
  it("give logits of the right shape", function()
    gm.scope(function()
      assert.same({ 2, 6, 11 }, models.GPT(small_gpt)(tokens(2, 6, 11)):shape())
      assert.same({ 3, 4, 11 }, models.GPT(small_gpt)(tokens(3, 4, 11)):shape())
      assert.same({ 2, 3 }, models.VisionTransformer(small_vit)(gm.ones { 2, 1, 8, 8 }):shape())
      local wide = models.VisionTransformer(with(small_vit, { image_size = { 8, 12 } }))
      assert.same({ 2, 3 }, wide(gm.ones { 2, 1, 8, 12 }):shape())
      assert.same({ 5, 2 }, models.MLP { inputs = 12, classes = 2 }(gm.ones { 5, 1, 3, 4 }):shape())
      assert.same({ 5, 2 }, models.MLP { inputs = 12, classes = 2, hidden = {} }(gm.ones { 5, 12 }):shape())
    end)
  end)

  it("refuse wrong shapes", function()
    local function fails(pattern, fn) assert.error_matches(function() gm.scope(fn) end, pattern) end
    fails("tokens must be %(batch, sequence%)", function()
      models.GPT(small_gpt)(gm.tensor({ 1, 2 }, { dtype = "i64" }))
    end)
    fails("a sequence of 7 is longer than the 6 positions", function() models.GPT(small_gpt)(tokens(1, 7, 11)) end)
    fails("a sample must have 12 elements; got a batch of shape %(5, 13%)", function()
      models.MLP { inputs = 12, classes = 2 }(gm.ones { 5, 13 })
    end)
  end)

  it("GPT is causal", function()
    gm.scope(function()
      local model = models.GPT(with(small_gpt, { std = 0.5 }))
      local a = tokens(1, 6, 11)
      local before = model(a):narrow(2, 1, 5):contiguous():totable()
      a:set(1, 6, 5)
      assert.same(before, model(a):narrow(2, 1, 5):contiguous():totable())
    end)
  end)

  it("train with every dropout on, and evaluate the same twice", function()
    for _, build in ipairs {
      function() return models.GPT(with(small_gpt, { dropout = 0.2, attention_dropout = 0.2 })), tokens(4, 6, 11) end,
      function()
        return models.VisionTransformer(with(small_vit, { dropout = 0.2, attention_dropout = 0.1, drop_path = 0.3 })),
          gm.normal({ 4, 1, 8, 8 }, { seed = 1 })
      end,
      function() return models.MLP { inputs = 8, classes = 4, dropout = 0.5 }, gm.normal({ 4, 8 }, { seed = 1 }) end,
    } do
      gm.scope(function()
        local model, x = build()
        assert.is_false(numeric.relative_error(model(x), model(x)) == 0, model.name)
        gm.ops.sum(gm.ops.square(model(x))):backward()
        for _, p in ipairs(model:named_parameters()) do
          assert.is_not_nil(p.tensor:grad(), p.name)
        end
        model:eval()
        assert.same(model(x):totable(), model(x):totable())
      end)
    end
  end)

  it("hand dropout to the embeddings and to both branches of every block", function()
    local rates = { dropout = 0.2, attention_dropout = 0.1 }
    for _, case in ipairs {
      { models.GPT(with(small_gpt, rates)), function() return tokens(2, 6, 11) end },
      { models.VisionTransformer(with(small_vit, rates)), function() return gm.ones { 2, 1, 8, 8 } end },
    } do
      local model, input = case[1], case[2]
      for _, block in model.blocks:each() do
        assert.equal(0.2, block.attention.dropout.opt.p)
        assert.equal(0.2, block.mlp.dropout.opt.p)
        assert.equal(0.1, block.attention.opt.dropout)
      end
      local seen
      local Spy = gm.nn.class("SpecSpy", nil, false)
      function Spy:forward(x) seen = x:shape(); return x end
      assert.equal(0.2, model.dropout.opt.p)
      model.dropout = Spy {}
      gm.scope(function() model(input()) end)
      assert.same({ 2, model.name == "GPT" and 6 or 5, 8 }, seen, model.name)
    end
  end)

  it("drop path grows from 0 in the first block to its value in the last", function()
    local vit = models.VisionTransformer(with(small_vit, { depth = 3, drop_path = 0.2 }))
    local rates = {}
    for i, block in vit.blocks:each() do rates[i] = block.opt.drop_path end
    assert.same({ 0, 0.1, 0.2 }, rates)
  end)
end)

describe("initial values", function()
  local function deviation(t)
    local sum, squares, list = 0, 0, numeric.flat(t)
    for _, v in ipairs(list) do sum, squares = sum + v, squares + v * v end
    return math.sqrt(squares / #list - (sum / #list) ^ 2), #list
  end

  it("of GPT are GPT-2's: N(0, 0.02), over sqrt(2 depth) where they write to the stream, zero biases", function()
    gm.scope(function()
      local model = models.GPT { vocabulary = 300, sequence_length = 64, width = 64, depth = 3, heads = 4 }
      for _, p in ipairs(model:named_parameters()) do
        local std, n = deviation(p.tensor)
        if p.name:find "norm" or p.name:find "bias$" then
          assert.equal(0, std, p.name)
          assert.equal(p.name:find "norm.-weight$" and 1 or 0, numeric.flat(p.tensor)[1], p.name)
        else
          local writes = p.name:find "attention.output" or p.name:find "mlp.down"
          local want = writes and 0.02 / math.sqrt(6) or 0.02
          assert.near(want, std, 5 * want / math.sqrt(2 * n), p.name) -- five deviations of a sample deviation
        end
      end
    end)
  end)

  it("of GPT give a first loss near log(vocabulary)", function()
    gm.scope(function()
      local model = models.GPT { vocabulary = 300, sequence_length = 32, width = 64, depth = 2, heads = 4 }
      local x = tokens(5, 32, 300) -- targets other than the inputs, whose scores a tied head raises
      local loss = gm.nn.CrossEntropyLoss {}(model(x:narrow(1, 1, 4)), x:narrow(1, 2, 4):contiguous())
      assert.near(math.log(300), loss:item(), 0.2) -- logits have a deviation of 0.02 sqrt(64) = 0.16
    end)
  end)

  it("of ViT have Xavier's bounds, a zero class token and small positions", function()
    gm.scope(function()
      local model = models.VisionTransformer(with(small_vit, { width = 32 }))
      local bound = math.sqrt(6 / (32 + 128))
      local largest = 0
      for _, v in ipairs(numeric.flat(model.blocks[1].mlp.up.weight)) do largest = math.max(largest, math.abs(v)) end
      assert.is_true(largest <= bound and largest > 0.99 * bound)
      for _, v in ipairs(numeric.flat(model.patches.class_token)) do assert.equal(0, v) end
      for _, v in ipairs(numeric.flat(model.patches.positions)) do assert.is_true(math.abs(v) <= 0.04) end
    end)
  end)

  it("are the same bits with the same seed and differ between blocks", function()
    local function first_weight(seed, block)
      local before = core.seed()
      core.set_seed(seed)
      local value = gm.scope(function() return models.GPT(small_gpt).blocks[block].mlp.up.weight:get(1, 1) end)
      core.set_seed(before)
      return value
    end
    assert.equal(first_weight(5, 1), first_weight(5, 1))
    assert.is_false(first_weight(5, 1) == first_weight(6, 1))
    assert.is_false(first_weight(5, 1) == first_weight(5, 2))
  end)
end)

describe("a printed model", function()
  it("is its tree: paths and options that differ from the defaults, initializers left out", function()
    assert.equal(table.concat({
      "GPT { depth = 1, heads = 2, sequence_length = 6, vocabulary = 11, width = 8 }",
      "  (tokens): Embedding { count = 11, width = 8 }",
      "  (positions): PositionEmbedding { length = 6, width = 8 }",
      "  (blocks): ModuleList",
      '    (1): TransformerBlock { activation = "gelu_tanh", causal = true, heads = 2, width = 8 }',
      "      (norm1): LayerNorm { width = 8 }",
      "      (attention): MultiHeadAttention { causal = true, heads = 2, width = 8 }",
      "        (qkv): Linear { inputs = 8, outputs = 24 }",
      "        (output): Linear { inputs = 8, outputs = 8 }",
      "      (norm2): LayerNorm { width = 8 }",
      '      (mlp): MLP { activation = "gelu_tanh", hidden = 32, width = 8 }',
      '        (up): Linear { activation = "gelu_tanh", inputs = 8, outputs = 32 }',
      "        (down): Linear { inputs = 32, outputs = 8 }",
      "  (norm): LayerNorm { width = 8 }",
      "  (head): Classifier { bias = false, classes = 11, inputs = 8 }",
    }, "\n"), tostring(models.GPT(with(small_gpt, { depth = 1 }))))
  end)
end)

describe("flops_per_sample", function()
  it("counts multiplications of weights and of attention, three forward passes in all", function()
    local width, length, v = 8, 6, 11
    local block = 2 * (4 * width * width + 2 * width * 32) + 2 * length * width -- a token, causal attention
    assert.equal(3 * length * (2 * block + 2 * width * v), models.GPT(small_gpt):flops_per_sample())
    local token = 2 * (4 * width * width + 2 * width * 32) + 4 * 5 * width
    local vit = 4 * 2 * 16 * width + 5 * 2 * token + 2 * width * 3
    assert.equal(3 * vit, models.VisionTransformer(small_vit):flops_per_sample())
    assert.equal(6 * (6 * 9 + 9 * 3), models.MLP { inputs = 6, hidden = { 9 }, classes = 3 }:flops_per_sample())
  end)
end)
