--- What spec/parallel/random_modes_spec.lua trains, drawn at random: a recipe, and what decides where it may run.
--
--     local draws = drawn.of(17)                  -- those of number 17, the same in each run
--     local text, about = drawn.recipe(draws)     -- spec/parallel/drawn_meshes.lua reads `about`
--     draws.any(6); draws.one { "a", "b" }        -- a whole number from 1 to 6; one of a list
--
-- A vocabulary of 13, sequences of 7, batches of 5 and last batches of 1 divide by no mesh. Where a gradient may be
-- nothing but rounding (that of a bias of keys), which some optimizers make large, the optimizer is one whose updates
-- are as small as their gradients: such models are `calm`. Adapters begin with gradients of 1e-7 and less. RMSprop with
-- its default eps makes updates of 10 times its rate of them, and their rounding grows a thousandfold in five steps, on
-- any mesh (to 4e-9; with SGD 1e-14). So eps is 1e-4 there. Capacities, losses of routers and batch norms are
-- those of a piece of a batch, so all runs of a recipe have the same pieces.
local drawn = {}

--- GANYMEDE_SPEC_SEED gives other draws to all numbers.
local SEED = tonumber(os.getenv "GANYMEDE_SPEC_SEED") or 0

-- Whole numbers from 1 to `to`, the same in each run: a linear congruence modulo 2^31 - 1 (Park and Miller's, 16807).
function drawn.of(number)
  local state = (4321 + 99991 * number + 62710561 * SEED) % 2147483647
  local draws = {}
  function draws.any(to)
    state = state * 16807 % 2147483647
    return math.floor(state / 2147483647 * to) + 1
  end
  function draws.one(list) return list[draws.any(#list)] end
  function draws.perhaps(text, chance) return draws.any(100) <= (chance or 50) and text or "" end
  for _ = 1, 20 do draws.any(2) end -- neighbours begin near each other
  return draws
end

-- ---------------------------------------------------------------- data

local data = {
  tokens = [[{ type = "Synthetic", kind = "tokens", length = %d, sequence_length = 7, vocab_size = 13, split = "%s" }]],
  images = [[{ type = "Synthetic", length = %d, shape = { 1, 8, 8 }, classes = 3, split = "%s" }]],
  clicks = [[{ type = "Clicks", length = %d, dense = 3, rows = { 20, 11, 6 }, split = "%s" }]],
  -- of the 35,149 bytes of this text, a sample begins at each 3,000th
  packed = [[{ type = "Text", path = "/usr/share/common-licenses/GPL-3", sequence_length = 7, stride = 3000,
    packed = true, end_token = 10, --[=[%d]=] split = "%s" }]],
  sentences = [[{ type = "TextPairs", path = "/usr/share/common-licenses/GPL-3", sequence_length = 9, stride = 3000,
    short_probability = 0.5, --[=[%d]=] split = "%s" }]],
}

-- ---------------------------------------------------------------- models

local routers = { "type = 'TopKRouter', k = 2, z = 0.01", "type = 'TopKRouter', k = 2, noise = 'normal', balance = 0.1",
  "type = 'SigmoidRouter', k = 2, bias_step = 0.01", "type = 'SwitchRouter'" }

-- Notes in `about` whether it has experts.
local function experts(draws, about, chance)
  about.experts = draws.any(100) <= chance
  if not about.experts then return "" end
  return ("moe = { experts = %d, every = 2, %s %s %s router = { %s } },"):format(draws.any(3) + 1,
    draws.one { "", "capacity = 1.2,", "capacity = 0.7, min_capacity = 1," }, draws.perhaps "shared = 1,",
    draws.perhaps("activation = 'swiglu',", 30), draws.one(routers))
end

local transformer = "sequence_length = 7, width = 12, depth = 4, heads = 4, dropout = 0.1,"
local function image(text) return text .. " channels = 1, classes = 3," end

local function denoiser(draws, text)
  return ([[type = "Diffusion", drop = 0.3, process = { prediction = "%s" },
    denoiser = { %s channels = 1, classes = 4 }]]):format(draws.one { "v", "noise" }, text)
end

-- A function each (draws, about) -> the text of the model. It may change about:
--   data       which of those above; default: images
--   loss       default: that of classes
--   calm       see above
--   experts    whether it has some
--   heads      what the numbers of ranks must divide that share heads; default 4
--   blocks     whether it has blocks of transformers; about.attention: of other attention
--   sequences  whether ranks can share its sequences
local models = {
  GPT = function(draws, about)
    about.blocks, about.sequences, about.data = true, true, draws.one { "tokens", "tokens", "tokens", "packed" }
    local more = draws.one { "head_chunk = 3,", "window = { 3, 0 },", "logit_softcap = 5, attention_softcap = 2,",
      "kv_heads = 2,", "", "" }
    if more:find "kv_heads" then about.heads = 2 end
    return ([[type = "GPT", vocabulary = %d, %s bias = false, %s tied = %s, attention_dropout = %s, %s]]):format(
      about.data == "packed" and 256 or 13, transformer, experts(draws, about, 33), draws.one { "true", "false" },
      draws.one { "0", "0.1" }, more)
  end,
  Llama = function(draws, about)
    about.blocks, about.sequences, about.data, about.heads = true, true, "tokens", draws.one { 2, 4 }
    return ([[type = "Llama", vocabulary = 13, %s kv_heads = %d, head_size = 4, hidden = 10, tied = %s,
      rotary = { base = 1000 %s }, %s %s %s]]):format(transformer, about.heads, draws.one { "true", "false" },
      draws.perhaps ", fraction = 0.5", draws.one { "qk_norm = true,", "qk_norm = true, qk_norm_joint = true,", "" },
      draws.one { "", "branch_norms = true,", "branch_norms = true, input_norms = false," }, experts(draws, about, 25))
  end,
  VisionTransformer = function(draws, about)
    about.blocks, about.sequences = true, true
    return image(([[type = "VisionTransformer", image_size = 8, patch_size = 4, width = 12, depth = 4, heads = 4,
      qkv_bias = false, drop_path = 0.1, pool = "%s", %s]]):format(draws.one { "cls", "mean" },
      experts(draws, about, 20)))
  end,
  BERT = function(_, about)
    about.blocks, about.sequences, about.data, about.calm, about.loss = true, true, "sentences", true, '"BERTLoss"'
    return [[type = "BERT", vocabulary = 261, sequence_length = 9, width = 12, depth = 4, heads = 4]]
  end,
  ResNet = function(draws)
    return image(([[type = "ResNet", depth = %d, blocks = { 1, 1 }, stem = "cifar", width = 4,]]):format(
      draws.one { 18, 50 }))
  end,
  Swin = function(_, about)
    about.heads, about.attention = 2, true
    return image [[type = "Swin", blocks = { 2, 1 }, heads = { 2, 2 }, width = 4, patch_size = 2, window = 2,
      drop_path = 0.2, qkv_bias = false,]]
  end,
  ConvNeXt = function()
    return image [[type = "ConvNeXt", blocks = { 1, 2 }, width = 4, patch_size = 2, layer_scale = 0.5, kernel = 3,
      drop_path = 0.2,]]
  end,
  MLPMixer = function(_, about) -- a bias of tokens is the same in all channels, which norms take away
    about.sequences, about.calm = true, true
    return image [[type = "MLPMixer", image_size = 8, patch_size = 4, width = 6, depth = 3, token_hidden = 5,
      dropout = 0.1,]]
  end,
  UNet = function(draws, about)
    about.calm, about.heads, about.loss = true, 2, '"DiffusionLoss"'
    return denoiser(draws, [[type = "UNet", width = 4, multipliers = { 1, 2 }, blocks = 1, groups = 2, heads = 2,
      attention = { 2 }, dropout = 0.1,]])
  end,
  DiT = function(draws, about)
    about.calm, about.sequences, about.blocks, about.loss = true, true, true, '"DiffusionLoss"'
    return denoiser(draws, [[type = "DiT", image_size = 8, patch_size = 4, width = 8, depth = 3, heads = 4,]])
  end,
  DLRM = function(draws, about)
    about.data, about.loss = "clicks", '"BCEWithLogitsLoss", positive_weight = ' .. draws.one { 1, 2 }
    return ([[type = "DLRM", dense = 3, counts = { 20, 11, 6 }, width = 6, bottom = { 8 }, top = { 12, 7 },
      cut = "%s"]]):format(draws.one { "none", "rows", "columns" })
  end,
  recurrent = function()
    return [[type = "Sequential", layers = { { type = "Lambda", fn = function(x) return x:select(2, 1) end },
      { type = "LSTM", inputs = 8, hidden = 6, layers = 2, dropout = 0.2, bidirectional = true, returns = "sequence" },
      { type = "GRU", inputs = 12, hidden = 5, returns = "last" }, { type = "Linear", inputs = 5, outputs = 3 } }]]
  end,
}
local names = { "GPT", "GPT", "Llama", "Llama", "VisionTransformer", "BERT", "ResNet", "Swin", "ConvNeXt", "MLPMixer",
  "UNet", "DiT", "DLRM", "recurrent" }

-- ---------------------------------------------------------------- how it is trained

local calm = { "type = 'SGD', lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01",
  "type = 'SGD', lr = 0.1, momentum = 0.9, groups = { { match = 'weight$', lr_scale = 0.5, weight_decay = 0.1 } }",
  "type = 'SGD', lr = 0.2" }
local optimizers = { calm[1], calm[2], "type = 'AdamW', lr = 0.01, amsgrad = true",
  "type = 'AdamW', lr = 0.01, weight_decay = 0.1, no_decay = 'norm_and_bias'",
  "type = 'LAMB', lr = 0.02, weight_decay = 0.1, groups = { { match = 'weight$', weight_decay = 0.01 } }",
  "type = 'LARS', lr = 1, trust_coefficient = 0.02, weight_decay = 0.01, nesterov = true",
  "type = 'Adagrad', lr = 0.02, initial_accumulator_value = 0.1", "type = 'RMSprop', lr = 0.003, momentum = 0.5",
  "type = 'Adafactor', lr = 0.02", "type = 'CAME', lr = 0.003",
  "type = 'Muon', lr = 0.02, split_qkv = true, adamw = { lr = 3e-3 }",
  "type = 'GaLore', lr = 0.01, rank = 3, update_proj_gap = 2" }
local rates = { "", "", "type = 'CosineAnnealingWarmupLR', warmup_steps = 3",
  "type = 'StepLR', step_size = 2, gamma = 0.5", "type = 'OneCycleLR', cycle_momentum = false",
  "type = 'MultiStepLR', milestones = { 2, 4 }, gamma = 0.3" }
local clips = { "", "clip_grad_norm = 0.1,", "clip_grad_norm = 0.5, norm_type = 1,",
  "clip_grad_norm = 0.02, norm_type = 1/0,", "clip_grad_norm = 0.1, norm_type = 3," }
local adapted = { "", "", "", "lora = { rank = 2, dropout = 0.1 },",
  "lora = { rank = 2, dora = true, train = 'norm' },", "freeze = { '^blocks%.1' },", "freeze = { 'norm' }," }

-- The hooks behind LossHook.
local function hooks(draws, accumulation)
  return draws.one { "", "", ", { type = 'EMA', decay = 0.7 }", ", { type = 'EMA', decay = 0.7, every = 2 }" }
    .. draws.perhaps(", { type = 'GradientNormHook' }", 20)
    .. (accumulation > 1 and draws.perhaps(", { type = 'GradientNoise', every = 2, needed = false }", 20) or "")
end

local metrics = {
  CrossEntropyLoss = { "'Accuracy', 'Perplexity'", "'Accuracy', { type = 'F1' }", "'ConfusionMatrix'", "" },
  BCEWithLogitsLoss = { "'AUC', 'Accuracy'", "{ type = 'AUC', bins = 9 }" },
}

local recipe = [[return { name = "drawn", seed = 5, dtype = "f64", epochs = 9, test_interval = 99,
  model = { %s }, optimizer = { %s }, %s loss = { type = %s },
  data = { train = %s, test = %s, batch_size = 5, test_batch_size = 3 %s },
  gradient_accumulation = %d, metrics = { %s }, %s %s
  num_microbatches = %d, schedule = { type = "PipelineSchedule" %s },
  hooks = { { type = "LossHook" }%s }, checkpoint = { interval = 1, keep_last = 9 } }]]

--- A recipe, a text; and what decides where it may run.
function drawn.recipe(draws)
  local about = { heads = 4, data = "images" }
  local model = models[draws.one(names)](draws, about)
  local optimizer, rate = draws.one(about.calm and calm or optimizers), draws.one(rates)
  if about.blocks and optimizer:find "amsgrad" then optimizer = optimizer .. ", layer_decay = 0.8" end
  about.own_states = optimizer:find "Muon" or optimizer:find "Adafactor" or optimizer:find "CAME"
    or optimizer:find "GaLore"
  local loss = about.loss or '"CrossEntropyLoss"' .. draws.perhaps(", label_smoothing = 0.1", 30)
  local process = loss:find "Diffusion" and ", data_process_func = function(x, y) return { x, y }, y end" or ""
  local accumulation, samples, measured = draws.any(3), data[about.data], metrics[loss:match "%w+"]
  local text = recipe:format(model, optimizer, rate ~= "" and ("lr_scheduler = { %s },"):format(rate) or "", loss,
    samples:format(11, "train"), samples:format(7, "test"),
    draws.one { "", "", ", shuffle = false", ", drop_last = true" }, accumulation,
    measured and draws.one(measured) or "", draws.one(clips),
    about.blocks and process == "" and draws.one(adapted) or "", draws.one { 2, 2, 3 }, process,
    hooks(draws, accumulation))
  if text:find("lora = ", 1, true) then text = text:gsub("type = 'RMSprop'", "%0, eps = 1e-4") end
  return text, about
end

return drawn
