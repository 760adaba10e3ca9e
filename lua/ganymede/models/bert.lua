--- BERT (Devlin et al. 2019): an encoder in which every position sees all others, with the two heads of its training.
-- One predicts hidden tokens, the other whether the second text follows the first. Its loss is nn.BERTLoss, its data
-- { type = "TextPairs" }. With the defaults it has the 110,106,428 parameters of BERT-base with both heads.
-- The trap: x has three rows for each sample (tokens, segments, key mask), because a batch is one tensor.
-- @module ganymede.models.bert
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"
local ops = require "ganymede.tensor.ops"

local BERT = module.class("BERT", nil, "models")

BERT.aliases = { vocab_size = "vocabulary", hidden_size = "width" }
BERT.options = {
  vocabulary = { type = "integer", min = 1, default = 30522,
    doc = "the number of tokens in the vocabulary; ids are 0 to vocabulary - 1" },
  sequence_length = { type = "integer", min = 1, default = 512,
    doc = "the length of the longest sequence, in tokens; shorter ones are accepted" },
  width      = { type = "integer", min = 1, default = 768, doc = "the width of the residual stream" },
  depth      = { type = "integer", min = 1, default = 12, doc = "the number of transformer blocks" },
  heads      = { type = "integer", min = 1, default = 12,
    doc = "the number of attention heads, which must divide width" },
  mlp_ratio  = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLPs divided by width" },
  activation = { type = "string", default = "gelu", one_of = functions.of_mlps,
                 doc = "the activation function of the MLPs and of the head of the tokens" },
  dropout    = { type = "number", default = 0.1, min = 0, below = 1,
    doc = "the probability with which an element of the embeddings and branches is dropped in training" },
  attention_dropout = { type = "number", default = 0.1, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  prefix_mask = nn.TransformerBlock.options.prefix_mask,
  head_chunk = { type = "integer", min = 0, default = 0,
                 doc = "the number of rows of a rank whose logits of the tokens exist at a time, in a Projection; 0: "
                   .. "all, in a tensor" },
  eps        = { type = "number", default = 1e-12, above = 0, doc = "a number added to the variance in the norms" },
  std        = { type = "number", default = 0.02, above = 0,
                 doc = "the initial standard deviation of weights, whose distribution is cut at twice that" },
}

--- The options of a block of the encoder (also of models.RoBERTa).
function BERT.block_options(opt, weight)
  return {
    width = opt.width, heads = opt.heads, mlp_ratio = opt.mlp_ratio, activation = opt.activation, eps = opt.eps,
    post_norm = true, dropout = opt.dropout, attention_dropout = opt.attention_dropout, prefix_mask = opt.prefix_mask,
    weight_initializer = weight, bias_initializer = init.zeros(),
  }
end

function BERT:build(opt)
  local weight, zeros = init.trunc_normal { std = opt.std, low = -2 * opt.std, high = 2 * opt.std }, init.zeros()
  local function norm() return nn.LayerNorm { width = opt.width, eps = opt.eps } end
  local function linear(activation)
    return nn.Linear { inputs = opt.width, outputs = opt.width, activation = activation,
                       weight_initializer = weight, bias_initializer = zeros }
  end
  self.tokens = nn.Embedding { count = opt.vocabulary, width = opt.width, weight_initializer = weight }
  self.segments = nn.Embedding { count = 2, width = opt.width, weight_initializer = weight }
  self.positions = nn.PositionEmbedding { length = opt.sequence_length, width = opt.width, weight_initializer = weight }
  self.norm = norm()
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks = nn.ModuleList()
  for _ = 1, opt.depth do self.blocks:append(nn.TransformerBlock(BERT.block_options(opt, weight))) end
  self.transform, self.transform_norm = linear(opt.activation), norm()
  self.head = nn.Classifier { inputs = opt.width, classes = opt.vocabulary, weight = self.tokens,
                              bias_initializer = zeros, chunk = opt.head_chunk }
  self.pooler = linear()
  self.pair_head = nn.Classifier { inputs = opt.width, classes = 2, weight_initializer = weight,
                                   bias_initializer = zeros }
end

-- x (b, 3, s) -> the stream (b, s, width) before the first block, and the key mask (b, s) u8.
local function embed(self, x)
  if x:dim() ~= 3 or x:size(2) ~= 3 then
    error(("x must be (batch, 3, sequence): tokens, segments, key mask; got (%s)"):format(
      table.concat(x:shape(), ", ")), 0)
  end
  local y = ops.add(self.tokens(ops.select(x, 2, 1)), self.segments(ops.select(x, 2, 2)))
  y = self.norm(self.positions(y))
  return self.dropout and self.dropout(y) or y, ops.cast(ops.select(x, 2, 3), "u8")
end

local function score(self, y)
  local first = self.pooler(ops.select(y, 2, 1):settle())
  return { self.head((self.transform_norm(self.transform(y)))), self.pair_head(ops.tanh(first)) }
end

--- The forward pass: x (b, 3, s) i64, s <= sequence_length -> { logits of the tokens (b, s, vocabulary), logits of the
-- pair (b, 2): the second text follows, or does not }. The rows of x are tokens; segments, 0 or 1; and the key mask, 0
-- for padding, otherwise 1. The logits of the pair come from the first token of the sequence. Sections: the embeddings,
-- each block, both heads.
function BERT:sections()
  local list = nn.TransformerBlock.sections(self.blocks)
  list[#list].close = function(y) return y end -- the heads read no key mask
  table.insert(list, 1, { modules = { self.tokens, self.segments, self.positions, self.norm, self.dropout },
                          forward = function(x) return embed(self, x) end })
  list[#list + 1] = { modules = { self.transform, self.transform_norm, self.head, self.pooler, self.pair_head },
                      forward = function(y) return score(self, y) end }
  return list
end

--- Returns the floating point operations of one sequence of full length, forward and backward (twice the forward pass).
-- A multiply-add counts as two.
function BERT:flops_per_sample()
  local opt = self.opt
  local heads = 2 * opt.sequence_length * opt.width * (opt.width + opt.vocabulary) + 2 * opt.width * (opt.width + 2)
  for _, block in self.blocks:each() do heads = heads + block:flops(opt.sequence_length) end
  return 3 * heads
end

return BERT
