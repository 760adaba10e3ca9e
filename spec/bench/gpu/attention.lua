-- attention.lua - attention forward and backward in bf16 against PyTorch's SDPA, TFLOP/s by the operations that the
-- mask leaves (forward 4 b h s t d, backward 2.5 times that; half of it where causal): 16,384 tokens, width 2,048.
-- "causal" and "all" are cuDNN's. "dropout" (causal, one weight in ten) and "masked", where the lengths of samples are
-- from half of the keys to all of them, are our own kernels' on tensor cores.
--
-- Ours is timed by events around each op (kernels/profile.h), the peer by events around each call. The attention of one
-- head size and length is timed in ours and in the peer one after the other.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local tokens, width = common.size(16384, 64), common.size(2048, 32)
local rounds = common.size(10, 1)

-- The keys of sample i that count, from 1.
local function length_of(i, b, s) return s - math.floor((i - 1) * s / (2 * b)) end

local function mask_of(b, s)
  local mask = gm.zeros({ b, s }, { dtype = "u8" })
  for i = 1, b do mask:select(1, i):narrow(1, 1, length_of(i, b, s)):fill_(1) end
  return mask
end

-- The share of the products that count.
local function share(kind, b, s)
  local keys = 0
  for i = 1, b do keys = keys + length_of(i, b, s) / (b * s) end
  return kind == "masked" and keys or kind == "all" and 1 or (s + 1) / (2 * s)
end

local function ours(kind, b, s, h, d)
  return gm.scope(function()
    local shape = { b, s, h, d }
    local t = {}
    for i = 1, 4 do t[i] = gm.normal(shape, { dtype = "bf16", seed = i }) end
    local attrs = { causal = kind == "causal" or kind == "dropout", p = kind == "dropout" and 0.1 or 0,
                    stream = { key = 1, step = 1 } }
    local mask = kind == "masked" and mask_of(b, s) or nil
    local function run()
      local out = core.run_op(common.backend(), "attention", { n = 6, t[1], t[2], t[3], mask },
        { n = 2, true, true }, attrs)
      core.run_op(common.backend(), "attention_grad", { n = 9, t[1], t[2], t[3], mask, out[1], out[2], t[4] },
        { n = 4, true, true, true }, attrs)
    end
    for _ = 1, 2 do gm.scope(run) end
    core.profile_start()
    for _ = 1, rounds do gm.scope(run) end
    local seconds = {}
    for _, line in ipairs(core.profile_stop()) do seconds[line.op] = line.seconds / line.calls end
    return seconds.attention, seconds.attention_grad
  end)
end

local peer, why = require("spec.bench.gpu.peer").start()
local result = { peer = peer and peer.about, peer_reason = why, rows = json.array {} }
for _, d in ipairs(common.size({ 64, 128 }, { 16 })) do
  for _, s in ipairs(common.size({ 1024, 4096, 16384 }, { 16, 32 })) do
    for _, kind in ipairs { "causal", "all", "masked", "dropout" } do
      local b, h = math.max(1, tokens / s), width / d
      local flops = 4 * b * h * s * s * d * share(kind, b, s)
      local row = { length = s, head_size = d, kind = kind, batch = b, heads = h }
      local forward, backward = ours(kind, b, s, h, d)
      row.forward, row.backward = flops / forward / 1e12, 2.5 * flops / backward / 1e12
      row.both = 3.5 * flops / (forward + backward) / 1e12
      local answer, reason = nil, why
      if peer then
        answer, reason = peer:ask(("attention %s %d %d %d %d"):format(kind, b, s, h, d))
      end
      if answer then
        row.peer_forward, row.peer_backward = flops / answer.forward / 1e12, 2.5 * flops / answer.backward / 1e12
        row.peer_both = 3.5 * flops / (answer.forward + answer.backward) / 1e12
        row.ratio = row.both / row.peer_both
      end
      row.peer_reason = reason
      table.insert(result.rows, row)
      common.write("attention", result)
      common.say("s %5d d %3d %-7s ours %.4g + %.4g = %.4g TFLOP/s, peer %s", s, d, kind,
        row.forward, row.backward, row.both, answer and ("%.4g, ratio %.2f"):format(row.peer_both, row.ratio) or reason)
    end
  end
end
if peer then peer:close() end
