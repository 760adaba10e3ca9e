-- gpt2_1_5b.lua - GPT-2 1.5B (Radford et al. 2019: 48 layers of width 1600, 25 heads, sequences of 1024 tokens; half a
-- million tokens a step) for the plans of docs/scale.md. Nothing is read: the tokens are made up.
--
--     ./ganymede plan spec/bench/scale/gpt2_1_5b.lua -n 4 --machine dgx_a100_80g
local gm = require "ganymede"

local tokens = { type = "Synthetic", kind = "tokens", length = 2 ^ 20, sequence_length = 1024, vocab_size = 50304 }

return gm.recipe {
  name  = "gpt2-1.5b",
  dtype = "bf16",
  model = { type = "GPT", vocabulary = 50304, sequence_length = 1024, width = 1600, depth = 48, heads = 25 },
  data  = { train = tokens, batch_size = 512 },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 2e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  steps = 100000,
  clip_grad_norm = 1.0,
  seed  = 1024,
}
