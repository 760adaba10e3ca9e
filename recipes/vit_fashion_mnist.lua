-- vit_fashion_mnist.lua - a small vision transformer on Fashion-MNIST; what `./ganymede demo` trains.
--
--     ./ganymede run recipes/vit_fashion_mnist.lua
--     ./ganymede run recipes/vit_fashion_mnist.lua --set model.depth=6 --set epochs=8
--     ./ganymede run recipes/vit_fashion_mnist.lua --resume auto        after an interruption
--     ./ganymede run recipes/vit_fashion_mnist.lua -n 4 --set parallel.tensor.size=4 --set parallel.tensor.mode=2d
--
-- Expect: test accuracy 0.88 (0.81, 0.86 and 0.87 after the first three epochs); half a minute of two cores with
-- AVX-512. An image is 16 patches of 7 x 7 pixels: patches of 4 x 4 cost three times as much.
-- Two blocks with narrow MLPs see four epochs in half the time that four blocks take for three, and get as far.
-- Data: Fashion-MNIST (Debian package dataset-fashion-mnist).
local gm = require "ganymede"

return gm.recipe {
  name      = "vit-fashion-mnist",
  parallel  = { data = "auto" },
  model     = {
    type = "VisionTransformer", image_size = 28, patch_size = 7, channels = 1, classes = 10,
    width = 64, depth = 2, heads = 4, mlp_ratio = 2, pool = "mean",
  },
  data      = {
    train = { type = "FashionMNIST", split = "train" },
    test  = { type = "FashionMNIST", split = "test" },
    batch_size = 64,
  },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 4e-3, weight_decay = 0.05 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 200 },
  epochs    = 4,
  clip_grad_norm = 1.0,
  seed      = 1024,
  hooks     = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "CheckpointHook", interval = 1000 } },
}
