--- Every layer with options that matter to a mesh, as cases of against_serial: cases(parts, length) -> list.
--
-- parts: ranks that share the heads; length: of sequences. Sizes are such that little divides: batch 5, width 10,
-- vocabulary and classes 13; heads and their widths are multiples of parts, as they must be.
local against = require "spec.tensor.against_serial"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local stream = require "ganymede.nn.stream"

local values, places = against.values, against.places

local B, WIDTH, ROWS = 5, 10, 13

-- ---------------------------------------------------------------- small models around a layer

local function of_stream(layer, ...) return layer(stream.to((...)), select(2, ...)) end

local Tied = nn.class("TiedForSpec", nil, false)
Tied.options = { rows = { type = "integer", default = ROWS }, limit = { type = "integer", optional = true },
                 bias = { type = "boolean", default = true } }

function Tied:build(opt)
  self.table = nn.Embedding { count = opt.rows, width = WIDTH, padding_index = 3, vocab_parallel_limit = opt.limit }
  self.norm = nn.LayerNorm(WIDTH)
  self.head = nn.Classifier { inputs = WIDTH, classes = opt.rows, weight = self.table, bias = opt.bias }
end

function Tied:forward(ids) return self.head(self.norm(self.table(ids))) end

-- A classifier, and the loss of what it says.
local Judged = nn.class("JudgedForSpec", nil, false)
Judged.options = { limit = { type = "integer" }, smoothing = { type = "number", default = 0 },
                   times = { type = "number", default = 1 } }

function Judged:build(opt)
  self.head = nn.Classifier { inputs = WIDTH, classes = ROWS, vocab_parallel_limit = opt.limit }
  self.loss = nn.CrossEntropyLoss { label_smoothing = opt.smoothing, ignore_index = -7 }
  self.accuracy = nn.Accuracy()
end

function Judged:forward(x, target)
  local logits = self.head(x)
  if self.opt.times ~= 1 then logits = logits * self.opt.times end
  return self.loss(logits, target), self.accuracy(logits, target):detach()
end

-- Two blocks and a norm as models chain them.
local Stack = nn.class("StackForSpec", nil, false)
Stack.options = { block = { type = "table" } }

function Stack:build(opt)
  self.blocks = nn.ModuleList { nn.TransformerBlock(opt.block), nn.TransformerBlock(opt.block) }
  self.norm = nn.LayerNorm(opt.block.width)
end

function Stack:forward(x, key_mask) return (self.norm(nn.TransformerBlock.chain(self.blocks, x, key_mask))) end

-- ---------------------------------------------------------------- lists

local function linears(add, length)
  local function linear(partition, outputs, what, options)
    options.inputs, options.outputs, options.partition = WIDTH, outputs, partition or nil
    add { name = ("Linear %s to %d%s"):format(partition or "alone", outputs, what),
          build = function() return nn.Linear(options) end, inputs = { values(B, length, WIDTH) } }
  end
  for _, partition in ipairs { "column", "row", false } do
    for _, outputs in ipairs { WIDTH + 5, WIDTH - 3 } do -- more than the inputs, and fewer
      linear(partition, outputs, "", {})
      linear(partition, outputs, " gelu", { activation = "gelu" })
    end
    linear(partition, WIDTH, " no bias", { bias = false })
  end
  for _, partition in ipairs { "column", "row" } do
    add { name = "Linear " .. partition .. " without adding its bias", inputs = { values(B, length, WIDTH) },
          build = function()
            return nn.Linear { inputs = WIDTH, outputs = 7, partition = partition, skip_bias_add = true }
          end }
  end
  add { name = "Linear of (batch, width)", build = function() return nn.Linear(WIDTH, 7) end,
        inputs = { values(B, WIDTH) } }
  add { name = "Linear of four dimensions", build = function() return nn.Linear(WIDTH, 7) end,
        inputs = { values(B, length, 2, WIDTH) } }
end

local function chains(add, length)
  local function between(what, fn, width)
    add { name = "two Linears and " .. what .. " between them", inputs = { values(B, length, WIDTH) },
          build = function() return nn.Sequential { nn.Linear(WIDTH, 14), fn, nn.Linear(width or 14, 9) } end }
  end
  between("a softmax", function(x) return nn.LogSoftmax(-1)(x) end)
  between("a mean of positions", function(x) return x:mean(2) end)
  between("one position", function(x) return x:select(2, length) end)
  between("a sum with whole tensors", function(x) return x * gm.ones { 14 } + gm.ones { B, length, 14 } end)
  between("something gathered", function(x) return x:gather():narrow(3, 2, 6) end, 6)
end

local function norms(add, length)
  for _, bias in ipairs { true, false } do
    add { name = "LayerNorm", build = function() return nn.LayerNorm { width = WIDTH, bias = bias } end,
          inputs = { values(B, length, WIDTH) } }
  end
  for _, class in ipairs { "LayerNorm", "RMSNorm" } do
    add { name = class .. " of a residual", build = function() return nn[class](WIDTH) end,
          inputs = { values(B, length, WIDTH), values(B, length, WIDTH) } }
  end
  add { name = "RMSNorm", build = function() return nn.RMSNorm(WIDTH) end, inputs = { values(B, WIDTH) } }
end

-- Rows of mean 1e4 and variance 1: the mean of the squares less the square of the mean would have no digits left. A
-- mean of 1e4 is rounded by 5e-4 in f32, which the result keeps, and by 1e-12 in f64.
local function far_norm(add, length)
  add { name = "LayerNorm far from zero", build = function() return nn.LayerNorm(WIDTH) end,
        inputs = { values(B, length, WIDTH) }, tolerance = { f32 = 1e-3, f64 = 1e-11 },
        forward = function(layer, x) return layer(x * 3 ^ 0.5 + 1e4):detach() end }
end

local function tables(add, length)
  for _, limit in ipairs { ROWS, ROWS - 1 } do
    local kind = limit < ROWS and "VocabParallelEmbedding" or "Embedding"
    for _, padding in ipairs { false, 0, 9, ROWS - 1 } do
      add { name = kind .. (padding and " with padding" or ""), inputs = { places({ B, length }, ROWS) },
            build = function()
              return nn.Embedding { count = ROWS, width = WIDTH, padding_index = padding or nil,
                vocab_parallel_limit = limit }
            end }
    end
    add { name = kind .. " of (batch)", inputs = { places({ B }, ROWS) },
          build = function() return nn.Embedding { count = ROWS, width = WIDTH, vocab_parallel_limit = limit } end }
    for _, bias in ipairs { true, false } do
      add { name = "tied " .. kind, build = function() return Tied { limit = limit, bias = bias } end,
            inputs = { places({ B, length }, ROWS) } }
    end
  end
  add { name = "tied table of 5027 rows", build = function() return Tied { rows = 5027 } end,
        inputs = { places({ 2, 3 }, 5027) } }
  add { name = "tied table of fewer rows than samples", build = function() return Tied { rows = 61, limit = 1 } end,
        inputs = { places({ 40, length }, 61) } }
  add { name = "PositionEmbedding", build = function() return nn.PositionEmbedding(length + 2, WIDTH) end,
        inputs = { values(B, length, WIDTH) }, forward = of_stream }
  for _, with in ipairs { true, false } do
    add { name = "PatchEmbedding", inputs = { values(B, 3, 4, 8) }, build = function()
      return nn.PatchEmbedding { image_size = { 4, 8 }, patch_size = 2, width = WIDTH, class_token = with,
        positions = with }
    end }
  end
end

local function classifiers(add, length)
  for _, limit in ipairs { ROWS, ROWS - 1 } do
    local kind = limit < ROWS and "VocabParallelClassifier" or "Classifier"
    for _, bias in ipairs { true, false } do
      add { name = kind, inputs = { values(B, length, WIDTH) }, build = function()
        return nn.Classifier { inputs = WIDTH, classes = ROWS, vocab_parallel_limit = limit, bias = bias }
      end }
    end
    for _, options in ipairs { {}, { smoothing = 0.1 }, { times = 1e4 } } do
      options.limit = limit
      add { name = kind .. " and its loss", build = function() return Judged(options) end,
            inputs = { values(B, length, WIDTH), places({ B, length }, ROWS, 4, -7) } }
    end
    add { name = kind .. " of (batch, width)", build = function() return Judged { limit = limit } end,
          inputs = { values(12 * B, WIDTH), places({ 12 * B }, ROWS) } }
  end
end

local function drops(add, length)
  add { name = "Dropout", build = function() return nn.Dropout(0.4) end, inputs = { values(B, length, WIDTH) },
        forward = of_stream, exact = true }
  add { name = "DropPath", build = function() return nn.DropPath(0.4) end, inputs = { values(B, length, WIDTH) },
        forward = of_stream, exact = true }
end

local function mask_of(length)
  return function()
    local list = {}
    for i = 1, B * length do list[i] = (i % length == 3 or i % 4 == 0) and 0 or 1 end
    return gm.tensor(list, { dtype = "u8", shape = { B, length } })
  end
end

local function blocks(add, parts, length)
  local width = 6 * parts
  local x = values(B, length, width)
  local function attention(name, options, masked)
    options.width, options.heads = width, 2 * parts
    add { name = name, build = function() return nn.MultiHeadAttention(options) end,
          inputs = masked and { x, mask_of(length) } or { x } }
  end
  attention("attention", {})
  attention("attention causal", { causal = true, bias = false })
  attention("attention masked", {}, true)
  attention("attention of grouped heads", { kv_heads = parts, causal = true })
  attention("attention with dropout", { dropout = 0.3, output_dropout = 0.3 })
  add { name = "MLP", build = function() return nn.MLP { width = WIDTH, hidden = 15, dropout = 0.2 } end,
        inputs = { values(B, length, WIDTH) } }
  local function block(name, options, masked)
    options.width, options.heads = width, 2 * parts
    add { name = name, build = function() return nn.TransformerBlock(options) end,
          inputs = masked and { x, mask_of(length) } or { x } }
  end
  local all = { dropout = 0.1, attention_dropout = 0.1, drop_path = 0.2, causal = true }
  block("block", all)
  block("block after Llama", { norm = "RMSNorm", bias = false, activation = "silu", kv_heads = parts, causal = true })
  add { name = "block in evaluation", build = function() return nn.TransformerBlock(all) end, inputs = { x },
        evaluate = true }
  block("block of BERT", { post_norm = true, mlp_ratio = 1.5, dropout = 0.1 }, true)
  add { name = "two blocks and a norm", build = function() return Stack { block = all } end, inputs = { x } }
end

return function(parts, length)
  local list = {}
  local function add(case) list[#list + 1] = case end
  linears(add, length)
  chains(add, length)
  norms(add, length)
  far_norm(add, length)
  tables(add, length)
  classifiers(add, length)
  drops(add, length)
  blocks(add, parts, length)
  return list
end
