-- The published shape of GPT-3 2.7B (Brown et al. 2020, table 2.1: 32 layers, width 2560, 32 heads), vocabulary and
-- tied head of GPT-2, as `ganymede check` is asked about it: spec/cli/check_published_spec.lua.
--
--     ./ganymede check spec/cli/published/gpt_2_7b.lua -n 4
return {
  name = "gpt-2.7b",
  parallel = { tensor = { size = 4, mode = "2d" } },
  model = { type = "GPT", vocabulary = 50257, sequence_length = 1024, width = 2560, depth = 32, heads = 32 },
  data = {
    train = { type = "Synthetic", kind = "tokens", length = 1000000, sequence_length = 1024, vocab_size = 50257 },
    batch_size = 16,
  },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-4 },
  steps = 10,
}
