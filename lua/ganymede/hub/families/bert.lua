--- BERT with the two heads of its training, as transformers stores BertForPreTraining.
--
-- A file without these heads (BertModel, BertForMaskedLM) lacks arrays; with strict = false they keep their initial
-- numbers. Very old files call the weights of norms gamma and beta, which is refused.
-- @module ganymede.hub.families.bert
local families = require "ganymede.hub.families"

local bert = { model = "BERT", types = { bert = true } }

-- The places of positions, and copies of what is tied.
function bert.ignored()
  return { "embeddings%.position_ids$", "^cls%.predictions%.decoder%.weight$", "^cls%.predictions%.decoder%.bias$" }
end

function bert.tied()
  return { ["bert.embeddings.word_embeddings.weight"] = "cls.predictions.decoder.weight",
           ["cls.predictions.bias"] = "cls.predictions.decoder.bias" }
end

local activations = families.activations

function bert.options(config)
  local width, act = config:need "hidden_size", config:get("hidden_act", "gelu")
  config:expect("position_embedding_type", "absolute")
  config:expect("type_vocab_size", 2)
  config:expect("tie_word_embeddings", true)
  config:expect("is_decoder", false)
  config:get "classifier_dropout" -- of a head that is not here
  return {
    vocabulary = config:need "vocab_size", sequence_length = config:need "max_position_embeddings", width = width,
    depth = config:need "num_hidden_layers", heads = config:need "num_attention_heads",
    mlp_ratio = config:need "intermediate_size" / width,
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    eps = config:get("layer_norm_eps", 1e-12), dropout = config:get("hidden_dropout_prob", 0.1),
    attention_dropout = config:get("attention_probs_dropout_prob", 0.1),
  }
end

function bert.config(opt)
  return {
    model_type = "bert", architectures = { "BertForPreTraining" }, vocab_size = opt.vocabulary,
    max_position_embeddings = opt.sequence_length, hidden_size = opt.width, num_hidden_layers = opt.depth,
    num_attention_heads = opt.heads, intermediate_size = families.rounded(opt.mlp_ratio * opt.width),
    hidden_act = families.activation_there("bert", opt.activation), layer_norm_eps = opt.eps,
    hidden_dropout_prob = opt.dropout, attention_probs_dropout_prob = opt.attention_dropout, type_vocab_size = 2,
    tie_word_embeddings = true,
  }
end

--- has: tells whether a file is of BertModel alone, which writes its arrays without "bert." before their names.
function bert.entries(opt, has)
  local list, root = families.encoder(opt, has, "bert.")
  list:both("transform", "cls.predictions.transform.dense")
  list:both("transform_norm", "cls.predictions.transform.LayerNorm")
  list:add("head.bias", "cls.predictions.bias")
  list:both("pooler", root .. "pooler.dense")
  list:both("pair_head", "cls.seq_relationship")
  return list
end

return bert
