-- resnet_fashion_mnist.lua - a small residual network on Fashion-MNIST.
--
--     ./ganymede run recipes/resnet_fashion_mnist.lua
--     ./ganymede run recipes/resnet_fashion_mnist.lua -n 2                                         two data ranks
--     ./ganymede run recipes/resnet_fashion_mnist.lua -n 2 --set parallel.pipeline=2 --set num_microbatches=4
--     ./ganymede run recipes/resnet_fashion_mnist.lua --set model.width=64 --set model.blocks=nil  ResNet-18
--
-- Expect: test accuracy 0.92 (0.84, 0.84, 0.90, 0.91 and 0.92 after the first five epochs); twelve minutes of two
-- cores with AVX2.
-- Three stages of one block each: six convolutions of 3 x 3 behind the stem, 20, 40 and 80 channels. Images are
-- mirrored by chance. Batch norms are over the batch of all data ranks.
-- Data: Fashion-MNIST (Debian package dataset-fashion-mnist).
local gm = require "ganymede"

return gm.recipe {
  name      = "resnet-fashion-mnist",
  parallel  = { data = "auto" },
  model     = {
    type = "ResNet", depth = 18, blocks = { 1, 1, 1 }, width = 20, stem = "cifar", channels = 1, classes = 10,
  },
  data      = {
    train = { type = "FashionMNIST", split = "train" },
    test  = { type = "FashionMNIST", split = "test" },
    transforms = { { type = "RandomHorizontalFlip" } },
    batch_size = 64,
  },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 5e-4 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 200 },
  epochs    = 6,
  seed      = 1024,
  hooks     = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "CheckpointHook", interval = 1000 } },
}
