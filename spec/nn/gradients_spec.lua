--- The gradients of every layer against central differences, in f64: parameters and inputs.
-- A registered layer without a case here fails the last example.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local registry = require "ganymede.base.registry"

require "ganymede.nn"

-- h = 1e-5: the differences are wrong by h^2 f''' (1e-10) and rounding / h (1e-11 of a loss near 1); 1e-7 of the
-- largest slope leaves room for curvature
local tolerance = 1e-7

local function normal(...)
  local shape = { ... }
  return function(seed) return gm.normal(shape, { dtype = "f64", seed = seed }) end
end

local function fixed(list, dtype) return function() return gm.tensor(list, { dtype = dtype }) end end

local index = fixed({ { 0, 4, 2 }, { 4, 4, 1 } }, "i64")
local key_mask = fixed({ { 1, 1, 0, 1 }, { 1, 0, 1, 1 } }, "u8")

-- { layer, options, inputs, name = what differs }
local cases = {
  { "Linear", { inputs = 3, outputs = 4 }, { normal(2, 5, 3) } },
  { "Linear", { inputs = 3, outputs = 4, bias = false, activation = "gelu" }, { normal(5, 3) },
    name = "gelu, no bias" },
  { "Linear", { inputs = 3, outputs = 4, activation = "silu" }, { normal(5, 3) }, name = "silu" },
  { "Linear", { inputs = 3, outputs = 4, activation = "gelu_tanh" }, { normal(5, 3) }, name = "gelu_tanh" },
  { "Conv1d", { in_channels = 3, out_channels = 4, kernel_size = 3, stride = 2, padding = { { 2, 0 } },
    activation = "gelu" }, { normal(2, 3, 8) } },
  { "Conv2d", { in_channels = 2, out_channels = 3, kernel_size = { 3, 2 }, stride = { 3, 1 }, dilation = { 1, 2 },
    padding = 1 }, { normal(2, 2, 6, 5) } },
  { "Conv2d", { in_channels = 4, out_channels = 8, kernel_size = 3, padding = "same", groups = 4, bias = false },
    { normal(2, 4, 4, 5) }, name = "depthwise" },
  { "Conv2d", { in_channels = 4, out_channels = 6, kernel_size = 1, stride = 3, groups = 2 }, { normal(2, 4, 4, 5) },
    name = "strides beyond the kernel, in groups" },
  { "Conv3d", { in_channels = 2, out_channels = 2, kernel_size = 2, stride = { 1, 2, 1 } }, { normal(1, 2, 3, 4, 3) } },
  { "ConvTranspose1d", { in_channels = 3, out_channels = 2, kernel_size = 3, stride = 2, output_padding = 1,
    activation = "silu" }, { normal(2, 3, 4) } },
  { "ConvTranspose2d", { in_channels = 4, out_channels = 2, kernel_size = { 3, 2 }, stride = { 2, 3 }, padding = 1,
    groups = 2 }, { normal(2, 4, 3, 4) } },
  { "ConvTranspose3d", { in_channels = 2, out_channels = 2, kernel_size = 2, dilation = 2, bias = false },
    { normal(1, 2, 2, 2, 3) } },
  { "Classifier", { inputs = 3, classes = 4 }, { normal(5, 3) } },
  { "LayerNorm", { width = 6 }, { normal(2, 3, 6) } },
  { "LayerNorm", { width = 6 }, { normal(2, 3, 6), normal(2, 3, 6) }, name = "with residual" },
  { "LayerNorm", { width = 6, bias = false }, { normal(4, 6) }, name = "no bias" },
  { "RMSNorm", { width = 6 }, { normal(2, 3, 6) } },
  { "RMSNorm", { width = 6 }, { normal(2, 3, 6), normal(2, 3, 6) }, name = "with residual" },
  { "Embedding", { count = 5, width = 3 }, { index } },
  { "EmbeddingBag", { count = 5, width = 3 }, { index, normal(2, 3) }, name = "weights of indices" },
  { "EmbeddingBag", { counts = { 5, 4 }, width = 2, mode = "mean" },
    { fixed({ { { 0, 4, 2 }, { 3, -1, 3 } }, { { 1, 1, -1 }, { 0, 2, 1 } } }, "i64") }, name = "mean, two tables" },
  { "PositionEmbedding", { length = 4, width = 3 }, { normal(2, 4, 3) } },
  { "PositionEmbedding", { length = 7, width = 3 }, { normal(2, 4, 3) }, name = "shorter sequence" },
  { "PatchEmbedding", { image_size = { 4, 6 }, patch_size = 2, channels = 2, width = 3 }, { normal(2, 2, 4, 6) } },
  { "PatchEmbedding",
    { image_size = 4, patch_size = 2, channels = 1, width = 3, class_token = false, positions = false },
    { normal(2, 1, 4, 4) }, name = "bare" },
  { "PatchEmbedding", { image_size = { 4, 2, 3 }, patch_size = { 2, 1, 3 }, channels = 2, width = 3 },
    { normal(2, 2, 4, 2, 3) }, name = "volumes" },
  { "WindowAttention", { width = 4, heads = 2, window = 2 }, { normal(2, 4, 2, 4) } },
  { "WindowAttention", { width = 4, heads = 2, window = 3, shift = 1 }, { normal(1, 5, 4, 4) }, name = "shifted" },
  { "SwinBlock", { width = 4, heads = 2, window = 2, shift = 1, mlp_ratio = 2 }, { normal(1, 4, 4, 4) } },
  { "PatchMerging", { width = 2 }, { normal(2, 3, 2, 2) } },
  { "ConvNeXtBlock", { width = 4, kernel = 3, layer_scale = 0.5 }, { normal(2, 4, 3, 2) } },
  { "ConvNeXtBlock", { width = 4, kernel = 3, layer_scale = 0 }, { normal(1, 4, 2, 3) }, name = "without a scale" },
  { "MixerBlock", { width = 4, tokens = 3, token_hidden = 2, hidden = 5 }, { normal(2, 3, 4) } },
  { "MultiHeadAttention", { width = 6, heads = 2 }, { normal(2, 4, 6) } },
  { "MultiHeadAttention", { width = 6, heads = 2, causal = true, bias = false }, { normal(2, 4, 6) },
    name = "causal" },
  { "MultiHeadAttention", { width = 6, heads = 3 }, { normal(2, 4, 6), key_mask }, name = "key mask" },
  { "MultiHeadAttention", { width = 8, heads = 4, kv_heads = 2, causal = true }, { normal(2, 3, 8) },
    name = "grouped" },
  { "MLP", { width = 3, hidden = 5 }, { normal(2, 4, 3) } },
  { "TransformerBlock", { width = 6, heads = 2, mlp_ratio = 2 }, { normal(2, 3, 6) } },
  { "TransformerBlock",
    { width = 6, heads = 2, causal = true, norm = "RMSNorm", activation = "silu", bias = false },
    { normal(2, 3, 6) }, name = "RMSNorm, causal" },
  { "TransformerBlock", { width = 6, heads = 2, post_norm = true }, { normal(2, 4, 6), key_mask },
    name = "post-norm" },
  -- no token is so near to another choice that a step of h changes it
  { "MoE", { width = 4, hidden = 5, experts = 3, router = { type = "TopKRouter", balance = 0 } }, { normal(2, 3, 4) } },
  { "MoE", { width = 4, hidden = 3, experts = 3, shared = 1, capacity = 1, min_capacity = 1, activation = "silu",
             router = { type = "SwitchRouter", balance = 0 } }, { normal(7, 4) }, name = "Switch, dropping, shared" },
  { "MoE", { width = 4, hidden = 3, experts = 3, bias = false, router = { type = "Top2Router", balance = 0 } },
    { normal(4, 4) }, name = "Top2" },
  { "MoE", { width = 4, hidden = 3, experts = 4, router = { type = "SigmoidRouter", k = 3 } }, { normal(2, 3, 4) },
    name = "Sigmoid" },
  { "GELU", {}, { normal(3, 4) } },
  { "GELU", { approximate = "tanh" }, { normal(3, 4) }, name = "tanh" },
  { "SiLU", {}, { normal(3, 4) } },
  { "Tanh", {}, { normal(3, 4) } },
  { "Sigmoid", {}, { normal(3, 4) } },
  { "ReLU", {}, { normal(3, 4) } }, -- with this seed no value is within h of 0, where there is no slope
  { "Flatten", {}, { normal(2, 3, 2) } },
  { "BatchNorm1d", { channels = 3 }, { normal(4, 3) } },
  { "BatchNorm2d", { channels = 2 }, { normal(2, 2, 2, 3) } },
  { "BatchNorm3d", { channels = 2, affine = false }, { normal(2, 2, 2, 1, 2) } },
  { "ResidualBlock", { inputs = 2, width = 2, stride = 2 }, { normal(2, 2, 4, 3) } },
  { "ResidualBlock", { inputs = 2, width = 1, bottleneck = true }, { normal(2, 2, 3, 3) } },
  { "LSTM", { inputs = 3, hidden = 2, layers = 2, returns = "sequence" }, { normal(2, 3, 3) } },
  { "GRU", { inputs = 3, hidden = 2, bidirectional = true }, { normal(2, 3, 3) } },
  { "CrossAttention", { width = 4, heads = 2, context = 3 }, { normal(2, 3, 4), normal(2, 4, 3), key_mask } },
  { "TimeEmbedding", { channels = 4, width = 3 }, { fixed({ 1, 7 }, "i64") } },
  { "AdaptiveGroupNorm", { groups = 2, channels = 4, condition = 3 }, { normal(2, 4, 3), normal(2, 3) } },
  { "AdaptiveLayerNorm", { width = 4, condition = 3, gate = true }, { normal(2, 3, 4), normal(2, 3) } },
  { "Downsample", { channels = 2 }, { normal(2, 2, 3, 4) } },
  { "Upsample", { channels = 2 }, { normal(1, 2, 2, 3) } },
  { "TimeResidualBlock", { inputs = 2, outputs = 4, condition = 3, groups = 2 }, { normal(2, 2, 2, 3), normal(2, 3) } },
  { "TimeResidualBlock", { inputs = 2, outputs = 2, condition = 2, groups = 1, scale_shift = true },
    { normal(2, 2, 2, 2), normal(2, 2) }, name = "scale and shift" },
  { "SpatialAttention", { channels = 4, groups = 2, heads = 2 }, { normal(1, 4, 2, 2) } },
  { "SpatialTransformer", { channels = 4, groups = 2, heads = 2, context = 3 },
    { normal(1, 4, 2, 2), normal(1, 3, 3) } },
  { "DiTBlock", { width = 4, heads = 2, mlp_ratio = 1.5 }, { normal(2, 3, 4), normal(2, 4) } },
  { "GroupNorm", { groups = 2, channels = 4 }, { normal(2, 4, 3) } },
  { "InstanceNorm1d", { channels = 2, affine = true }, { normal(2, 2, 4) } },
  { "InstanceNorm2d", { channels = 2 }, { normal(2, 2, 3, 2) } },
  { "InstanceNorm3d", { channels = 2 }, { normal(1, 2, 2, 2, 2) } },
  { "MaxPool1d", { kernel = 3, stride = 2, padding = 1 }, { normal(2, 2, 7) } },
  { "MaxPool2d", { kernel = 2, stride = 1, dilation = 2 }, { normal(1, 2, 4, 5) } },
  { "MaxPool3d", { kernel = { 1, 2, 2 } }, { normal(1, 2, 2, 4, 3) } },
  { "AvgPool1d", { kernel = 3, stride = 2, padding = 1, ceil_mode = true }, { normal(2, 2, 6) } },
  { "AvgPool2d", { kernel = 3, stride = 1, padding = 1, count_include_pad = false }, { normal(1, 2, 4, 3) } },
  { "AvgPool3d", { kernel = 2, divisor = 3 }, { normal(1, 2, 2, 4, 3) } },
  { "AdaptiveAvgPool1d", { size = 3 }, { normal(2, 2, 7) } },
  { "AdaptiveAvgPool2d", { size = { 2, 3 } }, { normal(1, 2, 5, 4) } },
  { "AdaptiveAvgPool3d", { size = 2 }, { normal(1, 2, 3, 2, 3) } },
  { "AdaptiveMaxPool1d", { size = 3 }, { normal(2, 2, 7) } },
  { "AdaptiveMaxPool2d", { size = { 2, 3 } }, { normal(1, 2, 5, 4) } },
  { "AdaptiveMaxPool3d", { size = 2 }, { normal(1, 2, 3, 2, 3) } },
  { "Softmax", { dim = 1 }, { normal(3, 4) } },
  { "LogSoftmax", {}, { normal(3, 4) } },
  { "Identity", {}, { normal(3, 4) } },
  { "Lambda", { fn = function(x) return x * x end }, { normal(3, 4) } },
  { "Sequential", { layers = { { type = "Linear", inputs = 3, outputs = 4 }, { type = "Tanh" },
    { type = "Linear", inputs = 4, outputs = 2 } } }, { normal(5, 3) } },
}

-- Layers with nothing to differentiate, or whose mask must be held fixed: their own specs judge them.
local elsewhere = { ModuleList = true, Dropout = true, DropPath = true, ModelFromConfig = true }

local function build(case)
  local layer = registry.layers:get(case[1])(case[2])
  for i, p in ipairs(layer:named_parameters()) do -- away from ones and zeros, so that every gradient shows
    p.tensor:detach():copy_(gm.normal(p.tensor:shape(), { dtype = "f64", seed = 100 + i, std = 0.5 }))
  end
  local inputs = {}
  for i, make in ipairs(case[3]) do inputs[i] = make(i) end
  return layer, inputs
end

-- A function of all outputs that treats no two elements alike.
local function loss_of(outputs, weights)
  local loss
  for i, y in ipairs(outputs) do
    weights[i] = weights[i] or gm.normal(y:shape(), { dtype = "f64", seed = 200 + i }):keep()
    local term = gm.ops.sum(y * weights[i])
    loss = loss and loss + term or term
  end
  return loss
end

local function judge(case)
  local layer, inputs = build(case)
  local weights, checked = {}, {}
  for i, x in ipairs(inputs) do
    if x:dtype() == "f64" then
      x:requires_grad(true)
      checked[#checked + 1] = { name = "input " .. i, tensor = x }
    end
  end
  for _, p in ipairs(layer:named_parameters()) do checked[#checked + 1] = p end
  loss_of({ layer(unpack(inputs)) }, weights):backward()
  local function value()
    return gm.scope(gm.no_grad, function() return loss_of({ layer(unpack(inputs)) }, weights):item() end)
  end
  assert.is_true(#checked > 0)
  for _, item in ipairs(checked) do
    local slopes = numeric.slopes(value, item.tensor)
    local ok, why = pcall(numeric.agree, item.tensor:grad(), slopes, tolerance)
    assert(ok, ("gradient of %s: %s"):format(item.name, tostring(why)))
  end
end

describe("numeric gradients of", function()
  local before
  before_each(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  after_each(function() gm.set_default_dtype(before) end)

  for _, case in ipairs(cases) do
    it(case[1] .. (case.name and (" (%s)"):format(case.name) or ""), function() gm.scope(judge, case) end)
  end

  it("the padding row are zero, of the others as without padding", function()
    gm.scope(function()
      local layer = gm.nn.Embedding { count = 5, width = 3, padding_index = 4 }
      gm.ops.sum(gm.ops.square(layer(index()) + 1)):backward()
      local grad = layer.weight:grad():totable()
      assert.same({ 0, 0, 0 }, grad[5])
      assert.is_true(math.abs(grad[1][1]) > 1e-3)
    end)
  end)

  it("every registered layer is judged here", function()
    local seen = {}
    for _, case in ipairs(cases) do seen[case[1]] = true end
    for _, class in pairs(gm.nn) do
      local name = type(class) == "table" and rawget(class, "forward") and class.name
      if name and name ~= "Module" and not name:find "Loss$" and name ~= "Accuracy" and not class.tensor_mode then
        assert.is_true(registry.models:has(name), name .. " is not registered")
        assert.is_true(seen[name] or elsewhere[name] or false, name .. " has no numeric gradient")
      end
    end
  end)
end)
