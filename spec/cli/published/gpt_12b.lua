-- GPT of 12.8 billion parameters: 40 layers, width 5120, 40 heads of 128 (GPT-3 13B of Brown et al. 2020 says 5140),
-- vocabulary and tied head of GPT-2: spec/cli/check_published_spec.lua.
--
--     ./ganymede check spec/cli/published/gpt_12b.lua -n 16
return {
  name = "gpt-12b",
  parallel = { tensor = { size = 16, mode = "2d" } },
  model = { type = "GPT", vocabulary = 50257, sequence_length = 1024, width = 5120, depth = 40, heads = 40 },
  data = {
    train = { type = "Synthetic", kind = "tokens", length = 1000000, sequence_length = 1024, vocab_size = 50257 },
    batch_size = 16,
  },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-4 },
  steps = 10,
}
