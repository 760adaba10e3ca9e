-- curve.lua - the loss of GPT-2 124M on the project's own Lua text, byte by byte, for runs of other dtypes and seeds:
--
--     ganymede run spec/bench/gpu/curve.lua --device cuda --no-eval --set dtype=f32 --stats f32.json
--
-- run.sh compares bf16 with f32, and f32 with f32 of another seed, which is the noise.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"

local length = common.size(1024, 16)

return gm.recipe {
  name = "bench-curve",
  model = { type = "GPT", vocabulary = 256, sequence_length = length, width = common.size(768, 32),
            depth = common.size(12, 2), heads = common.size(12, 2) },
  data = { train = { type = "Text", path = (os.getenv "GM_BENCH_WORK" or ".") .. "/text", split = "train",
                     sequence_length = length, stride = common.size(64, 16) }, batch_size = common.size(16, 4) },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  clip_grad_norm = 1.0, dtype = "bf16", steps = common.size(200, 6), seed = 1,
}
