-- recipe.lua - what run.lua rehearses; everything that a row says comes by --set.
return {
  name = "published", seed = 1, steps = 4, dtype = "bf16", gradient_dtype = "f32",
  model = { type = "GPT", vocabulary = 256 },
  data = { train = { type = "Tokens", path = "tokens", dtype = "u8", sequence_length = 2048, stride = 1 },
           batch_size = 1, shuffle = false },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-4, weight_decay = 0.1 },
  clip_grad_norm = 1.0,
}
