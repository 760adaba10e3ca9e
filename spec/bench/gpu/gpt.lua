-- gpt.lua - training steps of GPT-2 124M in bf16 (parameters, activations and gradients; f32 masters and moments), as
-- users run them, in turn with the peer's (peer.py): windows of steps with nothing between but the peer's windows.
--
--     ganymede run spec/bench/gpu/gpt.lua --device cuda --no-eval --set data.batch_size=64
--
-- 50,304 tokens as llm.c pads them, 1,024 long; ours reads its batches through the loader and copies them to the
-- device, the peer's batch stays there. Per window: seconds, joules (NVML), what the host asked of the device. Ratios
-- are of neighbouring windows. The environment: GM_BENCH_PEERS, modes of the peer ("autocast weights").
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"

local length, vocabulary = common.size(1024, 16), common.size(50304, 64)
local width, depth, heads = common.size(768, 32), common.size(12, 2), common.size(12, 2)
local warm, rounds, each = common.size(10, 2), common.size(5, 2), common.size(10, 2)

local plain = (os.getenv "GM_BENCH_PLAIN" or "") ~= "" -- steps alone, for a profile of them

-- What tells a run from the plain one of its batch.
local function variant_of(config)
  return (config.model.head_chunk and "-chunk" or "") .. (config.time_products and "-timed" or "")
end

local function report(trainer, result, last)
  local config = trainer.config
  local batch, parameters = config.data.batch_size, 0
  local tokens = batch * length
  for _, t in ipairs(trainer.engine.parameters) do parameters = parameters + t:numel() end
  local flops = common.flops_per_token(parameters, depth, width, length)
  local rates = common.read "rates" or {}
  result.batch, result.variant, result.length, result.parameters = batch, variant_of(config), length, parameters
  result.flops_per_token, result.tokens_per_second = flops, tokens / result.seconds
  result.tflops = flops * result.tokens_per_second / 1e12
  result.of_spec = result.tflops / 989.4 -- dense bf16 of an H100 or H200 SXM, by NVIDIA's data sheet
  result.of_products = rates.product_tflops and result.tflops / rates.product_tflops
  result.joules_per_token = result.joules and result.joules / tokens
  for _, p in pairs(result.peers) do
    p.tokens_per_second = p.seconds and tokens / p.seconds
    p.joules_per_token = p.joules and p.joules / tokens
  end
  common.write("gpt-" .. batch .. result.variant, result)
  if not last then return end
  local auto = result.peers.autocast or {}
  common.say("batch %d: %.0f tokens/s, %.2f TFLOP/s, %s of the rate of products; PyTorch (autocast) %s",
    batch, result.tokens_per_second, result.tflops,
    result.of_products and ("%.1f %%"):format(100 * result.of_products)
    or "an unknown share", auto.ratio and ("ratio %.3f"):format(auto.ratio) or auto.reason or "not asked")
end

local batch_size = common.size(64, 4)

local turn = require("spec.bench.gpu.in_turn").hook {
  warm = warm, rounds = rounds, each = each, peers = os.getenv "GM_BENCH_PEERS" or "autocast weights", report = report,
  question = function(trainer, mode, steps)
    return ("gpt %s %d %d"):format(mode, trainer.config.data.batch_size, steps)
  end,
}

return gm.recipe {
  name = "bench-gpt2",
  model = { type = "GPT", vocabulary = vocabulary, sequence_length = length, width = width, depth = depth,
            heads = heads },
  data = { train = { type = "Synthetic", kind = "tokens", length = common.size(64, 8) * (warm + rounds * each),
                     sequence_length = length, vocab_size = vocabulary },
           batch_size = batch_size },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  dtype = "bf16", steps = warm + rounds * each, seed = 1, hooks = plain and {} or { turn },
}
