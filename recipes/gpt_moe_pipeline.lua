-- gpt_moe_pipeline.lua - a GPT with mixtures of experts on 8 ranks at once in three ways: two pipeline stages, experts
-- shared by two ranks of each stage, batches by two. It learns the bytes of the GNU General Public License, version 3.
--
--     ./ganymede run recipes/gpt_moe_pipeline.lua -n 8
--     ./ganymede run recipes/gpt_moe_pipeline.lua -n 8 --set schedule.order=zb-h1           another order of the passes
--     ./ganymede run recipes/gpt_moe_pipeline.lua --set parallel.pipeline=1 --set parallel.expert=1   one rank
--     ./ganymede check recipes/gpt_moe_pipeline.lua -n 8          the schedule drawn, what each stage holds and sends
--
-- Expect: test loss 2.51 nats a byte, 0.30 of the bytes right; on one rank the same up to rounding, which sends a token
-- to another expert now and then. 20 seconds of one core with AVX-512 on one rank, three times that in all on eight.
local gm = require "ganymede"

local path, length = "/usr/share/common-licenses/GPL-3", 64

return gm.recipe {
  name     = "gpt-moe-pipeline",
  parallel = { pipeline = 2, expert = 2 },
  num_microbatches = 4,
  schedule = { type = "PipelineSchedule", order = "1f1b" },
  model = {
    type = "GPT", vocabulary = 256, sequence_length = length, width = 64, depth = 4, heads = 4,
    moe = { experts = 4, every = 2, router = { type = "TopKRouter", k = 2, balance = 0.01 } },
  },
  data  = {
    train = { type = "Text", path = path, split = "train", sequence_length = length, stride = 4 },
    test  = { type = "Text", path = path, split = "test", sequence_length = length },
    batch_size = 32,
  },
  loss  = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 20, eta_min = 1e-4 },
  steps = 300,
  clip_grad_norm = 1.0,
  seed  = 1024,
  hooks = { { type = "LossHook", interval = 50 }, { type = "AccuracyHook" } },
}
