--- ViT as transformers stores ViTForImageClassification.
-- @module ganymede.hub.families.vit
local families = require "ganymede.hub.families"

local vit = { model = "VisionTransformer", types = { vit = true } }

local memory = {
  ["attention.attention.query"] = "attention.q_proj", ["attention.attention.key"] = "attention.k_proj",
  ["attention.attention.value"] = "attention.v_proj", ["attention.output.dense"] = "attention.o_proj",
  ["intermediate.dense"] = "mlp.fc1", ["output.dense"] = "mlp.fc2",
}

function vit.in_memory(name)
  local layer, inner, what = name:match "^vit%.encoder%.layer%.(%d+)%.(.+)%.(%w+)$"
  return layer and ("vit.layers.%s.%s.%s"):format(layer, memory[inner] or inner, what) or name
end

function vit.ignored() return { "^vit%.pooler%.dense%." } end -- a head of ViTModel, which classification does not use

local activations = families.activations

-- The number of classes: that of the names.
local function classes_of(config)
  local names, count = config:get "id2label", 0
  if type(names) ~= "table" then return config:get("num_labels", 2) end
  for _ in pairs(names) do count = count + 1 end
  return count
end

function vit.options(config)
  local width, act = config:need "hidden_size", config:get("hidden_act", "gelu")
  for _, name in ipairs { "encoder_stride", "pooler_act", "pooler_output_size" } do config:get(name) end -- other heads
  return {
    image_size = config:get("image_size", 224), patch_size = config:get("patch_size", 16),
    channels = config:get("num_channels", 3), classes = classes_of(config), width = width,
    depth = config:need "num_hidden_layers", heads = config:need "num_attention_heads",
    mlp_ratio = config:need "intermediate_size" / width, eps = config:get("layer_norm_eps", 1e-12),
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    qkv_bias = config:get("qkv_bias", true), dropout = config:get("hidden_dropout_prob", 0),
    attention_dropout = config:get("attention_probs_dropout_prob", 0),
  }
end

local function labels(count)
  local names, numbers = {}, {}
  for i = 0, count - 1 do names[tostring(i)], numbers["LABEL_" .. i] = "LABEL_" .. i, i end
  return names, numbers
end

function vit.config(opt)
  if opt.moe then families.refuse("vit", "moe", opt.moe) end
  if opt.pool ~= "cls" then families.refuse("vit", "pool", opt.pool) end
  if not opt.bias then families.refuse("vit", "bias", opt.bias) end
  if opt.drop_path > 0 then families.refuse("vit", "drop_path", opt.drop_path) end
  if (opt.space or 2) ~= 2 then families.refuse("vit", "space", opt.space) end
  if type(opt.patch_size) == "table" then families.refuse("vit", "patch_size", opt.patch_size) end
  if type(opt.image_size) == "table" and #opt.image_size ~= 2 then
    families.refuse("vit", "image_size", opt.image_size)
  end
  local names, numbers = labels(opt.classes)
  return {
    model_type = "vit", architectures = { "ViTForImageClassification" }, image_size = opt.image_size,
    patch_size = opt.patch_size, num_channels = opt.channels, hidden_size = opt.width, num_hidden_layers = opt.depth,
    num_attention_heads = opt.heads, intermediate_size = families.rounded(opt.mlp_ratio * opt.width),
    hidden_act = families.activation_there("vit", opt.activation), layer_norm_eps = opt.eps,
    qkv_bias = opt.qkv_bias ~= false, hidden_dropout_prob = opt.dropout,
    attention_probs_dropout_prob = opt.attention_dropout, id2label = names, label2id = numbers,
  }
end

function vit.entries(opt)
  local list, patch = families.list(), opt.patch_size or 16
  local channels, kernel = opt.channels or 3, "vit.embeddings.patch_embeddings.projection.weight"
  list[#list + 1] = { parameter = "patches.weight", shapes = { [kernel] = { opt.width, channels, patch, patch } },
                      pieces = { { name = kernel, shape = { opt.width, channels * patch * patch } } } }
  list:add("patches.bias", "vit.embeddings.patch_embeddings.projection.bias")
  list:add("patches.class_token", "vit.embeddings.cls_token")
  list:add("patches.positions", "vit.embeddings.position_embeddings")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("vit.encoder.layer.%d."):format(i - 1)
    list:both(ours .. "norm1", theirs .. "layernorm_before")
    list:qkv(opt, ours .. "attention.qkv", theirs .. "attention.attention.", { "query", "key", "value" },
      opt.qkv_bias ~= false)
    list:both(ours .. "attention.output", theirs .. "attention.output.dense")
    list:both(ours .. "norm2", theirs .. "layernorm_after")
    list:both(ours .. "mlp.up", theirs .. "intermediate.dense")
    list:both(ours .. "mlp.down", theirs .. "output.dense")
  end
  list:both("norm", "vit.layernorm")
  list:both("head", "classifier")
  return list
end

return vit
