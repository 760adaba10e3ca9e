-- gpt_text.lua - a small GPT that learns the bytes of a text: the GNU General Public License, version 3,
-- which every Debian has (package base-files, /usr/share/common-licenses/GPL-3; 35 kB).
--
--     ./ganymede run recipes/gpt_text.lua
--     ./ganymede run recipes/gpt_text.lua --set data.train.path=my.txt --set data.test.path=my.txt
--
-- The text is small: training longer learns it by heart, and the test loss (last tenth) rises again.
local gm = require "ganymede"

local path, length = "/usr/share/common-licenses/GPL-3", 128

return gm.recipe {
  name  = "gpt-text",
  model = {
    type = "GPT", vocabulary = 256, sequence_length = length,
    width = 128, depth = 4, heads = 4, dropout = 0.1,
  },
  data  = {
    train = { type = "Text", path = path, split = "train", sequence_length = length, stride = 4 },
    test  = { type = "Text", path = path, split = "test", sequence_length = length },
    batch_size = 32,
  },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 2e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 20, eta_min = 1e-4 },
  steps = 240,
  clip_grad_norm = 1.0,
  seed  = 1024,
  hooks = { { type = "LossHook", interval = 40 }, { type = "AccuracyHook" }, { type = "ThroughputHook" } },
}
