-- rates.lua - what the device reaches in this very call: products of 8,192 x 8,192 in bf16, a copy of 2 GiB. All other
-- figures are judged by these: clocks and power differ from machine to machine. Random data: zeros run faster.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"

local function product(n, dtype, rounds, each)
  return gm.scope(function()
    local a, b = gm.normal({ n, n }, { dtype = dtype, seed = 1 }), gm.normal({ n, n }, { dtype = dtype, seed = 2 })
    local seconds = common.seconds(function() gm.ops.matmul(a, b) end, rounds, each)
    return 2 * n ^ 3 / seconds / 1e12
  end)
end

local function copy(elements)
  return gm.scope(function()
    local from = gm.normal({ elements }, { dtype = "f32", seed = 3 })
    local to = gm.zeros({ elements }, { dtype = "f32" })
    local seconds = common.seconds(function()
      core.run_op(common.backend(), "copy", { n = 1, from }, { n = 1, to }, {})
    end, common.size(7, 2), common.size(10, 1))
    return 2 * 4 * elements / seconds / 1e9
  end)
end

local n, rounds, each = common.size(8192, 64), common.size(7, 2), common.size(5, 1)
local result = { device = core.device().description, product_size = n }
result.product_tflops = product(n, "bf16", rounds, each)
result.f32_tflops = product(n / 2, "f32", rounds, each)
core.set_tf32(true)
result.tf32_tflops = product(n / 2, "f32", rounds, each)
core.set_tf32(false)
result.copy_gbs = copy(common.size(2 ^ 29, 2 ^ 12))
common.write("rates", result)

local peer, why = require("spec.bench.gpu.peer").start()
if peer then
  local answer, failed = peer:ask("product " .. n)
  result.peer, why = peer.about, failed
  if answer then result.peer_product_tflops = 2 * n ^ 3 / answer.seconds / 1e12 end
  local bytes = common.size(2 ^ 31, 2 ^ 14)
  answer, failed = peer:ask("copy " .. bytes)
  why = why or failed
  if answer then result.peer_copy_gbs = 2 * bytes / answer.seconds / 1e9 end
  peer:close()
end
result.peer_reason = why
common.write("rates", result)
common.say("%s: bf16 products %.3f TFLOP/s, f32 %.3f, TF32 %.3f, copy %.2f GB/s (read and written)", result.device,
  result.product_tflops, result.f32_tflops, result.tf32_tflops, result.copy_gbs)
