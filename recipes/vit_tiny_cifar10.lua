-- vit_tiny_cifar10.lua - Colossal-AI's vit_tiny_patch4_32 on CIFAR-10: 64 patches of 4 x 4 pixels and a class token.
--
--     ./ganymede run recipes/vit_tiny_cifar10.lua
--     ./ganymede run recipes/vit_tiny_cifar10.lua --set data.train.root=DIR --set data.test.root=DIR
--     ./ganymede run recipes/vit_tiny_cifar10.lua -n 8 --set parallel.tensor.size=4 --set parallel.tensor.mode=2d
--
-- Expect: test accuracy about 0.83, what Colossal-AI says of its own. It was not run here to its end: the specs run two
-- steps on a small made-up file. An epoch is 98 steps; from two of them, 25 minutes of one core with AVX-512.
-- Data: CIFAR-10, binary version. Unpack cifar-10-binary.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html) here,
-- which makes the folder cifar-10-batches-bin, or say where its files are, as above.
local gm = require "ganymede"

return gm.recipe {
  name      = "vit-tiny-cifar10",
  parallel  = { data = "auto" },
  model     = {
    type = "VisionTransformer", image_size = 32, patch_size = 4, channels = 3, classes = 10,
    width = 512, depth = 6, heads = 8, mlp_ratio = 1, dropout = 0.1,
  },
  data      = {
    train = { type = "CIFAR10", split = "train" },
    test  = { type = "CIFAR10", split = "test" },
    batch_size = 512,
    transforms = { { type = "RandomCrop", size = 32, padding = 4 }, { type = "RandomHorizontalFlip" } },
  },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_epochs = 5 },
  epochs    = 60,
  clip_grad_norm = 1.0,
  seed      = 1024,
  hooks     = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "ThroughputHook" },
                { type = "CheckpointHook", interval = 1000 } },
}
