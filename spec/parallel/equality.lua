--- Training that must be equal, for specs: small models with every kind of dropout, and a run on a mesh against serial.
--
-- Batches of 10, sequences of 31 and 17, vocabularies of 261 and 2051 divide by none of the meshes; 2051 rows are over
-- the limit from which a vocabulary is cut. Norms are clipped in every step. The transformer for images is trained by
-- SGD, which a gradient of the wrong size cannot pass: AdamW forgives a constant factor.
--
-- Only the order of sums differs. In f64 a sum is wrong by 1e-16 of its terms, and 50 steps multiply that by some 1e4
-- to 1e5: 1e-9 holds with room. In f32 (6e-8) the first 10 steps agree to 1e-5, 50 to 1e-4.
local assert = require "luassert"
local job = require "spec.parallel.job"
local tables = require "spec.support.tables"

local equality = { recipes = {} }

equality.recipes.gpt = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 2051, sequence_length = 31, width = 24, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

equality.recipes.bert = [[
return {
  name = "bert", seed = 7,
  model = { type = "BERT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "TextPairs", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31, short_probability = 0.5 }, batch_size = 10 },
  loss = { type = "BERTLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

equality.recipes.vit = [[
return {
  name = "vit", seed = 5,
  model = { type = "VisionTransformer", image_size = 28, patch_size = 7, channels = 1, classes = 10, width = 24,
            depth = 2, heads = 4, dropout = 0.1, attention_dropout = 0.1, drop_path = 0.1 },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 5 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]

-- Rotary positions, grouped key heads, norms of queries and keys, a gated MLP, a head of its own.
equality.recipes.llama = [[
return {
  name = "llama", seed = 9,
  model = { type = "Llama", vocabulary = 2051, sequence_length = 31, width = 24, depth = 2, heads = 4, kv_heads = 2,
            hidden = 40, head_size = 8, qk_norm = true, qkv_bias = true, tied = false, dropout = 0.1,
            attention_dropout = 0.1, rotary = { base = 1000, fraction = 0.5 } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

-- Norms behind the branches alone, and those of queries and keys over all heads, which ranks share.
equality.recipes.olmo = [[
return {
  name = "olmo", seed = 10,
  model = { type = "Llama", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4, kv_heads = 2,
            hidden = 40, branch_norms = true, input_norms = false, qk_norm = true, qk_norm_joint = true, tied = false,
            dropout = 0.1, rotary = { base = 1000 } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

-- What files of others bring: biases of attention alone, a base of the rotary positions that grows with rows of more
-- than 20 positions, and experts in every block but the first and the third.
equality.recipes.brought = [[
return {
  name = "brought", seed = 11,
  model = { type = "Llama", vocabulary = 261, sequence_length = 31, width = 24, depth = 4, heads = 4, kv_heads = 2,
            hidden = 40, bias = true, mlp_bias = false, dropout = 0.1,
            rotary = { base = 1000, scaling = { type = "dynamic", factor = 3, length = 20 } },
            moe = { experts = 3, hidden = 12, dense = { 1, 3 },
                    router = { type = "TopKRouter", k = 2, balance = 0 } } }, -- a loss of batches is none of parts
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

-- 3 experts: on 2 and on 4 ranks some hold fewer, one none. SGD, as above.
equality.recipes.moe = [[
return {
  name = "moe", seed = 8,
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4, dropout = 0.1,
            moe = { experts = 3, every = 2, capacity = 1.2, router = { type = "SigmoidRouter", k = 2, z = 0.01 } } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

-- Meshes by name: ranks, `parallel`, the mesh to be seen, the share of the serial parameters' bytes that a rank may
-- hold at most (of GPT, BERT, ViT: what is small is held whole by some modes). Data fills up what is left of the ranks.
local function mesh(name, ranks, parallel, axes, share) equality[name] =
  { name = name, ranks = ranks, parallel = parallel, mesh = axes, share = share or { gpt = 1, bert = 1, vit = 1 } } end

local function tensor(mode, size, more)
  return ('{tensor={size=%d,mode="%s"%s}}'):format(size, mode, more or "")
end

local half, quarter = { gpt = 0.51, bert = 0.54, vit = 0.57 }, { gpt = 0.27, bert = 0.30, vit = 0.35 }
local fourth, eighth = { gpt = 0.251, bert = 0.26, vit = 0.252 }, { gpt = 0.14, bert = 0.27, vit = 0.19 }

mesh("1d on 2", 2, tensor("1d", 2), { tensor = 2 }, half)
mesh("1d on 4", 4, tensor("1d", 4), { tensor = 4 }, quarter)
mesh("1d with sequences on 2", 2, tensor("1d", 2, ",sequence=true"), { tensor = 2 }, half)
mesh("1d with sequences on 4", 4, tensor("1d", 4, ",sequence=true"), { tensor = 4 }, quarter)
mesh("2d on 4", 4, tensor("2d", 4), { row = 2, col = 2 }, fourth)
mesh("2d on 9", 9, tensor("2d", 9), { row = 3, col = 3 }, { gpt = 0.12, bert = 0.13, vit = 0.12 })
mesh("2.5d on 8", 8, tensor("2.5d", 8, ",depth=2"), { depth = 2, row = 2, col = 2 }, fourth)
mesh("3d on 8", 8, tensor("3d", 8), { output = 2, input = 2, weight = 2 }, eighth)
mesh("1d on 2, data 2", 4, tensor("1d", 2), { data = 2, tensor = 2 }, half)
mesh("1d with sequences on 2, data 2", 4, tensor("1d", 2, ",sequence=true"), { data = 2, tensor = 2 }, half)
mesh("2d on 4, data 2", 8, tensor("2d", 4), { data = 2, row = 2, col = 2 }, fourth)
mesh("experts on 2", 2, "{expert=2}", { expert = 2 })
mesh("experts on 4", 4, "{expert=4}", { expert = 4 })
mesh("experts on 2, 1d on 2, data 2", 8, '{data=4,expert=2,tensor={size=2,mode="1d"}}',
  { data = 2, expert = 2, tensor = 2 })
for _, mode in ipairs { "ring", "ulysses" } do
  local function cut(size) return ('sequence={size=%d,mode="%s"}'):format(size, mode) end
  for _, size in ipairs { 2, 3, 4 } do
    mesh(("%s on %d"):format(mode, size), size, "{" .. cut(size) .. "}", { sequence = size })
  end
  mesh(mode .. " on 2, data 2", 4, "{" .. cut(2) .. "}", { data = 2, sequence = 2 })
  mesh(mode .. " on 2, 1d on 2", 4, "{" .. cut(2) .. ',tensor={size=2,mode="1d"}}', { sequence = 2, tensor = 2 }, half)
  mesh(mode .. " on 2, 2d on 4", 8, "{" .. cut(2) .. ',tensor={size=4,mode="2d"}}',
    { sequence = 2, row = 2, col = 2 }, fourth)
end

--- Steps of a model on a mesh. set: "key=value" besides.
function equality.run(model, where, dtype, steps, set)
  return job.run(equality.recipes[model], where.ranks, { steps = steps,
    set = tables.joined({ "dtype=" .. dtype, "parallel=" .. where.parallel }, set) })
end

local STEPS = job.steps(50)
local references = {}

--- STEPS steps on one rank, run once for each (model, dtype, set).
function equality.serial(model, dtype, set)
  local key = table.concat(tables.joined({ model, dtype }, set), " ")
  references[key] = references[key]
    or job.run(equality.recipes[model], 1, { steps = STEPS, set = tables.joined({ "dtype=" .. dtype }, set) })
  return references[key]
end

--- Bytes that a rank (an entry of ranks in --stats) sent in groups with this axis, in forward and backward passes.
function equality.sent_along(rank, axis)
  local sum = 0
  for _, entry in ipairs(rank.comm) do
    local is_pass = entry.phase == "forward" or entry.phase == "backward"
    if is_pass and ("." .. table.concat(entry.axes, ".") .. "."):find("." .. axis .. ".", 1, true) then
      sum = sum + entry.bytes_logical
    end
  end
  return sum
end

-- The run was what it says it was: its mesh, its share of the parameters and of the work, messages along each axis.
local function check_mesh(model, where, stats, reference)
  assert.same(where.mesh, stats.mesh)
  assert.equal(where.ranks, #stats.ranks)
  assert.equal(reference.global_batch, stats.global_batch)
  local one, flops = reference.ranks[1], 0
  for _, rank in ipairs(stats.ranks) do
    for _, kind in ipairs { "parameter_bytes", "optimizer_bytes" } do
      local share = rank[kind] / one[kind]
      assert.is_true(share <= (where.share[model] or 1), ("%s: %.4f of the serial ones"):format(kind, share))
    end
    for axis in pairs(where.mesh) do
      assert.is_true(equality.sent_along(rank, axis) > 0, "nothing sent along " .. axis)
    end
    flops = flops + rank.flops
  end
  -- batches of 10 are computed as 12 by 4 and 8 ranks, and some vectors by all of them
  assert.is_true(flops <= 1.45 * one.flops, ("%.2f times the serial work"):format(flops / one.flops))
end

local limits = { f64 = { [STEPS] = 1e-9 }, f32 = { [STEPS] = 1e-4, [math.min(10, STEPS)] = 1e-5 } }

--- STEPS steps of a model on a mesh must be those of one rank -> the run. `worst` gets the largest difference.
function equality.check(model, name, dtype, set)
  local where = assert(equality[name], name)
  local reference, stats = equality.serial(model, dtype, set), equality.run(model, where, dtype, STEPS, set)
  assert.equal(STEPS, #stats.loss)
  for steps, limit in pairs(limits[dtype]) do
    local worst, at = job.largest_difference(reference, stats, steps)
    if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then
      print(("  %-4s %-32s %s, %d steps: %.2g"):format(model, name, dtype, steps, worst))
    end
    assert.is_true(worst <= limit, ("differs by %g in step %d"):format(worst, at))
  end
  check_mesh(model, where, stats, reference)
  return stats
end

--- An example, made by busted's `it`, for each of a list of { model, mesh, dtype, tag or nil, set or nil }.
function equality.examples(it, list)
  for _, case in ipairs(list) do
    local model, name, dtype, tag, set = unpack(case, 1, 5)
    local title = ("%s: %s in %s%s%s"):format(model, name, dtype, set and ", " .. table.concat(set, ", ") or "",
      tag and " #" .. tag or "")
    it(title, function() equality.check(model, name, dtype, set) end)
  end
end

--- Two runs of GPT give the same losses, bit for bit.
function equality.twice(name)
  local one = equality.run("gpt", equality[name], "f32", 3)
  assert.same(one.loss, equality.run("gpt", equality[name], "f32", 3).loss)
end

return equality
