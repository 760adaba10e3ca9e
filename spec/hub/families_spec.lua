--- Models of more families, written by transformers (spec/golden/hub_families.py), torchvision and timm
-- (spec/golden/hub_pictures.py): outputs in f32, loss and gradients in f64, and back to the same bytes.
-- ranks: 1 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local ranks = require "ganymede.job.ranks"

-- heads: of attention, which tensor parallel ranks share; experts: whether several ranks may share them
local FOLDERS = {
  { name = "bert", heads = 6 }, { name = "bert_odd", heads = 3 }, { name = "vit", heads = 6 },
  { name = "vit_odd", heads = 5 }, { name = "mixtral", heads = 2, experts = true }, { name = "mixtral_odd", heads = 1 },
  { name = "qwen2_moe", heads = 2, experts = true }, { name = "qwen2_moe_sparse", heads = 2 },
  { name = "qwen3_moe", heads = 2, experts = true }, { name = "qwen2_moe_window", heads = 2 },
  { name = "qwen3_moe_window", heads = 2 }, { name = "gemma", heads = 2 }, { name = "gemma_odd", heads = 1 },
  { name = "gemma2", heads = 2 }, { name = "gemma2_odd", heads = 1 }, { name = "gemma2_scale", heads = 2 },
  { name = "phi3", heads = 2 }, { name = "phi3_odd", heads = 1 }, { name = "olmo2", heads = 2 },
  { name = "olmo2_odd", heads = 5 }, { name = "phi3_long", heads = 2 }, { name = "phi3_longer", heads = 2 },
  { name = "llama_long", heads = 2 },
  { name = "llama_yarn", heads = 2 }, { name = "qwen3_yarn", heads = 2 }, { name = "llama_dynamic", heads = 2 },
  { name = "qwen3_moe_layers", heads = 2 }, { name = "qwen2_moe_layers", heads = 2 },
  { name = "roberta", heads = 6 }, { name = "roberta_classes", heads = 6 }, { name = "xlm_roberta", heads = 3 },
  { name = "xlm_roberta_classes", heads = 3 }, { name = "llama_yarn_plain", heads = 2 },
  { name = "qwen3_moe_yarn", heads = 2 },
  { name = "olmo2_biased", heads = 2 }, { name = "gemma2_biased", heads = 2 },
}
-- Of torchvision and timm (spec/golden/hub_pictures.py): with 2d, layers of theirs have no form.
for _, name in ipairs { "tv_resnet", "timm_resnet", "tv_vgg", "timm_vgg", "tv_convnext", "timm_convnext", "tv_swin",
  "timm_swin", "timm_mixer" } do
  FOLDERS[#FOLDERS + 1] = { name = name, heads = core.world() <= 2 and 2 or 1, pictures = true }
end
for _, name in ipairs { "timm_vit", "timm_vit_gap" } do
  FOLDERS[#FOLDERS + 1] = { name = name, heads = 2, pictures = true }
end

-- Two layers of sums of at most 32 products in f32, on numbers that were rounded to 7 places: a few 1e-6.
local TOLERANCE = 1e-5
-- The same sums in f64, some of them in another order: 1e-14 of the largest, times what softmax and norms magnify.
local EXACT = 1e-10

local meshes = ({
  [1] = { { name = "one rank" } },
  [2] = { { name = "1d", tensor = { size = 2, mode = "1d" } }, { name = "experts", data = 2, expert = 2 } },
  [4] = { { name = "2d", tensor = { size = 4, mode = "2d" } } },
})[core.world()]

local function place(name) return "spec/golden/hub/" .. name end

local function expected(name) return json.decode(machine.read(place(name) .. "/expected.json"), name) end

local function integers(list) return gm.tensor(list, { dtype = "i64" }) end

local function input(want, dtype)
  if want.pixels then return gm.tensor(want.pixels, { dtype = dtype }) end
  if not want.segments then return integers(want.tokens) end
  local rows = {}
  for i = 1, #want.tokens do rows[i] = { want.tokens[i], want.segments[i], want.mask[i] } end
  return integers(rows)
end

-- list of logits, as tensors
local function outputs(model, want, dtype, cuts)
  local x = input(want, dtype)
  local out = model(cuts and x:redistribute { cuts = cuts } or x)
  return core.is_tensor(out) and { out } or out
end

local function agree(model, want, cuts)
  gm.scope(gm.no_grad, function()
    for i, logits in ipairs(outputs(model:eval(), want, "f32", cuts)) do
      numeric.agree(logits:gather(), gm.tensor(want.outputs[i]), TOLERANCE)
    end
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

for _, mesh in ipairs(meshes) do
  describe("models of more families on " .. mesh.name, function()
    setup(function()
      local given = {}
      for key, value in pairs(mesh) do given[key] = key ~= "name" and value or nil end
      if core.world() > 1 then against.install(given) end
    end)
    teardown(function()
      if core.world() > 1 then against.install { data = core.world() } end
    end)

    local cuts = mesh.expert and { { "data.expert" } } or nil -- as the loader would cut the batch
    for _, folder in ipairs(FOLDERS) do
      local name, parts = folder.name, mesh.tensor and 2 or 1 -- that share the heads
      if folder.heads % parts == 0 and not (mesh.expert and not folder.experts) then
        it(name .. " gives the outputs of the library that wrote it", function()
          agree(gm.pretrained(place(name)), expected(name), cuts)
        end)

        local texts = not mesh.expert and expected(name).generated
        if texts then
          it(name .. " writes what transformers writes of each text alone", function()
            local list, want = {}, {}
            for i, text in ipairs(texts) do list[i], want[i] = text.prompt, text.tokens end
            for i, out in ipairs(gm.generate(gm.pretrained(place(name)), { prompts = list,
              max_tokens = #want[1] - #list[1] })) do
              assert.same(want[i], out.tokens)
            end
          end)
        end

        it(name .. " is written as it was read", function()
          local out = new_folder()
          gm.scope(function() gm.export_model(gm.pretrained(place(name)), out) end)
          local a, b = gm.open_arrays(place(name)), gm.open_arrays(out)
          assert.same(a:names(), b:names())
          for _, array in ipairs(b:names()) do
            assert.same(a:info(array), b:info(array))
            gm.scope(function() assert.same(a:read(array):totable(), b:read(array):totable()) end)
          end
          a:close()
          b:close()
          agree(gm.pretrained(out), expected(name), cuts) -- and its config.json says the same
          remove(out)
        end)
      end
    end
  end)
end

if core.world() > 1 then return end

it("what a config.json of OLMo 2 cannot say is refused when it is written", function()
  local function unwritable(option, kind, more)
    local opt = { vocabulary = 9, width = 8, heads = 2, kv_heads = 2, hidden = 8, depth = 1, qk_norm = true,
                  qk_norm_joint = true, input_norms = false, branch_norms = true, eps = 1e-6 }
    for key, value in pairs(more) do opt[key] = value end
    assert.error_matches(function() gm.export_model(gm.models.Llama(opt), os.tmpname() .. ".d") end,
      ("%s: a model of type %s cannot say that"):format(option, kind), 1, true)
  end
  unwritable("qk_norm_joint = false", "olmo2", { qk_norm_joint = false })
  unwritable("qk_norm = true", "olmo2", { eps = 1e-5 }) -- there is one eps, and true says 1e-6
  unwritable("qkv_bias = true", "olmo2", { qkv_bias = true })
  unwritable("input_norms = false", "gemma2", { norm_offset = true, qk_norm = false, qk_norm_joint = false,
    embedding_scale = math.sqrt(8) })
  unwritable("qk_norm_joint = true", "qwen3", { input_norms = true, branch_norms = false })
end)

describe("in f64", function()
  local function cross_entropy(logits, targets)
    return gm.nn.CrossEntropyLoss {}(logits, integers(targets))
  end

  local function loss_of(model, want)
    local out = outputs(model, want, "f64")
    local loss = cross_entropy(out[1], want.targets)
    return out[2] and loss + cross_entropy(out[2], want.pair) or loss
  end

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

  for _, folder in ipairs(FOLDERS) do
    it(("%s has the loss and the gradients of the library that wrote it"):format(folder.name), function()
      local want = expected(folder.name)
      local dropout = not folder.pictures and 0 or nil
      local model = gm.pretrained(place(folder.name), { dropout = dropout }):materialize { dtype = "f64" }
      gm.scope(function()
        local loss = loss_of(model, want)
        numeric.agree(loss:detach(), gm.tensor(want.loss, { dtype = "f64" }), EXACT)
        loss:backward()
        local arrays, out = gradient_arrays(model, folder.name)
        for array, numbers in pairs(want.gradients) do
          local g = arrays:read(array, { dtype = "f64" })
          local norm, product, flat = 0, 0, g:reshape(g:numel()):totable()
          for i, x in ipairs(flat) do norm, product = norm + x * x, product + x * math.cos(i) end
          assert.is_true(math.abs(math.sqrt(norm) - numbers[1]) <= EXACT * (1 + numbers[1]), array)
          assert.is_true(math.abs(product - numbers[2]) <= EXACT * (1 + numbers[1]), array)
        end
        arrays:close()
        remove(out)
      end)
    end)
  end
end)
