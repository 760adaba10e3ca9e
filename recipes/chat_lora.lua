-- chat_lora.lua - a model learns to answer, by adapters: sums of two digits, as conversations; loss on the answers.
--
--     ./ganymede run recipes/chat_lora.lua
--     ./ganymede run recipes/chat_lora.lua -n 2 --set parallel.tensor.size=2 --set parallel.tensor.mode=1d
--
-- For a model of others and conversations of your own, say where they are. Its adapters alone are trained then:
--
--     ./ganymede run recipes/chat_lora.lua --set 'model={type="Pretrained",path="SmolLM2-135M-Instruct"}' \
--         --set 'data.train={type="Chat",path="talks.jsonl",tokenizer="SmolLM2-135M-Instruct"}' \
--         --set 'data.test={type="Chat",path="others.jsonl",tokenizer="SmolLM2-135M-Instruct"}' \
--         --set 'lora={rank=8,split_qkv=true}' --set 'optimizer={type="AdamW",lr=2e-4}'
--
-- Expect: test loss 0.16 nats a token, 0.95 of the tokens of answers right (to sums that were not in training); ten
-- seconds of one core. Nothing is trained before, so embeddings and norms are trained as well.
local gm = require "ganymede"

local folder = debug.getinfo(1, "S").source:match "^@(.*)%.lua$" -- its tokenizer: bytes, and two marks of turns

-- Every pair of digits is a question; each tenth one is kept for the test.
local train, test = {}, {}
for a = 0, 9 do
  for b = 0, 9 do
    local list = (a * 7 + b * 3) % 10 == 0 and test or train
    list[#list + 1] = { messages = {
      { role = "user", content = ("What is %d plus %d?"):format(a, b) },
      { role = "assistant", content = ("It is %d."):format(a + b) },
    } }
  end
end

return gm.recipe {
  name  = "chat-lora",
  model = { type = "Llama", vocabulary = 258, sequence_length = 96, width = 64, depth = 2, heads = 4, kv_heads = 2,
            hidden = 128, rotary = true },
  lora  = { rank = 16, split_qkv = true, train = { "^tokens", "norm" } },
  data  = {
    train = { type = "Chat", conversations = train, tokenizer = folder, sequence_length = 96 },
    test  = { type = "Chat", conversations = test, tokenizer = folder, sequence_length = 96 },
    batch_size = 15,
  },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 5e-3, groups = { { match = "norm", weight_decay = 0 } } },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 20 },
  steps = 600,
  test_interval = 20,
  clip_grad_norm = 1.0,
  hooks = { { type = "LossHook", interval = 50 }, { type = "AccuracyHook" } },
}
