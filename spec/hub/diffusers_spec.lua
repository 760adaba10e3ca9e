--- Models of latent diffusion, written by diffusers (spec/golden/hub_diffusers.py): outputs in f32, loss and gradients
-- in f64, back to the same bytes, and in training as parts of Diffusion.
-- ranks: 1 2
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local families = require "ganymede.hub.families"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local ranks = require "ganymede.job.ranks"

local FOLDERS = { "sd_unet", "sd_unet_odd", "sd_vae", "sd_vae_odd" }

-- Some 30 layers in f32, whose outputs and embeddings of time were rounded to 7 places: a few 1e-6 of the largest.
local TOLERANCE = 1e-5
-- The same sums in f64, some of them in another order.
local EXACT = 1e-10

local function place(name) return "spec/golden/hub/" .. name end

local function expected(name) return json.decode(machine.read(place(name) .. "/expected.json"), name) end

-- The outputs, as the file lists them: the prediction; or the image again, mean and logarithm of the variance.
local function outputs(model, want, dtype)
  local x = gm.tensor(want.inputs.x, { dtype = dtype })
  if model.name == "AutoencoderKL" then return model(x) end
  local times = gm.tensor(want.times, { dtype = "i64" })
  return { model(x, times, gm.tensor(want.inputs.context, { dtype = dtype })) }
end

local function agree(model, want)
  gm.scope(gm.no_grad, function()
    local got = outputs(model:eval(), want, "f32")
    assert.equal(#want.outputs, #got)
    for i, t in ipairs(got) do numeric.agree(t:gather(), gm.tensor(want.outputs[i]), TOLERANCE) end
  end)
end

local function new_folder()
  return ranks.from_first(function()
    local path = os.tmpname()
    os.remove(path)
    return path
  end)
end

local function remove(path)
  gm.comm.barrier()
  if core.rank() == 0 then os.execute("rm -r " .. path) end
end

local function config_of(folder) return json.decode(machine.read(folder .. "/config.json"), folder) end

describe(core.world() == 1 and "models of diffusers on one rank" or "models of diffusers in 1d", function()
  setup(function()
    if core.world() > 1 then against.install { tensor = { size = core.world(), mode = "1d" } } end
  end)
  teardown(function()
    if core.world() > 1 then against.install { data = core.world() } end
  end)

  for _, name in ipairs(FOLDERS) do
    if core.world() == 1 or name == "sd_unet" then -- one head is shared by no two ranks
      it(name .. " gives the outputs of diffusers", function() agree(gm.pretrained(place(name)), expected(name)) end)

      it(name .. " is written as it was read", function()
        local out = new_folder()
        gm.scope(function() gm.export_model(gm.pretrained(place(name)), out) end)
        local a = gm.open_arrays(place(name) .. "/diffusion_pytorch_model.safetensors")
        local b = gm.open_arrays(out .. "/diffusion_pytorch_model.safetensors")
        assert.same(a:names(), b:names())
        for _, array in ipairs(b:names()) do
          assert.same(a:info(array), b:info(array))
          gm.scope(function() assert.same(a:read(array):totable(), b:read(array):totable()) end)
        end
        a:close()
        b:close()
        local before, after = config_of(place(name)), config_of(out)
        for key, value in pairs(after) do -- the number of blocks of transformers may be a list there
          if before[key] ~= nil then assert.same(before[key], value, key) end
        end
        assert.is_nil(after.dtype)
        assert.same({ before._class_name, before.sample_size }, { after._class_name, after.sample_size })
        agree(gm.pretrained(out), expected(name)) -- and its config.json says the same
        remove(out)
      end)
    end
  end
end)

if core.world() > 1 then return end

describe("in f64", function()
  -- The gradients of a model as arrays of its family: written like the model itself.
  local function gradient_arrays(model, name)
    local twin, out = gm.pretrained(place(name)):materialize { dtype = "f64" }, new_folder()
    gm.no_grad(function()
      local own = twin:parameters()
      for i, p in ipairs(model:parameters()) do own[i]:copy_(p:grad()) end
    end)
    gm.export_model(twin, out)
    return gm.open_arrays(out), out
  end

  for _, name in ipairs(FOLDERS) do
    it(name .. " has the loss and the gradients of diffusers", numeric.f64(function()
      local want, loss = expected(name), 0
      local model = gm.pretrained(place(name)):materialize { dtype = "f64" }:eval()
      for _, t in ipairs(outputs(model, want, "f64")) do loss = loss + t:square():mean() end
      numeric.agree(loss:detach(), gm.tensor(want.loss, { dtype = "f64" }), EXACT)
      loss:backward()
      local arrays, out = gradient_arrays(model, name)
      local count = 0
      for array, numbers in pairs(want.gradients) do
        local g = arrays:read(array, { dtype = "f64" })
        local norm, product = 0, 0
        for i, x in ipairs(numeric.flat(g)) do norm, product = norm + x * x, product + x * math.cos(i) end
        assert.is_true(math.abs(math.sqrt(norm) - numbers[1]) <= EXACT * (1 + numbers[1]), array)
        assert.is_true(math.abs(product - numbers[2]) <= EXACT * (1 + numbers[1]), array)
        count = count + 1
      end
      assert.equal(#arrays:names(), count)
      arrays:close()
      remove(out)
    end))
  end
end)

-- A copy of a folder whose config.json is changed.
local function changed(name, change)
  local folder = new_folder()
  assert(os.execute(("cp -r %s %s"):format(place(name), folder)))
  local config = config_of(folder)
  change(config, folder)
  core.write_whole(folder .. "/config.json", json.encode(config))
  return folder
end

describe("Stable Diffusion", function()
  -- What config.json of stable-diffusion-v1-5 says.
  local unet = { _class_name = "UNet2DConditionModel", _diffusers_version = "0.6.0", act_fn = "silu",
    attention_head_dim = 8, block_out_channels = { 320, 640, 1280, 1280 }, center_input_sample = false,
    cross_attention_dim = 768, down_block_types = { "CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
      "CrossAttnDownBlock2D", "DownBlock2D" }, downsample_padding = 1, flip_sin_to_cos = true, freq_shift = 0,
    in_channels = 4, layers_per_block = 2, mid_block_scale_factor = 1, norm_eps = 1e-5, norm_num_groups = 32,
    out_channels = 4, sample_size = 64, up_block_types = { "UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D",
      "CrossAttnUpBlock2D" } }
  local vae = { _class_name = "AutoencoderKL", _diffusers_version = "0.6.0", act_fn = "silu",
    block_out_channels = { 128, 256, 512, 512 }, in_channels = 3, latent_channels = 4, layers_per_block = 2,
    norm_num_groups = 32, out_channels = 3, sample_size = 512, down_block_types = { "DownEncoderBlock2D",
      "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D" }, up_block_types = { "UpDecoderBlock2D",
      "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D" } }

  -- The number of arrays that a config.json means, and of all their elements.
  local function counted(config)
    local family, opt = families.read(config, "config.json")
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

  it("1.5 has the arrays and elements of its files", function()
    assert.same({ 686, 859520964 }, counted(unet))
    assert.same({ 248, 83653863 }, counted(vae))
  end)

  it("is what the defaults of UNet and AutoencoderKL are written as", function()
    for class, want in pairs { UNet = unet, AutoencoderKL = vae } do
      local family = families.of_class(class, { context = 768 })
      local config = family.config(gm.models[class] { context = class == "UNet" and 768 or nil }.opt)
      for key, value in pairs(want) do
        local said = not ({ _diffusers_version = 1, sample_size = 1, model_type = 1 })[key]
        if said and value ~= false then
          assert.same(value, config[key], key)
        end
      end
    end
    assert.is_nil(families.of_class("UNet", { classes = 3 }))
  end)

  it("trains, and draws, as parts of Diffusion", function()
    local model = gm.models.Diffusion { autoencoder = { type = "Pretrained", path = place "sd_vae_odd" },
      denoiser = { type = "UNet", channels = 3, width = 4, multipliers = { 1, 2 }, groups = 2, heads = 2,
        context = 5 } }
    assert.equal(0.5, model.latent_scale) -- scaling_factor of its config.json
    assert.equal(0.18215, gm.models.Diffusion { autoencoder = { type = "Pretrained", path = place "sd_vae" },
      denoiser = { type = "UNet", channels = 2, width = 4, groups = 2, heads = 2, context = 5 } }.latent_scale)
    gm.scope(function()
      local x = gm.normal({ 1, 1, 8, 16 }, { seed = 3 })
      local out = model { x, gm.normal({ 1, 2, 5 }, { seed = 4 }) }
      assert.same({ { 1, 3, 2, 4 }, { 1, 3, 2, 4 } }, { out[1]:shape(), out[2]:shape() })
    end)
    gm.scope(gm.no_grad, function() -- decoding divides by the scale
      local draw = { shape = { 1, 3, 2, 2 }, steps = 2, seed = 5, condition = gm.normal({ 1, 2, 5 }, { seed = 4 }) }
      local images = model:sample(draw)
      draw.condition, draw.guidance = nil, nil
      local latent = gm.diffusion_sample(model.process, function(x, t)
        return model.denoiser(x, t, gm.normal({ 1, 2, 5 }, { seed = 4 }))
      end, draw)
      numeric.agree(images, model.autoencoder:decode(latent * 2), TOLERANCE)
    end)
  end)

  it("is read from older files, whose attention has other names", function()
    local older = { to_q = "query", to_k = "key", to_v = "value", ["to_out.0"] = "proj_attn" }
    local folder = changed("sd_vae", function() end)
    local file, list = gm.open_arrays(folder), {}
    gm.scope(function()
      for _, name in ipairs(file:names()) do
        local stem, layer, what = name:match "^(.*attentions%.0%.)(to_.*)%.(%w+)$"
        list[#list + 1] = { stem and stem .. older[layer] .. "." .. what or name, file:read(name) }
      end
      os.remove(file.path)
      gm.save_arrays(folder .. "/diffusion_pytorch_model.safetensors", list)
    end)
    file:close()
    agree(gm.pretrained(folder), expected "sd_vae")
    os.execute("rm -r " .. folder)
  end)

  it("takes the dropout that is given, where it has one", function()
    assert.equal(0.25, gm.pretrained(place "sd_unet", { dropout = 0.25 }).opt.dropout)
    assert.error_matches(function() gm.pretrained(place "sd_vae", { dropout = 0.25 }) end, "no option 'dropout'")
  end)

  it("is read from several files with their index", function()
    local folder = new_folder()
    gm.scope(function() gm.export_model(gm.pretrained(place "sd_vae"), folder, { max_file_bytes = 30000 }) end)
    assert.is_truthy(io.open(folder .. "/diffusion_pytorch_model.safetensors.index.json"))
    agree(gm.pretrained(folder), expected "sd_vae")
    os.execute("rm -r " .. folder)
  end)
end)

describe("a folder of diffusers that is wrong", function()
  local function refused(words, name, change)
    local folder = changed(name, change)
    local ok, err = pcall(gm.pretrained, folder)
    os.execute("rm -r " .. folder)
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find(words, 1, true), err)
  end

  it("is refused, with the key", function()
    refused("model_type is 'diffusers.FluxTransformer2DModel'", "sd_unet", function(c)
      c._class_name = "FluxTransformer2DModel"
    end)
    refused("has no 'block_out_channels'", "sd_vae", function(c) c.block_out_channels = nil end)
    refused("block_out_channels[1] is 6; it must be a multiple of the first, 4", "sd_vae", function(c)
      c.block_out_channels[2] = 6
    end)
    refused("down_block_types lists 3 levels, and block_out_channels 2", "sd_unet", function(c)
      c.block_out_channels = { 4, 8 }
    end)
    refused("up_block_types[0] is \"AttnUpBlock2D\"; this program has CrossAttnUpBlock2D and UpBlock2D", "sd_unet",
      function(c) c.up_block_types[1] = "AttnUpBlock2D" end)
    refused("down_block_types[0] and up_block_types[2] are of one level", "sd_unet", function(c)
      c.up_block_types[3] = "UpBlock2D"
    end)
    refused("'act_fn' is \"gelu\"", "sd_unet", function(c) c.act_fn = "gelu" end)
    refused("num_class_embeds: not understood", "sd_unet", function(c) c.num_class_embeds = 3 end)
    refused("center_input_sample: not understood", "sd_unet", function(c) c.center_input_sample = true end)
    refused("resnet_time_scale_shift is 'ada_group'", "sd_unet", function(c)
      c.resnet_time_scale_shift = "ada_group"
    end)
    refused("transformer_layers_per_block has 2 beside 1; here all levels have as many", "sd_unet", function(c)
      c.transformer_layers_per_block = { 1, 2, 2 }
    end)
    refused("attention_head_dim lists 1 levels", "sd_unet", function(c) c.attention_head_dim = { 2 } end)
    refused("3 heads do not divide the 4 channels of block_out_channels[0]", "sd_unet", function(c)
      c.attention_head_dim = 3
    end)
    refused("'attention_head_dim' is 2048; it must be a whole number from 1 to 1024", "sd_unet", function(c)
      c.attention_head_dim = 2048
    end)
    refused("'out_channels' is 2; this program has only 3", "sd_vae", function(c) c.out_channels = 2 end)
    refused("'use_quant_conv' is false", "sd_vae", function(c) c.use_quant_conv = false end)
    refused("latents_mean: not understood", "sd_vae", function(c) c.latents_mean = { 1 } end)
  end)

  it("is refused before long lists are made", function()
    refused("says that there are 65536 layers; the files have", "sd_vae", function(c) c.layers_per_block = 32768 end)
    refused("layers; the files have", "sd_unet", function(c) c.transformer_layers_per_block = 1024 end)
  end)

  it("is refused, with the arrays that lack or belong to nothing", function()
    refused("lacks down_blocks.0.attentions.0.transformer_blocks.1.attn1.to_k.weight", "sd_unet", function(c)
      c.transformer_layers_per_block = 2
    end)
    refused("which belongs to nothing", "sd_vae", function(c) c.mid_block_add_attention = false end)
    refused(".attentions.0.proj_in.weight' is (", "sd_unet", function(c)
      c.use_linear_projection = true
    end)
  end)

  it("has no options of a U-Net that say nothing", function()
    local function unet(options)
      return function()
        options.width, options.multipliers, options.groups = 4, { 1, 2 }, 2
        return gm.models.UNet(options)
      end
    end
    assert.error_matches(unet { heads = { 1, 2, 4 }, context = 5 }, "heads lists 3 levels, and multipliers has 2")
    assert.error_matches(unet { heads = { 1, 1.5 }, context = 5 }, "heads[2] must be a whole number", 1, true)
    assert.error_matches(unet { linear = true, heads = 2 }, "linear is of transformers")
  end)

  it("cannot be written with widths that diffusers does not know", function()
    local model = gm.models.AutoencoderKL { width = 4, multipliers = { 2 }, groups = 2 }
    assert.error_matches(function() gm.export_model(model, new_folder()) end,
      "multipliers = { 2 }: a model of type AutoencoderKL cannot say that", 1, true)
  end)
end)
