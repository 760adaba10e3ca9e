-- bert_text.lua - a small BERT that learns the bytes of texts: seven licenses that every Debian has (package
-- base-files, /usr/share/common-licenses). It fills in hidden bytes and says whether the second half follows the first.
--
--     ./ganymede run recipes/bert_text.lua
--     ./ganymede run recipes/bert_text.lua -n 4 --set parallel.tensor.size=4 --set parallel.tensor.mode=2d
--     ./ganymede run recipes/bert_text.lua -n 2 --set parallel.sequence=2                ring attention
--
-- Expect: 0.39 of the hidden bytes and 0.59 of the pairs right on the last tenth of the texts, test loss 3.11 (both
-- terms); 65 seconds of one core with AVX-512. Until step 500 it guesses by what is frequent (0.24); then it reads.
local gm = require "ganymede"

local licenses, length = "/usr/share/common-licenses/", 32 -- short: what follows what is learned from near by
local files = {}
for i, name in ipairs { "Apache-2.0", "GFDL-1.3", "GPL-2", "GPL-3", "LGPL-2.1", "MPL-1.1", "MPL-2.0" } do
  files[i] = licenses .. name
end

return gm.recipe {
  name  = "bert-text",
  model = {
    type = "BERT", vocabulary = 260, sequence_length = length,
    width = 128, depth = 2, heads = 4, dropout = 0, attention_dropout = 0,
    prefix_mask = true, -- texts begin at the first position, and padding is behind them
  },
  data  = {
    train = { type = "TextPairs", path = files, split = "train", sequence_length = length, stride = 4 },
    test  = { type = "TextPairs", path = files, split = "test", sequence_length = length, stride = 16 },
    batch_size = 64,
  },
  loss  = { type = "BERTLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, betas = { 0.9, 0.98 }, weight_decay = 0.01, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 100, eta_min = 1e-4 },
  steps = 1000,
  clip_grad_norm = 1.0,
  seed  = 1024,
  hooks = { { type = "LossHook", interval = 100 }, { type = "AccuracyHook" }, { type = "ThroughputHook" } },
}
