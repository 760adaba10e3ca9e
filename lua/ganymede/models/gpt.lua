--- GPT-2 (Radford et al. 2019): a causal language model with learned positions, whose head is tied to the table of
-- tokens. With vocabulary 50257 and the defaults it has the 124,439,808 parameters of the smallest GPT-2.
-- @module ganymede.models.gpt
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"

local GPT = module.class("GPT", nil, "models")

GPT.aliases = { vocab_size = "vocabulary", block_size = "sequence_length" }
GPT.options = {
  vocabulary = { type = "integer", min = 1,
    doc = "the number of tokens in the vocabulary; ids are 0 to vocabulary - 1" },
  sequence_length = { type = "integer", min = 1, default = 1024,
    doc = "the length of the longest sequence, in tokens; shorter ones are accepted" },
  width      = { type = "integer", min = 1, default = 768, doc = "the width of the residual stream" },
  depth      = { type = "integer", min = 1, default = 12, doc = "the number of transformer blocks" },
  heads      = { type = "integer", min = 1, default = 12,
    doc = "the number of attention heads, which must divide width" },
  kv_heads   = { type = "integer", min = 1, optional = true,
    doc = "the number of key and value heads, which must divide heads; default: heads" },
  mlp_ratio  = { type = "number", above = 0, default = 4, doc = "the hidden width of the MLPs divided by width" },
  activation = { type = "string", default = "gelu_tanh", one_of = functions.of_mlps,
                 doc = "the activation function of the MLPs" },
  moe        = { type = "table", optional = true,
                 doc = "the options of nn.MoE, which replaces the MLP in the last of each `every` blocks; every "
                   .. "(default 1) is one more option, and so is dense, a list of blocks that keep their MLP" },
  dropout    = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the embeddings and branches is dropped in training" },
  attention_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  bias       = { type = "boolean", default = true, doc = "whether projections, MLPs and norms have biases" },
  window     = nn.TransformerBlock.of_models.window,
  attention_softcap = nn.TransformerBlock.of_models.attention_softcap,
  logit_softcap = nn.TransformerBlock.of_models.logit_softcap,
  tied       = { type = "boolean", default = true, doc = "whether the head shares the table of tokens as its weight" },
  head_chunk = { type = "integer", min = 0, default = 0,
                 doc = "the number of rows of a rank whose logits exist at a time, in a Projection; 0: all, in a "
                   .. "tensor" },
  eps        = { type = "number", default = 1e-5, above = 0, doc = "a number added to the variance in the norms" },
  std        = { type = "number", default = 0.02, above = 0,
                 doc = "the initial standard deviation of weights; divided by sqrt(2 depth) for those whose results "
                   .. "are added to the residual stream" },
}

local function block_options(opt, i)
  return {
    width = opt.width, heads = opt.heads, kv_heads = opt.kv_heads, mlp_ratio = opt.mlp_ratio, causal = true,
    activation = opt.activation, bias = opt.bias, eps = opt.eps,
    moe = nn.TransformerBlock.moe_of(opt.moe, i, opt.depth),
    window = nn.TransformerBlock.window_of(opt.window, i), attention_softcap = opt.attention_softcap,
    dropout = opt.dropout, attention_dropout = opt.attention_dropout,
    weight_initializer = init.normal { std = opt.std }, bias_initializer = init.zeros(),
    residual_initializer = init.normal { std = opt.std / math.sqrt(2 * opt.depth) },
  }
end

GPT.head_is_pointwise = true -- the last section reads each position by itself (ganymede.generation)

function GPT:build(opt)
  local normal = init.normal { std = opt.std }
  self.tokens = nn.Embedding { count = opt.vocabulary, width = opt.width, weight_initializer = normal }
  self.positions = nn.PositionEmbedding {
    length = opt.sequence_length, width = opt.width, weight_initializer = normal,
  }
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks = nn.ModuleList()
  for i = 1, opt.depth do self.blocks:append(nn.TransformerBlock(block_options(opt, i))) end
  self.norm = nn.LayerNorm { width = opt.width, eps = opt.eps, bias = opt.bias }
  local head = { inputs = opt.width, classes = opt.vocabulary, bias = false, chunk = opt.head_chunk,
                 softcap = opt.logit_softcap }
  if opt.tied then head.weight = self.tokens else head.weight_initializer = normal end
  self.head = nn.Classifier(head)
end

local function embed(self, given, key_mask)
  local tokens, seen, positions = nn.TransformerBlock.tokens_of(given, key_mask)
  local x = self.positions(self.tokens(tokens), positions)
  return self.dropout and self.dropout(x) or x, seen
end

--- The forward pass: tokens (b, s) i64 or i32, s <= sequence_length -> logits (b, s, vocabulary), or with head_chunk a
-- Projection of them (ganymede.nn.projection). Rows that hold several documents are (b, 2, s): the tokens, and for each
-- the number of its document, negative for padding (ops.documents). No token sees another document, and positions begin
-- with each of them. key_mask (b, s) u8 or nil: 0 hides a position from the others, such as padding behind a text.
-- Sections: the embeddings, each block, norm and head.
function GPT:sections()
  local list = nn.TransformerBlock.sections(self.blocks)
  table.insert(list, 1, { modules = { self.tokens, self.positions, self.dropout },
                          forward = function(x, key_mask) return embed(self, x, key_mask) end })
  list[#list + 1] = { modules = { self.norm, self.head },
                      forward = function(branch, _, stream) return self.head((self.norm(branch, stream))) end }
  return list
end

--- Returns the floating point operations of one sequence of full length, forward and backward (twice the forward pass).
-- A multiply-add counts as two, causal attention as half of full attention.
function GPT:flops_per_sample()
  local opt = self.opt
  local total = 2 * opt.sequence_length * opt.width * opt.vocabulary
  for _, block in self.blocks:each() do total = total + block:flops(opt.sequence_length) end
  return 3 * total
end

return GPT
