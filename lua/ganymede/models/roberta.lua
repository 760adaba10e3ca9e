--- RoBERTa (Liu et al. 2019) and XLM-R: BERT's encoder with one head, which predicts hidden tokens, or one class of the
-- whole text. Positions count the tokens of a text that are no padding, from padding_index + 1 on. With the defaults it
-- has the 124,697,433 parameters of roberta-base with the head of the tokens.
-- The trap: sequence_length is the longest text; the table of positions has padding_index + 1 rows more.
-- @module ganymede.models.roberta
local BERT = require "ganymede.models.bert"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"

local RoBERTa = module.class("RoBERTa", nil, "models")

RoBERTa.aliases = { vocab_size = "vocabulary", hidden_size = "width", padding_idx = "padding_index",
  num_labels = "classes", num_classes = "classes" }
RoBERTa.options = {
  padding_index = { type = "integer", min = 0, default = 1,
    doc = "the token that fills the ends of texts; its rows in the tables of tokens and positions get no gradient" },
  segments = { type = "integer", min = 1, default = 1, doc = "the number of kinds of segments" },
  classes = { type = "integer", min = 1, optional = true,
    doc = "the number of classes of a text; left out: the head predicts the token of each position" },
  classifier_dropout = { type = "number", optional = true, min = 0, below = 1,
    doc = "the probability with which an element is dropped before both layers of the head of classes; default: "
      .. "dropout" },
}
for name, option in pairs(BERT.options) do RoBERTa.options[name] = RoBERTa.options[name] or option end
RoBERTa.options.vocabulary = { type = "integer", min = 1, default = 50265, doc = BERT.options.vocabulary.doc }
RoBERTa.options.eps = { type = "number", default = 1e-5, above = 0, doc = BERT.options.eps.doc }

local function build_head(self, opt, linear, weight)
  if not opt.classes then
    self.transform = linear "gelu" -- whatever the activation of the MLPs is
    self.transform_norm = nn.LayerNorm { width = opt.width, eps = opt.eps }
    self.head = nn.Classifier { inputs = opt.width, classes = opt.vocabulary, weight = self.tokens,
                                bias_initializer = init.zeros(), chunk = opt.head_chunk }
    return
  end
  local drop = opt.classifier_dropout or opt.dropout
  if drop > 0 then self.head_dropout = nn.Dropout(drop) end
  self.pooler = linear()
  self.head = nn.Classifier { inputs = opt.width, classes = opt.classes, weight_initializer = weight,
                              bias_initializer = init.zeros() }
end

local function check(opt)
  if opt.padding_index >= opt.vocabulary then
    error(("RoBERTa: padding_index %d is no token of a vocabulary of %d (they count from 0)"):format(opt.padding_index,
      opt.vocabulary), 4)
  end
  if not opt.classes then
    if opt.classifier_dropout then error("RoBERTa: classifier_dropout is of the head of classes; give classes", 4) end
  elseif opt.head_chunk > 0 then
    error("RoBERTa: head_chunk is of the head of tokens; with classes leave it out", 4)
  end
end

function RoBERTa:build(opt)
  check(opt)
  local weight = init.trunc_normal { std = opt.std, low = -2 * opt.std, high = 2 * opt.std }
  local function linear(activation)
    return nn.Linear { inputs = opt.width, outputs = opt.width, activation = activation,
                       weight_initializer = weight, bias_initializer = init.zeros() }
  end
  local function rows(count, padding)
    return nn.Embedding { count = count, width = opt.width, padding_index = padding, weight_initializer = weight }
  end
  self.tokens, self.segments = rows(opt.vocabulary, opt.padding_index), rows(opt.segments)
  self.positions = rows(opt.sequence_length + opt.padding_index + 1, opt.padding_index)
  self.norm = nn.LayerNorm { width = opt.width, eps = opt.eps }
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks = nn.ModuleList()
  for _ = 1, opt.depth do self.blocks:append(nn.TransformerBlock(BERT.block_options(opt, weight))) end
  build_head(self, opt, linear, weight)
end

-- Which tokens are no padding, u8. Ids are exact in f32 up to 2^24.
local function real_of(self, tokens) return ops.ne(ops.cast(tokens, "f32"), self.opt.padding_index) end

-- x -> tokens, segments, key mask (b, s) u8, and u8 which tokens are no padding.
local function parts_of(self, x)
  if x:dim() == 2 then
    local seen = real_of(self, x)
    return x, ops.cast(ops.mul(ops.cast(x, "f32"), 0), "i64"), seen, seen
  end
  if x:dim() ~= 3 or x:size(2) ~= 3 then
    error(("x must be (batch, sequence), tokens, or (batch, 3, sequence): tokens, segments, key mask; got (%s)"):format(
      table.concat(x:shape(), ", ")), 0)
  end
  local tokens = ops.select(x, 2, 1)
  return tokens, ops.select(x, 2, 2), ops.cast(ops.select(x, 2, 3), "u8"), real_of(self, tokens)
end

-- Positions from padding_index + 1 on for tokens; padding_index for padding. Counts are exact in f32 up to 2^24.
local function positions_of(self, real)
  local counted = ops.cast(real, "f32")
  return ops.cast(ops.add(ops.mul(ops.cumsum(counted, 2), counted), self.opt.padding_index), "i64")
end

local function embed(self, x)
  local tokens, segments, seen, real = parts_of(self, x)
  if tokens:size(2) > self.opt.sequence_length then
    error(("a sequence of %d is longer than the %d positions of this model"):format(tokens:size(2),
      self.opt.sequence_length), 0)
  end
  local y = ops.add(self.tokens(tokens), self.segments(segments))
  y = self.norm(ops.add(y, self.positions(positions_of(self, real))))
  return self.dropout and self.dropout(y) or y, seen
end

local function score(self, y)
  if not self.opt.classes then return self.head((self.transform_norm(self.transform(y)))) end
  local function drop(t) return self.head_dropout and self.head_dropout(t) or t end
  local first = drop(ops.select(y, 2, 1):settle())
  return self.head(drop(ops.tanh(self.pooler(first))))
end

--- The forward pass: x i64 (b, s), tokens whose padding no position sees, or (b, 3, s): tokens, segments, and the key
-- mask, 0 for what is hidden -> logits of the tokens (b, s, vocabulary), or of the classes (b, classes), which come
-- from the first token. s <= sequence_length. Sections: the embeddings, each block, the head.
function RoBERTa:sections()
  local list = nn.TransformerBlock.sections(self.blocks)
  list[#list].close = function(y) return y end -- the head reads no key mask
  table.insert(list, 1, { modules = { self.tokens, self.segments, self.positions, self.norm, self.dropout },
                          forward = function(x) return embed(self, x) end })
  list[#list + 1] = { modules = { self.pooler or self.transform, self.head,
                                  self.transform_norm or self.head_dropout },
                      forward = function(y) return score(self, y) end }
  return list
end

--- Returns the floating point operations of one sequence of full length, forward and backward (twice the forward pass).
-- A multiply-add counts as two.
function RoBERTa:flops_per_sample()
  local opt = self.opt
  local head = 2 * opt.width * (opt.width + (opt.classes or opt.vocabulary))
  if not opt.classes then head = head * opt.sequence_length end
  for _, block in self.blocks:each() do head = head + block:flops(opt.sequence_length) end
  return 3 * head
end

return RoBERTa
