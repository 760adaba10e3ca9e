-- llama2_70b.lua - LLaMA 2 70B (Touvron et al. 2023: 80 layers of width 8192, 64 heads of which 8 have keys, 4 million
-- tokens a step in sequences of 4096) for the simulations of docs/scale.md. Nothing is read: the tokens are made up.
--
--     ./ganymede simulate spec/bench/scale/llama2_70b.lua -n 256 --machine dgx_a100_80g
local gm = require "ganymede"

local tokens = { type = "Synthetic", kind = "tokens", length = 2 ^ 20, sequence_length = 4096, vocab_size = 32000 }

return gm.recipe {
  name     = "llama2-70b",
  parallel = { tensor = { size = 8, mode = "1d", sequence = true }, pipeline = 4 },
  num_microbatches = 32,
  schedule = { type = "PipelineSchedule", order = "1f1b" },
  zero     = { stage = 1 },
  dtype    = "bf16",
  model = {
    type = "Llama", vocabulary = 32000, sequence_length = 4096, width = 8192, depth = 80, heads = 64, kv_heads = 8,
    hidden = 28672, tied = false, rotary = { base = 10000 },
  },
  data  = { train = tokens, batch_size = 1024 },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1.5e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  steps = 500000,
  clip_grad_norm = 1.0,
  seed  = 1024,
}
