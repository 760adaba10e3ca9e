-- resnet_cifar10.lua - ResNet-18 with the stem for small images on CIFAR-10 (He et al. 2016).
--
--     ./ganymede run recipes/resnet_cifar10.lua
--     ./ganymede run recipes/resnet_cifar10.lua --set data.train.root=DIR --set data.test.root=DIR
--     ./ganymede run recipes/resnet_cifar10.lua --device cuda --set dtype=bf16
--     ./ganymede run recipes/resnet_cifar10.lua -n 4 --set parallel.pipeline=2 --set num_microbatches=4
--
-- Expect: not run here to its end, for want of the images; the specs run two steps on a small made-up file. Others
-- report 0.93 to 0.95 on the test set for this network with such settings and more epochs. A step of 32 images takes
-- half a second of two cores with AVX-512 (docs/performance.md), so an epoch takes 14 minutes there: use a GPU.
-- Data: CIFAR-10, binary version. Unpack cifar-10-binary.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html) here,
-- which makes the folder cifar-10-batches-bin, or say where its files are, as above.
local gm = require "ganymede"

return gm.recipe {
  name      = "resnet-cifar10",
  parallel  = { data = "auto" },
  model     = { type = "ResNet", depth = 18, stem = "cifar", classes = 10 },
  data      = {
    train = { type = "CIFAR10", split = "train" },
    test  = { type = "CIFAR10", split = "test" },
    transforms = { { type = "RandomCrop", size = 32, padding = 4 }, { type = "RandomHorizontalFlip" } },
    batch_size = 128,
  },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 5e-4 },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_epochs = 1 },
  epochs    = 30,
  seed      = 1024,
  hooks     = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "CheckpointHook", interval = 1000 } },
}
