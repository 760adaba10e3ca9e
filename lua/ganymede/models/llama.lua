--- Llama (Touvron et al. 2023, Grattafiori et al. 2024): a causal language model with rotary positions, grouped key
-- heads, RMS norms and gated MLPs. With vocabulary 128256 and the defaults it has the 1,235,814,400 parameters of
-- Llama 3.2 1B. Its options make Mistral, Qwen2 (qkv_bias), Qwen3 (qk_norm, head_size), SmolLM2, Phi-3, Gemma 1 and 2
-- (norm_offset, branch_norms, embedding_scale) and OLMo 2 (branch_norms, input_norms, qk_norm_joint) as well, and with
-- experts (moe) Mixtral (Jiang et al., arXiv:2401.04088), Qwen2-MoE and Qwen3-MoE.
-- @module ganymede.models.llama
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local nn = require "ganymede.nn"

local Llama = module.class("Llama", nil, "models")

Llama.aliases = {
  vocab_size = "vocabulary", hidden_size = "width", intermediate_size = "hidden", num_hidden_layers = "depth",
  num_attention_heads = "heads", num_key_value_heads = "kv_heads", head_dim = "head_size", rms_norm_eps = "eps",
  max_position_embeddings = "sequence_length", tie_word_embeddings = "tied",
}
Llama.options = {
  vocabulary = { type = "integer", min = 1,
    doc = "the number of tokens in the vocabulary; ids are 0 to vocabulary - 1" },
  sequence_length = { type = "integer", min = 1, default = 2048,
    doc = "the length of the sequences of training, in tokens; others are accepted" },
  width      = { type = "integer", min = 1, default = 2048, doc = "the width of the residual stream" },
  depth      = { type = "integer", min = 1, default = 16, doc = "the number of transformer blocks" },
  heads      = { type = "integer", min = 1, default = 32,
    doc = "the number of query heads, which must divide width unless head_size is given" },
  kv_heads   = { type = "integer", min = 1, default = 8,
    doc = "the number of key and value heads, which must divide heads" },
  head_size  = nn.MultiHeadAttention.options.head_size,
  hidden     = { type = "integer", min = 1, default = 8192, doc = "the hidden width of the MLPs" },
  activation = { type = "string", default = "swiglu", one_of = functions.of_mlps,
                 doc = "the activation function of the MLPs; the last four are gated" },
  moe        = { type = "table", optional = true,
                 doc = "the options of nn.MoE, which replaces the MLP in the last of each `every` blocks; every "
                   .. "(default 1) is one more option, and so is dense, a list of blocks that keep their MLP" },
  rotary     = { type = { "boolean", "table" }, default = { base = 500000 },
    doc = "how positions turn queries and keys: a table with base, fraction, interleaved, scaling" },
  qk_norm    = nn.MultiHeadAttention.options.qk_norm,
  qk_norm_joint = nn.MultiHeadAttention.options.qk_norm_joint,
  bias       = { type = "boolean", default = false, doc = "whether projections and MLPs have biases" },
  qkv_bias   = nn.MultiHeadAttention.options.qkv_bias,
  mlp_bias   = nn.TransformerBlock.options.mlp_bias,
  eps        = { type = "number", default = 1e-5, above = 0, doc = "a number added to the mean square in the norms" },
  norm_offset = nn.TransformerBlock.options.norm_offset,
  branch_norms = nn.TransformerBlock.options.branch_norms,
  input_norms = nn.TransformerBlock.options.input_norms,
  embedding_scale = { type = "number", above = 0, optional = true,
    doc = "what the embeddings are multiplied by, such as sqrt(width) in Gemma" },
  dropout    = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the embeddings and branches is dropped in training" },
  attention_dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an attention weight is dropped in training" },
  window     = nn.TransformerBlock.of_models.window,
  attention_softcap = nn.TransformerBlock.of_models.attention_softcap,
  attention_scale = nn.MultiHeadAttention.options.scale,
  logit_softcap = nn.TransformerBlock.of_models.logit_softcap,
  tied       = { type = "boolean", default = true, doc = "whether the head shares the table of tokens as its weight" },
  head_chunk = { type = "integer", min = 0, default = 0,
                 doc = "the number of rows of a rank whose logits exist at a time, in a Projection; 0: all, in a "
                   .. "tensor" },
  std        = { type = "number", default = 0.02, above = 0,
                 doc = "the initial standard deviation of weights; divided by sqrt(2 depth) for those whose results "
                   .. "are added to the residual stream" },
}

local function block_options(opt, i)
  return {
    width = opt.width, heads = opt.heads, kv_heads = opt.kv_heads, head_size = opt.head_size, hidden = opt.hidden,
    causal = true, activation = opt.activation, norm = "RMSNorm", eps = opt.eps, bias = opt.bias,
    norm_offset = opt.norm_offset, branch_norms = opt.branch_norms, input_norms = opt.input_norms,
    qkv_bias = opt.qkv_bias, mlp_bias = opt.mlp_bias, rotary = opt.rotary, qk_norm = opt.qk_norm,
    qk_norm_joint = opt.qk_norm_joint,
    window = nn.TransformerBlock.window_of(opt.window, i), attention_softcap = opt.attention_softcap,
    attention_scale = opt.attention_scale,
    moe = nn.TransformerBlock.moe_of(opt.moe, i, opt.depth), dropout = opt.dropout,
    attention_dropout = opt.attention_dropout,
    weight_initializer = init.normal { std = opt.std },
    bias_initializer = init.zeros(), residual_initializer = init.normal { std = opt.std / math.sqrt(2 * opt.depth) },
  }
end

Llama.head_is_pointwise = true -- the last section reads each position by itself (ganymede.generation)

function Llama:build(opt)
  local normal = init.normal { std = opt.std }
  self.tokens = nn.Embedding { count = opt.vocabulary, width = opt.width, weight_initializer = normal }
  if opt.dropout > 0 then self.dropout = nn.Dropout(opt.dropout) end
  self.blocks = nn.ModuleList()
  for i = 1, opt.depth do self.blocks:append(nn.TransformerBlock(block_options(opt, i))) end
  self.norm = nn.RMSNorm { width = opt.width, eps = opt.eps, offset = opt.norm_offset }
  local head = { inputs = opt.width, classes = opt.vocabulary, bias = false, chunk = opt.head_chunk,
                 softcap = opt.logit_softcap }
  if opt.tied then head.weight = self.tokens else head.weight_initializer = normal end
  self.head = nn.Classifier(head)
end

local function embed(self, given, key_mask)
  local tokens, seen = nn.TransformerBlock.tokens_of(given, key_mask)
  local x, scale = self.tokens(tokens), self.opt.embedding_scale
  if scale then x = x * scale end
  return self.dropout and self.dropout(x) or x, seen
end

--- The forward pass: tokens (b, s) i64 or i32 -> logits (b, s, vocabulary), or with head_chunk a
-- Projection of them (ganymede.nn.projection). Rows that hold several documents are (b, 2, s): the tokens, and for each
-- the number of its document, negative for padding (ops.documents). No token sees another document, and positions begin
-- with each of them. key_mask (b, s) u8 or nil: 0 hides a position from the others, such as padding behind a text.
-- Sections: the embeddings, each block, norm and head.
function Llama:sections()
  local list = nn.TransformerBlock.sections(self.blocks)
  table.insert(list, 1, { modules = { self.tokens, self.dropout },
                          forward = function(x, key_mask) return embed(self, x, key_mask) end })
  list[#list + 1] = { modules = { self.norm, self.head },
                      forward = function(branch, _, stream) return self.head((self.norm(branch, stream))) end }
  return list
end

--- Returns the floating point operations of one sequence of full length, forward and backward (twice the forward pass).
-- A multiply-add counts as two, causal attention as half of full attention.
function Llama:flops_per_sample()
  local opt = self.opt
  local total = 2 * opt.sequence_length * opt.width * opt.vocabulary
  for _, block in self.blocks:each() do total = total + block:flops(opt.sequence_length) end
  return 3 * total
end

return Llama
