-- float8.lua - dense layers of 8 bits beside those of bf16 (docs/float8.md has the floors): 16,384 rows, as many inputs
-- as outputs. First the product alone, of codes and of bf16; then what rounds (its bytes: 2 read for a scale, 2 read
-- and 2 written for codes as they are and turned); then a layer forward and backward, in TFLOP/s of 6 m n k, with
-- current and with delayed scaling, where the op that rounds also finds what is needed. Then the same with scales of
-- blocks of 128, where one op finds scales and codes of both orders: 2 bytes read, 2 written, and 1 / 16 of scales. A
-- GPU that has no such products says so, and so does a product that cuBLASLt did not take.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local ops = gm.ops
local m, rounds, each = common.size(16384, 32), common.size(5, 1), common.size(5, 1)

local function time(fn) return common.seconds(fn, rounds, each) end

local function draw(seed, ...) return gm.normal({ ... }, { dtype = "bf16", seed = seed }) end

-- As a layer with delayed scaling calls it, after its first step.
local function delayed(sx, sw, g)
  local sg = ops.float8_scale(g, { format = "e5m2" })
  local needed = { gm.zeros {}, gm.zeros {}, gm.zeros {} }
  return function(x, w) return ops.linear_float8(x, w, nil, { scale = { sx, sw, sg }, needed = needed }) end
end

-- Forward and backward of a layer, without the step's other work.
local function layer(op, x, w, g)
  return time(function() op(x, w):backward(g) end)
end

local function in_blocks(x, w, b) return ops.linear_float8(x, w, b, { blocks = true }) end

-- Adds what scales of blocks cost to a row, or why there are none.
local function add_blocks(row, k, n, x, w, g)
  local a, a_scales = ops.float8_block_encode(x)
  local b, b_scales = ops.float8_block_encode(w, { square = true })
  local function product() ops.float8_block_product(a, b, a_scales, b_scales, { dtype = "bf16", square = true }) end
  while core.device_note() do end -- what was said before
  local ok, why = pcall(product)
  if not ok then
    row.blocks_reason = tostring(why)
    return
  end
  row.blocks_note = core.device_note()
  local flops = 2 * m * n * k
  row.product_blocks = flops / time(product) / 1e12
  row.encode_blocks_gbs = (4 + 1 / 16) * m * k / time(function() ops.float8_block_encode(x) end) / 1e9
  row.layer_blocks = 3 * flops / layer(in_blocks, x, w, g) / 1e12
end

local function row_of(k)
  return gm.scope(function()
    local n = k
    local x, w, g = draw(1, m, k), draw(2, n, k), draw(3, m, n)
    local row, flops = { width = k, rows = m }, 2 * m * n * k
    local sx, sw = ops.float8_scale(x), ops.float8_scale(w)
    local a, b = ops.float8_encode(x, sx), ops.float8_encode(w, sw)
    row.product = flops / time(function() ops.float8_product(a, b, sx, sw, { dtype = "bf16" }) end) / 1e12
    row.product_bf16 = flops / time(function() ops.matmul(x, w:transpose(1, 2)) end) / 1e12
    row.scale_gbs = 2 * m * k / time(function() ops.float8_scale(x) end) / 1e9
    row.encode_gbs = 4 * m * k / time(function() ops.float8_encode(x, sx) end) / 1e9
    x, w = x:detach():requires_grad(true), w:detach():requires_grad(true)
    row.layer = 3 * flops / layer(ops.linear_float8, x, w, g) / 1e12
    row.layer_delayed = 3 * flops / layer(delayed(sx, sw, g), x, w, g) / 1e12
    row.layer_bf16 = 3 * flops / layer(ops.linear, x, w, g) / 1e12
    add_blocks(row, k, n, x, w, g)
    row.ratio = row.layer / row.layer_bf16
    return row
  end)
end

local result = { rows = json.array {} }
for _, k in ipairs(common.size({ 1024, 2048, 4096, 8192 }, { 16, 32 })) do
  local row = row_of(k)
  table.insert(result.rows, row)
  common.write("float8", result)
  common.say("width %5d: products %.4g, bf16 %.4g TFLOP/s; scale %.4g, codes %.4g GB/s; layer %.4g, delayed %.4g, bf16 "
    .. "%.4g TFLOP/s, ratio %.2f", k, row.product, row.product_bf16, row.scale_gbs, row.encode_gbs, row.layer,
    row.layer_delayed, row.layer_bf16, row.ratio)
  local blocks = row.blocks_reason or ("products %.4g TFLOP/s, codes %.4g GB/s, layer %.4g TFLOP/s"):format(
    row.product_blocks, row.encode_blocks_gbs, row.layer_blocks)
  common.say("  blocks: %s%s", blocks, row.blocks_note and "; " .. row.blocks_note or "")
end
