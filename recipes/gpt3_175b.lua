-- gpt3_175b.lua - GPT-3 (Brown et al. 2020, table 2.1: 96 layers of width 12288, 96 heads, sequences of 2048 tokens) on
-- thousands of GPUs, for simulations: 8 ranks share each layer, 16 stages the depth, and the rest divide the batch.
--
--     ./ganymede simulate recipes/gpt3_175b.lua -n 4096 --machine dgx_a100_80g
--     ./ganymede simulate recipes/gpt3_175b.lua -n 1024 --machine dgx_h100
--     ./ganymede run recipes/gpt3_175b.lua -n 4096
--
-- The last one is for those who have so many GPUs (--device cuda).
--
-- Expect: the first command predicts 5.95 s a step, 44 % of the peak (MFU), 39 GiB on a rank of the first stage. Nobody
-- has run it on GPUs.
--
-- The batch of 1536 sequences is the one of Narayanan et al. 2021 (arXiv:2104.04473, 5.1), who train 174.6 billion
-- parameters with the same sizes of tensors and pipelines. On 4096 ranks each of 32 data ranks has 48 micro-batches of
-- one sequence. Nothing is read: the tokens are made up.
local gm = require "ganymede"

local tokens = { type = "Synthetic", kind = "tokens", length = 2 ^ 20, sequence_length = 2048, vocab_size = 51200 }

return gm.recipe {
  name     = "gpt3-175b",
  parallel = { tensor = { size = 8, mode = "1d" }, pipeline = { size = 16, chunks = 3 } },
  num_microbatches = 48,
  zero     = { stage = 1 },
  dtype    = "bf16",
  model = {
    type = "GPT", vocabulary = 51200, sequence_length = 2048,
    width = 12288, depth = 96, heads = 96,
  },
  data  = { train = tokens, batch_size = 1536 },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 6e-5, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 183, eta_min = 6e-6 },
  steps = 95000,
  clip_grad_norm = 1.0,
  seed  = 1024,
}
