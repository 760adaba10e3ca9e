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
local core = require "ganymede.core"
local hooks = require "ganymede.hooks.base"
local energy = require "ganymede.observe.energy"
local json = require "ganymede.base.json"

local length, vocabulary = common.size(1024, 16), common.size(50304, 64)
local width, depth, heads = common.size(768, 32), common.size(12, 2), common.size(12, 2)
local warm, rounds, each = common.size(10, 2), common.size(5, 2), common.size(10, 2)

local plain = (os.getenv "GM_BENCH_PLAIN" or "") ~= "" -- steps alone, for a profile of them

local bench -- what is measured: { windows, peers, result }

local function open_window() -- of work that begins here, the device idle
  core.synchronize()
  bench.meter, bench.calls, bench.began = energy.start(), core.device_counts(), core.now()
end

local function close_window()
  core.synchronize()
  local seconds, calls, window = core.now() - bench.began, core.device_counts() or {}, { calls = {} }
  local report = bench.meter:report()
  window.seconds, window.gpu_joules, window.gpu_reason = seconds / each, report.gpu_joules, report.gpu_reason
  for _, name in ipairs { "launches", "libraries", "graphs", "copies", "waits", "allocations" } do
    -- less the wait that closes the window itself
    window.calls[name] = calls[name] and (calls[name] - bench.calls[name] - (name == "waits" and 1 or 0)) / each
  end
  table.insert(bench.windows, window)
end

-- One window of each mode of the peer, -> seconds a step by mode. The first one compiles.
local function ask_peers(steps)
  local list = {}
  for mode in (os.getenv "GM_BENCH_PEERS" or "autocast weights"):gmatch "%S+" do
    local meter = energy.start()
    local answer, why = nil, bench.no_peer
    if bench.peer then answer, why = bench.peer:ask(("gpt %s %d %d"):format(mode, bench.batch, steps)) end
    local report = meter:report()
    list[mode] = answer and { seconds = answer.seconds / steps, peak_bytes = answer.peak_bytes,
      gpu_joules = report.gpu_joules } or { reason = why }
  end
  return list
end

local function median_of(windows, field)
  local list = {}
  for _, w in ipairs(windows) do table.insert(list, w[field]) end
  return common.median(list)
end

-- What tells a run from the plain one of its batch.
local function variant_of(config)
  return (config.model.head_chunk and "-chunk" or "") .. (config.time_products and "-timed" or "")
end

local function summary(trainer)
  local tokens, parameters = bench.batch * length, 0
  for _, t in ipairs(trainer.engine.parameters) do parameters = parameters + t:numel() end
  local flops = common.flops_per_token(parameters, depth, width, length)
  local seconds, joules = median_of(bench.windows, "seconds"), median_of(bench.windows, "gpu_joules")
  local rates = common.read "rates" or {}
  local result = { batch = bench.batch, variant = variant_of(trainer.config),
    length = length, parameters = parameters, flops_per_token = flops,
    seconds = seconds, tokens_per_second = tokens / seconds, tflops = flops * tokens / seconds / 1e12,
    windows = json.array(bench.windows), calls = bench.windows[#bench.windows].calls,
    peak_bytes = core.memory().peak, reserved_bytes = core.memory().reserved,
    joules_per_token = joules and joules / (each * tokens), joules_reason = bench.windows[1].gpu_reason,
    loss = json.array(trainer.losses), peers = {} }
  result.of_spec = result.tflops / 989.4 -- dense bf16 of an H100 or H200 SXM, by NVIDIA's data sheet
  result.of_products = rates.product_tflops and result.tflops / rates.product_tflops
  for mode, first in pairs(bench.peers[1] or {}) do
    local ratios, list, used = {}, {}, {}
    for i, peers in ipairs(bench.peers) do
      local p = peers[mode]
      if p.seconds then
        table.insert(list, p.seconds)
        table.insert(ratios, p.seconds / bench.windows[i].seconds)
        table.insert(used, p.gpu_joules)
      end
    end
    local s, j = common.median(list), common.median(used)
    result.peers[mode] = s and { seconds = s, tokens_per_second = tokens / s, ratio = common.median(ratios),
      peak_bytes = first.peak_bytes, joules_per_token = j and j / (each * tokens) } or { reason = first.reason }
  end
  return result
end

local Alternate = hooks.class("Alternate", nil, { needs_output = false })

function Alternate.before_train(_, trainer)
  bench = { windows = {}, peers = {}, batch = trainer.config.data.batch_size }
  if (os.getenv "GM_BENCH_PEERS" or "all") == "" then return end
  bench.peer, bench.no_peer = require("spec.bench.gpu.peer").start()
  ask_peers(1) -- compiles and warms up, before ours does
end

function Alternate.after_train_iter(_, trainer)
  local over = trainer.step - warm
  if over < 0 or over % each ~= 0 then return end
  if over > 0 then
    close_window()
    table.insert(bench.peers, ask_peers(each))
    local result = summary(trainer)
    common.write("gpt-" .. bench.batch .. variant_of(trainer.config), result)
    if over == rounds * each then
      local auto = result.peers.autocast or {}
      common.say("batch %d: %.0f tokens/s, %.2f TFLOP/s, %s of the rate of products; PyTorch (autocast) %s",
        bench.batch, result.tokens_per_second, result.tflops,
        result.of_products and ("%.1f %%"):format(100 * result.of_products)
        or "an unknown share", auto.ratio and ("ratio %.3f"):format(auto.ratio) or auto.reason or "not asked")
    end
  end
  open_window()
end

function Alternate.after_train() if bench.peer then bench.peer:close() end end

return gm.recipe {
  name = "bench-gpt2",
  model = { type = "GPT", vocabulary = vocabulary, sequence_length = length, width = width, depth = depth,
            heads = heads },
  data = { train = { type = "Synthetic", kind = "tokens", length = common.size(64, 8) * (warm + rounds * each),
                     sequence_length = length, vocab_size = vocabulary },
           batch_size = common.size(64, 4) },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, no_decay = "norm_and_bias" },
  dtype = "bf16", steps = warm + rounds * each, seed = 1, hooks = plain and {} or { { type = "Alternate" } },
}
