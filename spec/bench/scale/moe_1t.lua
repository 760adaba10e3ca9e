-- moe_1t.lua - a GPT of 1.1 trillion parameters for the simulations of docs/scale.md: 64 layers of width 4096, every
-- second of which has 256 experts, one of them for each token (as in Fedus et al. 2021). Nothing is read: the tokens
-- are made up.
--
--     ./ganymede simulate spec/bench/scale/moe_1t.lua -n 1024 --machine dgx_a100_80g --set parallel.expert=16
local gm = require "ganymede"

local tokens = { type = "Synthetic", kind = "tokens", length = 2 ^ 20, sequence_length = 2048, vocab_size = 51200 }

return gm.recipe {
  name     = "moe-1t",
  parallel = { pipeline = 8, expert = 8 },
  num_microbatches = 16,
  schedule = { type = "PipelineSchedule", order = "1f1b" },
  zero     = { stage = 1 },
  dtype    = "bf16",
  model = {
    type = "GPT", vocabulary = 51200, sequence_length = 2048, width = 4096, depth = 64, heads = 32,
    moe = { experts = 256, every = 2, router = { type = "TopKRouter", k = 1, balance = 0.01 } },
  },
  data  = { train = tokens, batch_size = 2048 },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  steps = 100000,
  clip_grad_norm = 1.0,
  seed  = 1024,
}
