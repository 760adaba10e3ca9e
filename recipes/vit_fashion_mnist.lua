-- vit_fashion_mnist.lua - a small vision transformer on Fashion-MNIST; what `ganymede demo` trains.
local gm = require "ganymede"

return gm.recipe {
  name      = "vit-fashion-mnist",
  parallel  = { data = "auto" },
  model     = { type = "VisionTransformer", image_size = 28, patch_size = 4, channels = 1, classes = 10, width = 64, depth = 4, heads = 4 },
  data      = { train = { type = "FashionMNIST", split = "train" }, test = { type = "FashionMNIST", split = "test" }, batch_size = 128 },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, weight_decay = 0.05 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 100 },
  epochs    = 1, clip_grad_norm = 1.0, seed = 1024,
  hooks     = { { type = "LossHook" }, { type = "AccuracyHook" } },
}
