--- Colossal-AI's spellings of ZeRO, Gemini, offload and checkpoints of activations: each row becomes settings of ours,
-- or is refused by its name with what to write. None is ignored.
local config = require "ganymede.config"
local gm = require "ganymede"
local offload = require "ganymede.optim.offload_setting"

local function recipe(more)
  local given = {
    model = { type = "MLP", inputs = 4, hidden = { 8 }, classes = 3 }, data = { train = { type = "Synthetic" } },
    loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW" },
  }
  for key, value in pairs(more) do given[key] = value end
  return given
end

local function resolve(more) return config.resolve(recipe(more), { file = "recipe.lua" }).config end

local function refused(more, ...)
  local ok, err = pcall(resolve, more)
  assert.is_false(ok, "nothing was refused")
  for _, text in ipairs { ... } do assert.is_truthy(err.message:find(text, 1, true), err.message) end
end

-- Settings of ours among those that were resolved.
local function has(want, got, path)
  for key, value in pairs(want) do
    local at = path .. key
    if type(value) == "table" then
      assert.is_table(got[key], at)
      has(value, got[key], at .. ".")
    else
      assert.equal(value, got[key], at)
    end
  end
end

-- { what was written, what it means }
local understood = {
  { { zero = { level = 2 } }, { zero = { stage = 2 } } },
  { { zero = { type = "ZeroRedundancyOptimizer_Level_3" } }, { zero = { stage = 3 } } },
  { { zero = { type = "ShardedModelV2" } }, { zero = { stage = 3 } } },
  { { zero = { type = "GeminiDDP" } }, { zero = { stage = 3 } } },
  { { zero = { model_config = {} } }, { zero = { stage = 3 } } },
  { { zero = { level = 2, model_config = {} } }, { zero = { stage = 2 } } },
  { { zero = { model_config = { shard_strategy = "TensorShardStrategy" } } }, { zero = { stage = 3 } } },
  { { zero = { model_config = { tensor_placement_policy = "cuda" } } }, { zero = { stage = 3 } } },
  { { zero = { model_config = { reduce_scatter_bucket_size_mb = 10 } } },
    { zero = { stage = 3 }, parallel = { data = { bucket_mb = 10 } } } },
  { { zero = { model_config = { reduce_scatter_bucket_size_mb = 10 } }, parallel = { data = 1 } },
    { parallel = { data = { bucket_mb = 10, size = 1 } } } },
  { { zero = { model_config = { fp32_reduce_scatter = true } }, dtype = "bf16" }, { gradient_dtype = "f32" } },
  { { zero = { model_config = { fp32_reduce_scatter = false } } }, { gradient_dtype = "auto" } },
  { { zero = { model_config = { gradient_predivide_factor = 1, reuse_fp16_shard = false } } }, {} },
  { { zero = { optimizer_config = { initial_scale = 2 ^ 10, growth_factor = 4, backoff_factor = 0.25,
    growth_interval = 50, hysteresis = 1 } } },
    { zero = { stage = 3 }, dtype = "f16", fp16 = { initial_scale = 2 ^ 10, growth_factor = 4, backoff_factor = 0.25,
      growth_interval = 50 } } },
  { { zero = { optimizer_config = { gpu_margin_mem_ratio = 0, cpu_offload = false } } }, { zero = { stage = 3 } } },
  { { zero = { optimizer_config = { cpu_offload = true } } }, { offload = { optimizer = "host" } } },
  { { zero = { level = 2, clip_grad = 0.5, gradient_accumulation_steps = 4, overlap_comm = false } },
    { clip_grad_norm = 0.5, gradient_accumulation = 4, parallel = { data = { overlap = false } } } },
  { { zero = { level = 3, param_persistence_threshold = 1e5 } }, { zero = { stage = 3, whole_below = 1e5 } } },
  { { zero = { level = 2, dynamic_loss_scale = true } }, { dtype = "f16" } },
  { { zero = { level = 2, cpu_offload = true } }, { offload = { optimizer = "host" } } },
  { { zero = { level = 2, allreduce_always_fp32 = true }, dtype = "f16" }, { gradient_dtype = "f32" } },
  { { zero = { level = 2, contiguous_gradients = true, reduce_scatter = true, ignore_unused_parameters = true,
    postscale_gradients = true, round_robin_gradients = false, fp16_master_weights_and_gradients = false,
    static_loss_scale = 1 } }, { zero = { stage = 2 } } },
  { { zero = { level = 3, offload_optimizer_config = { device = "cpu", pin_memory = true } } },
    { offload = { optimizer = "host" } } },
  { { zero = { level = 3, offload_optimizer_config = { device = "nvme", nvme_path = "/tmp" } } },
    { offload = { optimizer = "disk", disk = "/tmp" } } },
  { { gemini = {} }, { zero = { stage = 3 } } },
  { { gemini = { placement_policy = "cuda" } }, { zero = { stage = 3 } } },
  { { gemini = { placement_policy = "const", offload_optim_frac = 0.5 } },
    { zero = { stage = 3 }, offload = { optimizer = "host", fraction = 0.5 } } },
  { { gemini = { placement_policy = "static", offload_optim_frac = 0, offload_param_frac = 0 } },
    { zero = { stage = 3 } } },
  { { gemini = { shard_param_frac = 0 } }, { zero = { stage = 2 } } },
  { { gemini = { shard_param_frac = 1, precision = "bf16", max_norm = 1, pin_memory = true } },
    { zero = { stage = 3 }, dtype = "bf16", clip_grad_norm = 1 } },
  { { gemini = { initial_scale = 256 }, zero = { whole_below = 0 } },
    { zero = { stage = 3, whole_below = 0 }, fp16 = { initial_scale = 256 } } },
  { { optimizer = { type = "HybridAdam", nvme_offload_fraction = 0.25, nvme_offload_dir = "/tmp" } },
    { optimizer = { type = "HybridAdam" }, offload = { optimizer = "disk", fraction = 0.25, disk = "/tmp" } } },
  { { optimizer = { type = "CPUAdam", nvme_offload_fraction = 1 }, offload = { disk = "/tmp" } },
    { offload = { optimizer = "disk", disk = "/tmp" } } },
  { { optimizer = { type = "HybridAdam", adamw_mode = false, bias_correction = false } }, {} },
  { { optimizer = { type = "FusedAdam", set_grad_none = true } }, {} },
  { { optimizer = { type = "FusedSGD", momentum = 0.9, wd_after_momentum = false } }, {} },
  { { optimizer = { type = "FusedLAMB", max_grad_norm = 0, use_nvlamb = true, grad_averaging = true,
    set_grad_none = true, amsgrad = false } }, {} },
  { { optimizer = { type = "Lamb", adam = true } }, {} },
  { { activation_checkpoint = true }, { recompute = "block" } },
  { { activation_checkpoint = "attention" }, { recompute = "attention" } },
  { { activation_checkpoint = false }, {} },
}

local function no(text) return "has no counterpart: " .. text end

-- { what was written, its path, what the message says }
local refusals = {
  { { zero = { model_config = { tensor_placement_policy = "auto" } } }, "zero.model_config.tensor_placement_policy",
    "offload = { memory = \"8G\"" },
  { { zero = { model_config = { tensor_placement_policy = "gpu" } } }, "tensor_placement_policy", "one of" },
  { { zero = { model_config = { shard_strategy = "BucketTensorShardStrategy" } } }, "zero.model_config.shard_strategy",
    "write \"TensorShardStrategy\"" },
  { { zero = { model_config = { reduce_scatter_bucket_size_mb = 5 } }, parallel = { data = { bucket_mb = 6 } } },
    "zero.model_config.reduce_scatter_bucket_size_mb", "is 5 here, and parallel.data.bucket_mb is 6" },
  { { zero = { model_config = { gradient_predivide_factor = 2 } } }, "zero.model_config.gradient_predivide_factor",
    "write 1" },
  { { zero = { model_config = { reuse_fp16_shard = true } } }, "zero.model_config.reuse_fp16_shard", "write false" },
  { { zero = { model_config = { process_group = 3 } } }, "zero.model_config.process_group", "size = n" },
  { { zero = { model_config = { bucket_size = 3 } } }, "zero.model_config.bucket_size", "is no key of" },
  { { zero = { model_config = { shard_stratgy = "x" } } }, "shard_stratgy", "did you mean 'shard_strategy'" },
  { { zero = { optimizer_config = { gpu_margin_mem_ratio = 0.8 } } }, "zero.optimizer_config.gpu_margin_mem_ratio",
    "fraction = f" },
  { { zero = { optimizer_config = { hysteresis = 2 } } }, "zero.optimizer_config.hysteresis", "write 1" },
  { { zero = { optimizer_config = { min_scale = 1 } } }, "zero.optimizer_config.min_scale", "leave it out" },
  { { zero = { optimizer_config = { max_scale = 2 } } }, "zero.optimizer_config.max_scale", "leave it out" },
  { { zero = { optimizer_config = { initial_scale = 64 } }, dtype = "f32" }, "fp16", "asks for f16" },
  { { zero = { optimizer_config = { initial_scale = "big" } } }, "zero.optimizer_config.initial_scale", "number" },
  { { zero = { level = 2, dp_parallel_mode = "DATA" } }, "zero.dp_parallel_mode", "size = n" },
  { { zero = { level = 2, reduce_bucket_size = 5e8 } }, "zero.reduce_bucket_size", "bucket_mb" },
  { { zero = { level = 1, max_elements_per_comm = 5e8 } }, "zero.max_elements_per_comm", "bucket_mb" },
  { { zero = { level = 2, allgather_bucket_size = 5e8 } }, "zero.allgather_bucket_size", "zero.ahead" },
  { { zero = { level = 3, prefetch_bucket_size = 5e7 } }, "zero.prefetch_bucket_size", "ahead = BYTES" },
  { { zero = { level = 3, max_live_parameters = 1e9 } }, "zero.max_live_parameters", "keep = BYTES" },
  { { zero = { level = 3, sub_group_size = 1e12 } }, "zero.sub_group_size", "ring = BYTES" },
  { { zero = { level = 2, static_loss_scale = 8 } }, "zero.static_loss_scale", "growth_factor = 1" },
  { { zero = { level = 2, clip_grad = 1 }, clip_grad_norm = 2 }, "zero.clip_grad", "and clip_grad_norm is 2" },
  { { zero = { level = 2, contiguous_gradients = false } }, "zero.contiguous_gradients", "write true" },
  { { zero = { level = 3, offload_optimizer_config = { device = "cpu", buffer_count = 4 } } },
    "zero.offload_optimizer_config", "offload.ring" },
  { { zero = { level = 3, offload_optimizer_config = { device = "nvme" } } }, "offload", "needs a folder" },
  { { gemini = { placement_policy = "auto" } }, "gemini.placement_policy", "offload = { memory = \"8G\"" },
  { { gemini = { shard_param_frac = 0.5 } }, "gemini.shard_param_frac", "zero.whole_below" },
  { { gemini = { offload_optim_frac = 0.5, offload_param_frac = 0.25 } }, "gemini.offload_",
    no "offload has one fraction" },
  { { gemini = { steady_cuda_cap_ratio = 0.9 } }, "gemini.steady_cuda_cap_ratio", "offload = { memory" },
  { { gemini = { search_range_mb = 32 } }, "gemini.search_range_mb", "there are no chunks" },
  { { gemini = { strict_ddp_mode = true } }, "gemini.strict_ddp_mode", "zero = 0" },
  { { gemini = { placement = "cpu" } }, "gemini.placement", "did you mean 'placement_policy'" },
  { { gemini = true }, "gemini", "must be a table" },
  { { zero = { model_config = 3 } }, "zero.model_config", "a table" },
  { { activation_checkpoint = true, recompute = "block" }, "activation_checkpoint", "given twice" },
  { { recompute = true }, "recompute", "must be a string or a table" },
  { { optimizer = { type = "HybridAdam", nvme_offload_fraction = 1 } }, "offload", "needs a folder" },
  { { optimizer = { type = "HybridAdam", nvme_offload_fraction = 2 } }, "nvme_offload_fraction", "at most 1" },
  { { optimizer = { type = "FusedAdam", set_grad_none = false } }, "optimizer.set_grad_none", "must be one of true" },
  { { optimizer = { type = "FusedSGD", wd_after_momentum = true } }, "optimizer.wd_after_momentum",
    "must be one of false" },
  { { optimizer = { type = "FusedLAMB", grad_averaging = false } }, "optimizer.grad_averaging", "must be one of true" },
}

describe("a setting in Colossal-AI's words", function()
  for i, row in ipairs(understood) do
    it(("is understood: %d"):format(i), function() has(row[2], resolve(row[1]), "") end)
  end

  for _, row in ipairs(refusals) do
    it(("is refused: %s: %s"):format(row[2], row[3]), function() refused(row[1], row[2], row[3]) end)
  end

  it("rests on the host as far as this build can", function()
    local settings = { zero = { model_config = { tensor_placement_policy = "cpu" } } }
    if offload.fields.parameters and offload.fields.gradients then
      has({ offload = { optimizer = "host", gradients = "host", parameters = "host" } }, resolve(settings), "")
    else
      refused(settings, "zero.model_config.tensor_placement_policy", "offload = { optimizer = \"host\"")
    end
    settings = { zero = { level = 3, offload_param_config = { device = "cpu", pin_memory = true } } }
    if offload.fields.parameters then
      has({ offload = { parameters = "host" } }, resolve(settings), "")
    else
      refused(settings, "zero.offload_param_config", "offload = { parameters = \"disk\"")
    end
  end)

  it("may be given by --set", function()
    local got = config.resolve(recipe { zero = { level = 2 } }, { file = "recipe.lua", sets = {
      "zero.model_config.reduce_scatter_bucket_size_mb=3", "activation_checkpoint=true" } }).config
    has({ zero = { stage = 2 }, parallel = { data = { bucket_mb = 3 } }, recompute = "block" }, got, "")
  end)

  it("is recomputation as an option of a model that has none of that name", function()
    local gpt = { type = "GPT", vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2,
      checkpoint = true }
    local got = resolve { model = gpt }
    assert.equal("block", got.recompute)
    assert.is_nil(got.model.checkpoint)
    gpt.checkpoint = false
    assert.is_nil(resolve({ model = gpt }).recompute)
  end)
end)

describe("gm.initialize in Colossal-AI's words", function()
  after_each(function() gm.context.destroy() end)

  local function made(parts)
    parts.model, parts.criterion = gm.nn.Linear(4, 3), { type = "CrossEntropyLoss" }
    return gm.initialize(parts)
  end

  it("takes what gm.launch takes, and says what belongs there", function()
    local zero = { level = 1, clip_grad = 0.5 }
    assert.equal(0.5, made({ zero = zero }).clip_grad_norm)
    assert.same({ level = 1, clip_grad = 0.5 }, zero) -- the caller's own table
    assert.error_matches(function() made { zero = { model_config = { reduce_scatter_bucket_size_mb = 1 } } } end,
      "bucket_size_mb becomes parallel%.data%.bucket_mb, which belongs to gm%.launch")
    assert.error_matches(function() made { gemini = { placement_policy = "auto" } } end, "offload = { memory")
    assert.error_matches(function() made { zero = { model_config = { reuse_fp16_shard = 1 } } } end, "a boolean")
  end)

  it("says of optimizers made in code where their states rest", function()
    assert.error_matches(function()
      gm.optim.HybridAdam({ nvme_offload_fraction = 0.5, nvme_offload_dir = "/x" }, gm.nn.Linear(4, 3))
    end, 'HybridAdam: write offload = { optimizer = "disk", disk = "/x", fraction = 0.5 }')
  end)
end)

describe("optimizers in Colossal-AI's words", function()
  -- One update of two parameters, of which only the first decays.
  local function after(name, opt)
    local list = {}
    for i = 1, 2 do list[i] = gm.tensor({ { 3, -4 } }, { dtype = "f64" }):requires_grad(true) end
    opt.weight_decay = nil
    local optimizer = gm.optim[name](opt, { { params = { list[1] }, weight_decay = 0.1 },
      { params = { list[2] }, weight_decay = 0 } })
    optimizer:zero_grad()
    local slope = gm.tensor({ { 0.5, 2 } }, { dtype = "f64" })
    slope:mul(list[1] + list[2]):sum():backward()
    optimizer:step { lr = 0.1 }
    return { list[1]:detach():reshape(2):totable(), list[2]:detach():reshape(2):totable() }
  end

  it("leave out the trust ratio of what does not decay, as NVIDIA's LAMB does unless use_nvlamb is set", function()
    local lamb = after("LAMB", {})
    assert.same(lamb, after("FusedLAMB", { max_grad_norm = 0, use_nvlamb = true }))
    local fused = after("FusedLAMB", { max_grad_norm = 0 })
    assert.same(lamb[1], fused[1])
    assert.same(after("AdamW", { eps = 1e-6 })[2], fused[2])
  end)

  it("leave it out of Lamb with adam = true", function()
    assert.same(after("FusedAdam", { eps = 1e-6, bias_correction = false }), after("Lamb", { adam = true }))
  end)
end)
