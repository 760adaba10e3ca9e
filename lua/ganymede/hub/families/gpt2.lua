--- GPT-2 as Hugging Face's transformers stores it: matrices of its Conv1D layers are transposed, and queries, keys and
-- values of all heads stand one after the other.
-- @module ganymede.hub.families.gpt2
local families = require "ganymede.hub.families"

local gpt2 = { model = "GPT", types = { gpt2 = true }, transposed = true, task = "CAUSAL_LM" }

-- Triangles of ones and a large number; and a head that is tied, which some store all the same.
function gpt2.ignored(opt) return { "attn%.bias$", "attn%.masked_bias$", opt.tied and "^lm_head%.weight$" or nil } end

function gpt2.tied(opt) return opt.tied and { ["transformer.wte.weight"] = "lm_head.weight" } or nil end

local activations = families.activations

function gpt2.options(config)
  local width, act = config:need "n_embd", config:get("activation_function", "gelu_new")
  local dropout = config:get("resid_pdrop", 0.1)
  config:expect("scale_attn_weights", true)
  config:expect("scale_attn_by_inverse_layer_idx", false)
  config:get "reorder_and_upcast_attn" -- the order of roundings
  if config:get("embd_pdrop", 0.1) ~= dropout then config:refuse "embd_pdrop and resid_pdrop differ" end
  return {
    vocabulary = config:need "vocab_size", sequence_length = config:need "n_positions", width = width,
    depth = config:need "n_layer", heads = config:need "n_head", mlp_ratio = config:get("n_inner", 4 * width) / width,
    activation = activations[act] or config:refuse("activation_function is '%s'", tostring(act)),
    eps = config:get("layer_norm_epsilon", 1e-5), dropout = dropout,
    attention_dropout = config:get("attn_pdrop", 0.1), tied = config:get("tie_word_embeddings", true),
  }
end

function gpt2.config(opt)
  if opt.moe then families.refuse("gpt2", "moe", opt.moe) end
  if not opt.bias then families.refuse("gpt2", "bias", opt.bias) end
  if opt.kv_heads and opt.kv_heads ~= opt.heads then families.refuse("gpt2", "kv_heads", opt.kv_heads) end
  for _, name in ipairs { "window", "attention_softcap", "logit_softcap" } do
    if opt[name] then families.refuse("gpt2", name, opt[name]) end
  end
  return {
    model_type = "gpt2", architectures = { "GPT2LMHeadModel" }, vocab_size = opt.vocabulary,
    n_positions = opt.sequence_length, n_embd = opt.width, n_layer = opt.depth, n_head = opt.heads,
    n_inner = families.rounded(opt.mlp_ratio * opt.width),
    activation_function = families.activation_there("gpt2", opt.activation), layer_norm_epsilon = opt.eps,
    resid_pdrop = opt.dropout, embd_pdrop = opt.dropout, attn_pdrop = opt.attention_dropout,
    tie_word_embeddings = opt.tied,
  }
end

--- has: tells which of two ways to name arrays a file follows; nil: that of the model with a head.
function gpt2.entries(opt, has)
  local list, size = {}, opt.width / opt.heads
  local root = families.root(has, "wte.weight", "transformer.")
  local function add(ours, theirs, transposed) list[#list + 1] = families.whole(ours, root .. theirs, transposed) end
  local function both(ours, theirs, transposed)
    add(ours .. ".weight", theirs .. ".weight", transposed)
    add(ours .. ".bias", theirs .. ".bias")
  end
  add("tokens.weight", "wte.weight")
  add("positions.weight", "wpe.weight")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("h.%d."):format(i - 1)
    local function rows(what)
      return function(part, head)
        return root .. theirs .. "attn.c_attn." .. what, (part - 1) * opt.width + head * size + 1
      end
    end
    both(ours .. "norm1", theirs .. "ln_1")
    list[#list + 1] = { parameter = ours .. "attention.qkv.weight",
                        pieces = families.qkv(opt.heads, 1, size, opt.width, rows "weight", true) }
    list[#list + 1] = { parameter = ours .. "attention.qkv.bias",
                        pieces = families.qkv(opt.heads, 1, size, nil, rows "bias") }
    both(ours .. "attention.output", theirs .. "attn.c_proj", true)
    both(ours .. "norm2", theirs .. "ln_2")
    both(ours .. "mlp.up", theirs .. "mlp.c_fc", true)
    both(ours .. "mlp.down", theirs .. "mlp.c_proj", true)
  end
  both("norm", "ln_f")
  if not opt.tied then list[#list + 1] = families.whole("head.weight", "lm_head.weight") end
  return list
end

return gpt2
