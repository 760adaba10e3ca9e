--- ViT as transformers stores ViTForImageClassification, and as timm does.
-- @module ganymede.hub.families.vit
local families = require "ganymede.hub.families"
local pictures = require "ganymede.hub.families.pictures"

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

-- A head of ViTModel, which classification does not use.
function vit.ignored() return { "^vit%.pooler%.dense%.", "^pooler%.dense%." } end

local activations = families.activations

function vit.options(config)
  local width, act = config:need "hidden_size", config:get("hidden_act", "gelu")
  for _, name in ipairs { "encoder_stride", "pooler_act", "pooler_output_size" } do config:get(name) end -- other heads
  return {
    image_size = config:get("image_size", 224), patch_size = config:get("patch_size", 16),
    channels = config:get("num_channels", 3), classes = families.classes_of(config), width = width,
    depth = config:need "num_hidden_layers", heads = config:need "num_attention_heads",
    mlp_ratio = config:need "intermediate_size" / width, eps = config:get("layer_norm_eps", 1e-12),
    activation = activations[act] or config:refuse("hidden_act is '%s'", tostring(act)),
    qkv_bias = config:get("qkv_bias", true), dropout = config:get("hidden_dropout_prob", 0),
    attention_dropout = config:get("attention_probs_dropout_prob", 0),
  }
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
  local names, numbers = families.labels(opt.classes)
  return {
    model_type = "vit", architectures = { "ViTForImageClassification" }, image_size = opt.image_size,
    patch_size = opt.patch_size, num_channels = opt.channels, hidden_size = opt.width, num_hidden_layers = opt.depth,
    num_attention_heads = opt.heads, intermediate_size = families.rounded(opt.mlp_ratio * opt.width),
    hidden_act = families.activation_there("vit", opt.activation), layer_norm_eps = opt.eps,
    qkv_bias = opt.qkv_bias ~= false, hidden_dropout_prob = opt.dropout,
    attention_probs_dropout_prob = opt.attention_dropout, id2label = names, label2id = numbers,
  }
end

--- has: tells whether a file is of ViTModel alone, which writes its arrays without "vit." before their names.
function vit.entries(opt, has)
  local list, patch = families.list(), opt.patch_size or 16
  local root = families.root(has, "embeddings.cls_token", "vit.")
  local channels, kernel = opt.channels or 3, root .. "embeddings.patch_embeddings.projection.weight"
  list[#list + 1] = { parameter = "patches.weight", shapes = { [kernel] = { opt.width, channels, patch, patch } },
                      pieces = { { name = kernel, shape = { opt.width, channels * patch * patch } } } }
  list:add("patches.bias", root .. "embeddings.patch_embeddings.projection.bias")
  list:add("patches.class_token", root .. "embeddings.cls_token")
  list:add("patches.positions", root .. "embeddings.position_embeddings")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("%sencoder.layer.%d."):format(root, i - 1)
    list:both(ours .. "norm1", theirs .. "layernorm_before")
    list:qkv(opt, ours .. "attention.qkv", theirs .. "attention.attention.", { "query", "key", "value" },
      opt.qkv_bias ~= false)
    list:both(ours .. "attention.output", theirs .. "attention.output.dense")
    list:both(ours .. "norm2", theirs .. "layernorm_after")
    list:both(ours .. "mlp.up", theirs .. "intermediate.dense")
    list:both(ours .. "mlp.down", theirs .. "output.dense")
  end
  list:both("norm", root .. "layernorm")
  list:both("head", "classifier")
  return list
end

-- ---------------------------------------------------------------- timm's

local sizes = {}
for _, size in ipairs { { "base", 768, 12, 12, { 16, 32, 8 } }, { "tiny", 192, 12, 3, { 16 } },
  { "small", 384, 12, 6, { 16, 32, 8 } }, { "large", 1024, 24, 16, { 16, 32, 14 } }, { "huge", 1280, 32, 16, { 14 } },
  { "giant", 1408, 40, 16, { 14 }, 48 / 11 }, { "gigantic", 1664, 48, 16, { 14 }, 64 / 13 } } do
  for _, patch in ipairs(size[5]) do
    for _, image in ipairs(patch >= 16 and { 224, 384 } or { 224 }) do
      sizes[#sizes + 1] = { ("vit_%s_patch%d_%d"):format(size[1], patch, image), { width = size[2], depth = size[3],
        heads = size[4], patch_size = patch, image_size = image, mlp_ratio = size[6] or 4 } }
    end
  end
end

-- What layers of theirs can be told, and ours not.
local fixed = { reg_tokens = 0, pre_norm = false, final_norm = true, qk_norm = false, scale_attn_norm = false,
  scale_mlp_norm = false, proj_bias = true, no_embed_class = false, pos_embed = "learn", pool_include_prefix = false,
  drop_rate = 0, pos_drop_rate = 0, patch_drop_rate = 0, proj_drop_rate = 0 }

-- The mean of the patches behind the norm is what timm calls fc_norm = false.
local function read(args, opt, pool)
  for key, value in pairs(fixed) do args:expect(key, value) end
  opt.pool = pool == "avg" and "mean" or "cls"
  if type(opt.mlp_ratio) == "table" then args:refuse "mlp_ratio must be one number" end
  opt.mlp_ratio = math.floor(opt.mlp_ratio * opt.width) / opt.width
  if args:get("class_token", true) ~= (opt.pool == "cls") or args:get("fc_norm", pool == "avg") then
    args:refuse("global_pool = '%s' needs class_token = %s and fc_norm = false", pool, tostring(opt.pool == "cls"))
  end
end

local function write(opt, config, args)
  if opt.moe then families.refuse(config.model_type, "moe", opt.moe) end
  pictures.check_sides(config.model_type, opt)
  if args.mlp_ratio then args.mlp_ratio = pictures.ratio(families.rounded(opt.mlp_ratio * opt.width), opt.width) end
  config.global_pool = opt.pool == "mean" and "avg" or "token"
  if opt.pool == "mean" then args.global_pool, args.class_token, args.fc_norm = "avg", false, false end
end

local function entries(opt)
  local list = families.list()
  list:shaped("patches.weight", "patch_embed.proj.weight", { opt.width, opt.channels * opt.patch_size ^ 2 },
    { opt.width, opt.channels, opt.patch_size, opt.patch_size })
  list:add("patches.bias", "patch_embed.proj.bias")
  if opt.pool == "cls" then list:add("patches.class_token", "cls_token") end
  list:add("patches.positions", "pos_embed")
  for i = 1, opt.depth do
    local ours, theirs = ("blocks.%d."):format(i), ("blocks.%d."):format(i - 1)
    list:both(ours .. "norm1", theirs .. "norm1")
    list:joint_qkv(ours .. "attention.qkv", theirs .. "attn.qkv", opt.heads, opt.width, opt.qkv_bias ~= false)
    list:both(ours .. "attention.output", theirs .. "attn.proj")
    list:both(ours .. "norm2", theirs .. "norm2")
    list:both(ours .. "mlp.up", theirs .. "mlp.fc1")
    list:both(ours .. "mlp.down", theirs .. "mlp.fc2")
  end
  list:both("norm", "norm")
  list:both("head", "head")
  return list
end

local timm = pictures.family { library = "timm", model = "VisionTransformer", sizes = sizes, first = true, keys = {},
  defaults = { qkv_bias = true, attention_dropout = 0, drop_path = 0 }, pools = { "token", "avg" },
  args = { img_size = "image_size", patch_size = "patch_size", embed_dim = "width", depth = "depth",
    num_heads = "heads", mlp_ratio = "mlp_ratio", qkv_bias = "qkv_bias", attn_drop_rate = "attention_dropout",
    drop_path_rate = "drop_path" },
  only = { eps = 1e-6, dropout = 0, bias = true, activation = "gelu" }, read = read, write = write, entries = entries }

return { vit, timm }
