-- gpt_text.lua - a small GPT that learns the bytes of a text: the GNU General Public License, version 3,
-- which every Debian has (package base-files, /usr/share/common-licenses/GPL-3; 35 kB).
--
--     ./ganymede run recipes/gpt_text.lua
--     ./ganymede run recipes/gpt_text.lua --set data.train.path=my.txt --set data.test.path=my.txt
--     ./ganymede run recipes/gpt_text.lua -n 4 --set parallel.tensor.size=4 --set parallel.tensor.mode=2d
--     ./ganymede run recipes/gpt_text.lua -n 4 --set parallel.sequence=4                ring attention
--
-- Expect: test loss 2.09 nats a byte, 0.45 of the bytes right; 45 seconds of one core with AVX-512. The first 300
-- steps learn which byte follows which (loss 2.4), then words begin. The text is small: training much longer
-- learns it by heart, and the loss on its last tenth rises again.
local gm = require "ganymede"

local path, length = "/usr/share/common-licenses/GPL-3", 128

return gm.recipe {
  name  = "gpt-text",
  model = {
    type = "GPT", vocabulary = 256, sequence_length = length,
    width = 128, depth = 3, heads = 4,
  },
  data  = {
    train = { type = "Text", path = path, split = "train", sequence_length = length, stride = 4 },
    test  = { type = "Text", path = path, split = "test", sequence_length = length },
    batch_size = 8,
  },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 20, eta_min = 1e-4 },
  steps = 900,
  clip_grad_norm = 1.0,
  seed  = 1024,
  hooks = { { type = "LossHook", interval = 100 }, { type = "AccuracyHook" }, { type = "ThroughputHook" } },
}
