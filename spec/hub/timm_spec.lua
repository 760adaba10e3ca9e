--- What timm's config.json says of vision transformers, MLP-Mixers and others: names, sizes, model_args, and what is
-- refused. Their outputs and gradients are compared in spec/hub/families_spec.lua.
-- sanitizers: no, it holds Lua alone (docs/testing.md)
local families = require "ganymede.hub.families"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

local function place(name) return "spec/golden/hub/" .. name end

local function read(config)
  local family, opt = families.read(config, "config.json")
  return opt, family
end

-- The number of arrays that a config.json means, and of all their elements.
local function counted(config)
  local opt, family = read(config)
  local model = gm.models[family.model](opt)
  local shapes, arrays, all = {}, 0, 0
  for _, p in ipairs(model:declared()) do shapes[p.name] = p.shape end
  for _, array in ipairs(families.arrays(family.entries(model.opt), shapes, "f32")) do
    local n = 1
    for _, size in ipairs(array.shape) do n = n * size end
    arrays, all = arrays + 1, all + n
  end
  return { arrays, all }
end

-- What is written of a model that was read of this config.
local function again(config)
  local opt, family = read(config)
  return family.config(gm.models[family.model](opt).opt)
end

describe("models of timm", function()
  it("have the arrays and elements of its builders", function()
    local want = { vit_base_patch16_224 = { 152, 86567656 }, vit_tiny_patch16_384 = { 152, 5790376 },
      vit_large_patch32_384 = { 296, 306632680 }, vit_giant_patch14_224 = { 488, 1012611432 },
      mixer_b16_224 = { 150, 59880472 }, mixer_s32_224 = { 102, 19104624 }, mixer_l16_224 = { 294, 208196168 } }
    for name, counts in pairs(want) do assert.same(counts, counted { architecture = name }, name) end
  end)

  it("are written under the names of their sizes", function()
    for _, name in ipairs { "vit_base_patch16_224", "vit_small_patch32_384", "vit_gigantic_patch14_224",
      "mixer_b16_224", "mixer_l32_224" } do
      local config = again { architecture = name, num_classes = 5 }
      assert.same({ name, "timm." .. name, 5 }, { config.architecture, config.model_type, config.num_classes })
      assert.is_nil(config.model_args)
    end
    local square = { img_size = { 224, 224 }, in_chans = 3, num_classes = 5, global_pool = "token" }
    local config = again { architecture = "vit_tiny_patch16_224", global_pool = "token", model_args = square }
    assert.same({ "vit_tiny_patch16_224", 5 }, { config.architecture, config.num_classes })
    assert.is_nil(config.model_args)
  end)

  it("are written with what differs from these", function()
    assert.same({ img_size = 112, qkv_bias = false, attn_drop_rate = 0.1, in_chans = 1 },
      again({ architecture = "vit_small_patch16_224", model_args = { img_size = { 112, 112 }, qkv_bias = false,
        attn_drop_rate = 0.1, in_chans = 1, embed_dim = 768, num_heads = 12 } }).model_args)
    assert.same({ class_token = false, fc_norm = false, global_pool = "avg" },
      again({ architecture = "vit_base_patch16_224", global_pool = "avg",
        model_args = { class_token = false, fc_norm = false, global_pool = "avg" } }).model_args)
    local opt = read { architecture = "vit_base_patch16_224", model_args = { embed_dim = 12, mlp_ratio = 0.42 } }
    assert.equal(5, math.floor(opt.mlp_ratio * 12 + 0.5)) -- timm cuts 5.04 off
    local mixer = again { architecture = "mixer_b16_224", model_args = { mlp_ratio = { 0.3, 2 } } }.model_args
    assert.equal(230, math.floor(mixer.mlp_ratio[1] * 768))
    assert.equal(1536, math.floor(mixer.mlp_ratio[2] * 768))
    assert.equal(4, again({ architecture = "mixer_b16_224", depth = 4 }).depth)
    for hidden = 1, 400 do -- each number of hidden elements comes back
      for _, width in ipairs { 7, 49, 93, 187 } do
        local ratio = require("ganymede.hub.families.pictures").ratio(hidden, width)
        assert.equal(hidden, math.floor(ratio * width))
      end
    end
  end)

  it("of other kinds are read with model_args, too", function()
    local args = { num_classes = 7, in_chans = 1, global_pool = "avg" }
    local opt = read { architecture = "resnet18", num_classes = 7, global_pool = "avg", model_args = args }
    assert.same({ 7, 1 }, { opt.classes, opt.channels })
    args.img_size = { 224, 224 }
    assert.equal(7, read({ architecture = "swin_tiny_patch4_window7_224", model_args = args }).classes)
  end)

  it("keep what timm needs to read them again", function()
    local out = os.tmpname()
    os.remove(out)
    gm.scope(function() gm.export_model(gm.pretrained(place "timm_vit"), out) end)
    local before = json.of_file(place "timm_vit" .. "/config.json")
    local after = json.decode(machine.read(out .. "/config.json"), out)
    assert.same(before.pretrained_cfg, after.pretrained_cfg)
    os.execute("rm -r " .. out)
    local model = gm.models.MLPMixer { image_size = 4, patch_size = 2, width = 4, depth = 1, classes = 3 }
    gm.scope(function() gm.export_model(model, out) end)
    assert.same({ num_classes = 3 }, json.of_file(out .. "/config.json").pretrained_cfg)
    assert.equal(model:count(), gm.pretrained(out):count())
    os.execute("rm -r " .. out)
  end)

  local function refused(words, config)
    local ok, err = pcall(read, config)
    assert.is_false(ok)
    assert.is_truthy(require("ganymede.base.failure").text(err):find(words, 1, true), tostring(err.message or err))
  end

  it("are refused with what is not there", function()
    local function vit(args, pool)
      return { architecture = "vit_base_patch16_224", global_pool = pool, model_args = args }
    end
    refused("config.json: model_args: 'reg_tokens' is 4; this program has only 0", vit { reg_tokens = 4 })
    refused("'final_norm' is false; this program has only true", vit { final_norm = false })
    refused("model_args: init_values: not understood", vit { init_values = 1e-5 })
    refused("global_pool is \"map\"; this program has token and avg", vit(nil, "map"))
    refused("global_pool = 'avg' needs class_token = false and fc_norm = false", vit({ class_token = false }, "avg"))
    refused("global_pool = 'avg' needs class_token = false and fc_norm = false", vit({ fc_norm = false }, "avg"))
    refused("global_pool = 'token' needs class_token = true and fc_norm = false", vit { class_token = false })
    refused("'global_pool' is \"token\"; this program has only \"avg\"", vit({ global_pool = "avg" }, "token"))
    refused("mlp_ratio must be one number", vit { mlp_ratio = { 1, 2 } })
    refused("'depth' is 70000; it must be a whole number", vit { depth = 70000 })
    refused("'img_size' is { 8, 8, 8 }; it must be a whole number from 1 to 65536, or a list of two",
      vit { img_size = { 8, 8, 8 } })
    refused("'model_args' is { 1 }; it must be an object", vit { 1 })
    refused("model_type is 'timm.vit_base_patch16_gap_224'", { architecture = "vit_base_patch16_gap_224" })
    refused("'stem_norm' is true", { architecture = "mixer_b16_224", model_args = { stem_norm = true } })
    refused("'drop_path_rate' is 0.1", { architecture = "mixer_b16_224", model_args = { drop_path_rate = 0.1 } })
    refused("global_pool is \"max\"; this program has avg", { architecture = "resnet18",
      model_args = { global_pool = "max" } })
    refused("img_size is 256; windows tile all stages if it is a multiple of 224", {
      architecture = "swin_tiny_patch4_window7_224", model_args = { img_size = { 224, 256 } } })
    refused("model_args: depths: not understood", { architecture = "swin_tiny_patch4_window7_224",
      model_args = { depths = { 2, 2 } } })
  end)

  it("are refused when they are written with options that timm does not have", function()
    local function unwritable(words, class, options, from)
      local family = from and select(2, read { architecture = from }) or families.of_class(class, options)
      local ok, err = pcall(family.config, gm.models[class](options).opt)
      assert.is_false(ok)
      assert.is_truthy(err.message:find(words, 1, true), err.message)
    end
    local vit = "vit_base_patch16_224"
    unwritable("eps = 1e-05: a model of type timm.vit_base_patch16_224", "VisionTransformer", {}, vit)
    unwritable("dropout = 0.1", "VisionTransformer", { eps = 1e-6, dropout = 0.1 }, vit)
    unwritable("activation = \"relu\"", "VisionTransformer", { eps = 1e-6, activation = "relu" }, vit)
    unwritable("patch_size = { 16, 8 }", "VisionTransformer", { eps = 1e-6, patch_size = { 16, 8 } }, vit)
    unwritable("image_size = { 32 }", "MLPMixer", { image_size = { 32 } })
    unwritable("drop_path = 0.1: a model of type timm.mixer_b16_224", "MLPMixer", { drop_path = 0.1 })
    assert.equal("VisionTransformer", select(2, read { architecture = vit }).model)
    assert.is_true(families.of_class("VisionTransformer", {}).types.vit) -- new ones are written as transformers' ViT
  end)
end)
