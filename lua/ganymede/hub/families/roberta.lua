--- RoBERTa, XLM-R and CamemBERT as transformers stores them: with the head of the tokens (ForMaskedLM), or with that of
-- the classes of a text (ForSequenceClassification). `architectures` of config.json says which one it is.
--
-- A file of the encoder alone (RobertaModel) has no "roberta." before the names of its arrays, and lacks the head; with
-- strict = false that keeps its initial numbers. The three differ in the name only, and new models are RoBERTa.
-- @module ganymede.hub.families.roberta
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"

local activations = families.activations

-- What follows the name of the family in `architectures`: has it the head of classes?
local heads = { ForMaskedLM = false, Model = false, ForSequenceClassification = true }

-- The number of classes; nil: the head is that of the tokens.
local function classes_of(config, stem)
  local named = config:get "architectures"
  if named == nil then return nil end
  local name = type(named) == "table" and #named == 1 and named[1]
  local head = type(name) == "string" and name:sub(1, #stem) == stem and name:sub(#stem + 1)
  local has = heads[head]
  if has == nil then
    config:refuse("'architectures' is %s; this program has %sForMaskedLM and %sForSequenceClassification",
      type(named) == "table" and json.encode(named) or options.brief(named), stem, stem)
  end
  return has and families.classes_of(config) or nil
end

-- The table of positions has a row more than padding has, and one for each token of the longest text.
local function length_of(config, padding)
  local rows = config:get("max_position_embeddings", 512)
  if rows <= padding + 1 then
    config:refuse("max_position_embeddings is %d, and positions count from pad_token_id + 1 = %d on", rows, padding + 1)
  end
  return rows - padding - 1
end

local function options_of(config, stem)
  local width, act = config:need "hidden_size", config:get("hidden_act", "gelu")
  for key, only in pairs { position_embedding_type = "absolute", tie_word_embeddings = true, is_decoder = false,
    add_cross_attention = false } do
    config:expect(key, only)
  end
  local padding, dropout = config:get("pad_token_id", 1), config:get "classifier_dropout"
  local classes = classes_of(config, stem)
  return {
    vocabulary = config:need "vocab_size", sequence_length = length_of(config, padding), padding_index = padding,
    segments = config:get("type_vocab_size", 2), classes = classes, classifier_dropout = classes and dropout or nil,
    width = width, depth = config:need "num_hidden_layers", heads = config:need "num_attention_heads",
    mlp_ratio = config:need "intermediate_size" / width,
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    eps = config:get("layer_norm_eps", 1e-12), dropout = config:get("hidden_dropout_prob", 0.1),
    attention_dropout = config:get("attention_probs_dropout_prob", 0.1),
  }
end

local function config_of(opt, kind, stem)
  local config = {
    model_type = kind, architectures = { stem .. (opt.classes and "ForSequenceClassification" or "ForMaskedLM") },
    vocab_size = opt.vocabulary, max_position_embeddings = opt.sequence_length + opt.padding_index + 1,
    pad_token_id = opt.padding_index, type_vocab_size = opt.segments, hidden_size = opt.width,
    num_hidden_layers = opt.depth, num_attention_heads = opt.heads,
    intermediate_size = families.rounded(opt.mlp_ratio * opt.width),
    hidden_act = families.activation_there(kind, opt.activation), layer_norm_eps = opt.eps,
    hidden_dropout_prob = opt.dropout, attention_probs_dropout_prob = opt.attention_dropout,
    classifier_dropout = opt.classifier_dropout, tie_word_embeddings = true,
  }
  if opt.classes then config.id2label, config.label2id = families.labels(opt.classes) end
  return config
end

local function head_entries(list, opt)
  if opt.classes then
    list:both("pooler", "classifier.dense")
    list:both("head", "classifier.out_proj")
    return
  end
  list:both("transform", "lm_head.dense")
  list:both("transform_norm", "lm_head.layer_norm")
  list:add("head.bias", "lm_head.bias")
end

-- has: tells whether a file is of the encoder alone.
local function entries_of(opt, has)
  local list = families.encoder(opt, has, "roberta.")
  head_entries(list, opt)
  return list
end

-- The places of positions, copies of what is tied, and a layer that neither head uses.
local function ignored(opt)
  local list = { "embeddings%.position_ids$", "^roberta%.pooler%.dense%.", "^pooler%.dense%." }
  if not opt.classes then list[4] = "^lm_head%.decoder%." end
  return list
end

local function tied(opt)
  if opt.classes then return nil end
  return { ["roberta.embeddings.word_embeddings.weight"] = "lm_head.decoder.weight",
           ["lm_head.bias"] = "lm_head.decoder.bias" }
end

-- kind: model_type; stem: what the names of its classes begin with.
local function family(kind, stem)
  return {
    model = "RoBERTa", types = { [kind] = true }, ignored = ignored, tied = tied,
    options = function(config) return options_of(config, stem) end,
    config = function(opt) return config_of(opt, kind, stem) end, entries = entries_of,
  }
end

return { family("roberta", "Roberta"), family("xlm-roberta", "XLMRoberta"),
  family("camembert", "Camembert") }
