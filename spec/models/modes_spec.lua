--- One source for all modes: GPT, Llama, BERT, RoBERTa, ViT and MLP have, in every tensor and sequence mode that four
-- ranks allow, the loss and the gradients of one rank. Batches of 3 and sequences of 7 (tokens) or 5 (patches and class
-- token) divide by no axis; dropout is on everywhere; tables are looked up whole (37 rows) and vocabulary-parallel
-- (2051).
-- ranks: 4
-- sanitizers: no, numbers of four ranks are compared; spec/tensor and spec/sequence look at the same code
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"

local integers = numeric.integers

local function tokens(vocabulary, salt)
  return integers({ 3, 7 }, function(i) return (7 * i * i + salt) % vocabulary end)
end

-- Sequences of 7, 5 and 3 tokens: tokens, segments, key mask
local function pairs_of_texts(vocabulary)
  return integers({ 3, 3, 7 }, function(i)
    local sample, row, k = math.floor(i / 21), math.floor(i / 7) % 3, i % 7
    local length = 7 - 2 * sample
    if k >= length then return 0 end
    return ({ (5 * k * k + 11 * sample) % vocabulary, k >= length / 2 and 1 or 0, 1 })[row + 1]
  end)
end

local function hidden_tokens(vocabulary)
  return integers({ 3, 8 }, function(i)
    local sample, k = math.floor(i / 8), i % 8
    if k == 7 then return sample % 2 end
    return (k + sample) % 3 == 0 and (13 * k + sample) % vocabulary or -100
  end)
end

local function gpt(vocabulary)
  return models.GPT { vocabulary = vocabulary, sequence_length = 9, width = 16, depth = 2, heads = 4, std = 0.3,
                      dropout = 0.1, attention_dropout = 0.2 },
    tokens(vocabulary, 1), tokens(vocabulary, 5), gm.nn.CrossEntropyLoss {}
end

-- A window in every second block, capped scores and logits, and padding behind the second sequence.
local function llama(vocabulary)
  local mask = integers({ 3, 7 }, function(i) return (i < 7 or i >= 14 or i < 12) and 1 or 0 end):to "u8"
  return models.Llama { vocabulary = vocabulary, sequence_length = 9, width = 16, depth = 2, heads = 8, kv_heads = 4,
                        hidden = 24, window = { 3, 0 }, attention_softcap = 2, attention_scale = 0.6,
                        logit_softcap = 5, std = 0.3,
                        dropout = 0.1, attention_dropout = 0.2 },
    tokens(vocabulary, 1), tokens(vocabulary, 5), gm.nn.CrossEntropyLoss {}, mask
end

-- Two documents in a row, one of them cut by all ranks, and padding.
local function packed(model)
  return function(vocabulary)
    local built, x, y, criterion = model(vocabulary)
    local segments = integers({ 3, 7 }, function(i)
      return i == 20 and -1 or i % 7 < 2 + math.floor(i / 7) and 4 or 9
    end)
    return built, gm.ops.cat({ x:reshape { 3, 1, 7 }, segments:reshape { 3, 1, 7 } }, 2), y, criterion
  end
end

local function bert(vocabulary)
  return models.BERT { vocabulary = vocabulary, sequence_length = 9, width = 16, depth = 2, heads = 4, std = 0.3,
                       dropout = 0.1, attention_dropout = 0.2 },
    pairs_of_texts(vocabulary), hidden_tokens(vocabulary), gm.nn.BERTLoss {}
end

-- Padding within a text and behind it; classes nil: the head of the tokens.
local function roberta(classes)
  return function(vocabulary)
    local x = integers({ 3, 7 }, function(i)
      return (i == 3 or i % 7 >= 7 - 2 * math.floor(i / 7)) and 2 or 3 + (5 * i * i) % (vocabulary - 3)
    end)
    return models.RoBERTa { vocabulary = vocabulary, sequence_length = 9, width = 16, depth = 2, heads = 4, std = 0.3,
                            padding_index = 2, dropout = 0.1, attention_dropout = 0.2, classes = classes },
      x, classes and integers({ 3 }, function(i) return 2 * i end) or tokens(vocabulary, 5), gm.nn.CrossEntropyLoss {}
  end
end

local function vit(pool)
  return models.VisionTransformer { image_size = 8, patch_size = 4, channels = 2, classes = 6, width = 16, depth = 2,
                                    heads = 4, pool = pool, dropout = 0.1, drop_path = 0.3 },
    gm.normal({ 3, 2, 8, 8 }, { seed = 4 }), integers({ 3 }, function(i) return 2 * i end), gm.nn.CrossEntropyLoss {}
end

local function mlp(hidden)
  return models.MLP { inputs = 18, hidden = hidden, classes = 6, dropout = 0.1 },
    gm.normal({ 3, 2, 3, 3 }, { seed = 4 }), integers({ 3 }, function(i) return 2 * i end), gm.nn.CrossEntropyLoss {}
end

local cases = {
  { "GPT", gpt, 37 }, { "GPT, vocabulary-parallel", gpt, 2051 },
  { "Llama with windows, caps and padding", llama, 37 }, { "BERT", bert, 37 },
  { "GPT, several documents in a row", packed(gpt), 37 }, { "Llama, several documents in a row", packed(llama), 37 },
  { "RoBERTa", roberta(), 37 }, { "RoBERTa, vocabulary-parallel", roberta(), 2051 },
  { "RoBERTa with classes", roberta(6), 37 },
  { "BERT, vocabulary-parallel", bert, 2051 }, { "ViT, class token", vit, "cls" }, { "ViT, mean", vit, "mean" },
  { "MLP, two hidden layers", mlp, { 16, 24 } }, { "MLP, three hidden layers", mlp, { 16, 24, 10 } },
}

-- name, parallel, and whether it cuts parameters (2.5D of depth 4 has a grid of one rank: it copies them)
local modes = {
  { "1d", { tensor = { size = 4, mode = "1d" } }, true },
  { "1d with sequences cut between blocks", { tensor = { size = 4, mode = "1d", sequence = true } }, true },
  { "2d", { tensor = { size = 4, mode = "2d" } }, true },
  { "2.5d", { tensor = { size = 4, mode = "2.5d", depth = 4 } }, false },
  { "ring", { sequence = { size = 4, mode = "ring" } }, false },
  { "ulysses", { sequence = { size = 4, mode = "ulysses" } }, false },
  { "ring and 1d", { sequence = 2, tensor = { size = 2, mode = "1d" } }, true },
}

-- Loss, and list of { name, gradient as numbers }
local function measure(case, parallel)
  gm.context.load_config { parallel = parallel }
  core.set_seed(7)
  core.set_rng_step(4) -- in which drop_path leaves each branch to some sample
  core.begin_step()
  return gm.scope(function()
    local model, x, y, criterion, mask = case[2](case[3])
    core.set_batch(0, x:size(1))
    local loss = criterion(model(x, mask), y)
    loss:backward()
    local gradients, cut = {}, 0
    for i, p in ipairs(model:named_parameters()) do
      gradients[i] = { p.name, numeric.flat(core.gather(p.tensor:grad())) }
      if p.tensor:local_tensor():numel() < p.tensor:numel() then cut = cut + 1 end
    end
    return { loss = loss:item(), gradients = gradients, cut = cut }
  end)
end

describe("on four ranks", function()
  local before
  before_each(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  after_each(function()
    gm.set_default_dtype(before)
    gm.context.load_config {}
  end)

  for _, case in ipairs(cases) do
    it(case[1] .. " is in every mode what it is on one", function()
      local serial = measure(case, { data = 4 }) -- every rank is given everything
      assert.equal(0, serial.cut)
      for _, mode in ipairs(modes) do
        local got = measure(case, mode[2])
        assert.equal(mode[3], got.cut > 0, mode[1])
        assert.near(serial.loss, got.loss, 1e-12 * serial.loss, mode[1])
        for i, want in ipairs(serial.gradients) do
          assert.equal(want[1], got.gradients[i][1])
          local largest = 0
          for _, v in ipairs(want[2]) do largest = math.max(largest, math.abs(v)) end
          assert.is_true(largest >= 1e-3, want[1])
          assert.is_true(numeric.relative_error(got.gradients[i][2], want[2]) <= 1e-12, mode[1] .. ": " .. want[1])
        end
      end
    end)
  end
end)
