--- The list of layers and losses. To add one, put its file into this folder and add a line here.
--
--     local nn = require("ganymede").nn
--     local model = nn.Sequential { nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10) }
--
-- Every class describes its options in a table (`nn.Linear.options`) and is registered in
-- gm.registry.layers or gm.registry.losses under its name.
-- @module ganymede.nn
local files = {
  linear = "Linear", classifier = "Classifier", layer_norm = "LayerNorm", rms_norm = "RMSNorm",
  patch_embedding = "PatchEmbedding", attention = "MultiHeadAttention", mlp = "MLP",
  transformer = "TransformerBlock", accuracy = "Accuracy", moe = "MoE",
  embedding = { "Embedding", "PositionEmbedding" },
  convolution = { "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d" },
  dropout = { "Dropout", "DropPath" },
  activations = { "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Softmax", "LogSoftmax" },
  containers = { "Identity", "Lambda", "ModuleList", "Sequential", "ModelFromConfig" },
  losses = { "CrossEntropyLoss", "BERTLoss", "MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss", "BCEWithLogitsLoss",
    "DiceLoss", "DiffusionLoss", "VAELoss" },
  embedding_bag = "EmbeddingBag",
  flatten = "Flatten",
  batch_norm = { "BatchNorm1d", "BatchNorm2d", "BatchNorm3d" },
  recurrent = { "LSTM", "GRU" },
  residual_block = "ResidualBlock", convnext_block = "ConvNeXtBlock", mixer_block = "MixerBlock",
  window_attention = "WindowAttention", swin_block = { "SwinBlock", "PatchMerging" },
  cross_attention = "CrossAttention", time_embedding = "TimeEmbedding", time_block = "TimeResidualBlock",
  adaptive_norm = { "AdaptiveGroupNorm", "AdaptiveLayerNorm" }, resampling = { "Downsample", "Upsample" },
  spatial_attention = { "SpatialAttention", "SpatialTransformer" }, dit_block = "DiTBlock",
  group_norm = { "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d" },
  pooling = { "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d" },
}

local module = require "ganymede.nn.module"
local signature = require "ganymede.base.signature"

local nn = { Module = module.Module, class = signature.export("nn", { class = module.class }).class,
  init = require "ganymede.nn.initializers" }

for file, names in pairs(files) do
  local loaded = require("ganymede.nn." .. file)
  if type(names) == "string" then nn[names] = loaded else
    for _, name in ipairs(names) do nn[name] = assert(loaded[name], name) end
  end
end

nn.stream = require "ganymede.nn.stream" -- how activations lie between layers: nn.stream.to(x)
nn.sequence_parallel = require "ganymede.nn.sequence_parallel" -- attention where the sequence is cut
nn.PipelineSharedModuleWrapper = require "ganymede.nn.shared"

local tensor_parallel = require "ganymede.nn.tensor_parallel"
for _, file in ipairs { "one_d", "one_d_convolution", "two_d", "two_d_images", "three_d", "names" } do
  require("ganymede.nn.tensor_parallel." .. file)
end
for name, class in pairs(tensor_parallel.layers) do nn[name] = class end

return require("ganymede.base.missing").guard("nn", nn)
