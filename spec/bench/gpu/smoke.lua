-- smoke.lua - what is likeliest to be wrong on a GPU that nothing has run on yet, in a minute: whether attention gives
-- the same bits twice, and how each kind of product of GPT-2 124M is made, and how fast.
--
--     GM_BENCH_WORK=DIR ganymede run spec/bench/gpu/smoke.lua --device cuda
--
-- Bits: attention and its gradient with 1,024 queries (short ones are equal by luck), eight times, as cuDNN does them
-- and with deterministic = true. What differs in the first is told, what differs in the second is an error.
-- Products: a line each as soon as it is known, a failed one with its message; the rest goes on. run.sh has cuBLASLt
-- write its own log beside, which names algorithms and how they split sums.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local backend = common.backend()
local result = { bits = {}, products = json.array {} }
local failed = 0

local function normal(shape, seed, dtype) return gm.normal(shape, { dtype = dtype or "bf16", seed = seed }) end

-- ---------------------------------------------------------------- the same bits twice

-- Outputs of attention and of its gradient.
local function attend(q, k, v, g)
  local attrs = { causal = true }
  local out = core.run_op(backend, "attention", { n = 6, q, k, v }, { n = 2, true, true }, attrs)
  local grads = core.run_op(backend, "attention_grad", { n = 9, q, k, v, nil, out[1], out[2], g },
    { n = 4, true, true, true }, attrs)
  return { o = out[1], lse = out[2], dq = grads[1], dk = grads[2], dv = grads[3] }
end

-- How many elements of each output differ from those of the first of some runs, at most.
local function differing(deterministic)
  core.set_deterministic(deterministic)
  return gm.scope(function()
    local b, s, h, d = common.size(8, 1), common.size(1024, 32), common.size(12, 2), common.size(64, 16)
    local shape, counts = { b, s, h, d }, {}
    local q, k, v, g = normal(shape, 1), normal(shape, 2), normal(shape, 3), normal(shape, 4)
    local first = attend(q, k, v, g)
    for _ = 2, common.size(8, 2) do
      gm.scope(function()
        for name, t in pairs(attend(q, k, v, g)) do
          local n = gm.ops.ne(t, first[name]):to("f32"):sum():item()
          counts[name] = math.max(counts[name] or 0, n)
        end
      end)
    end
    return counts
  end)
end

for _, how in ipairs { "default", "deterministic" } do
  local ok, counts = pcall(differing, how == "deterministic")
  result.bits[how] = counts
  local worst, said = 0, {}
  for _, name in ipairs { "o", "lse", "dq", "dk", "dv" } do
    local n = ok and counts[name] or 0
    worst = math.max(worst, n)
    said[#said + 1] = ("%s %g"):format(name, n)
  end
  common.say("attention twice, %s: %s", how, not ok and "FAILED: " .. tostring(counts)
    or worst == 0 and "the same bits" or "elements that differ: " .. table.concat(said, ", "))
  if not ok or (how == "deterministic" and worst > 0) then failed = failed + 1 end
  common.write("smoke", result)
end
core.set_deterministic(false)

-- ---------------------------------------------------------------- products

local rows = common.size(65536, 64)

-- label, op, inputs, outputs, attributes, rows x inner x columns
local function product(label, op, make, outputs, attrs, flops)
  local line = { label = label, op = op }
  local ok, why = pcall(gm.scope, function()
    local inputs = make()
    line.seconds = common.seconds(function() core.run_op(backend, op, inputs, outputs, attrs) end, common.size(3, 1),
      common.size(3, 1))
    line.tflops = flops / line.seconds / 1e12
  end)
  if not ok then
    line.failed, failed = tostring(why), failed + 1
  end
  line.note = core.device_note()
  table.insert(result.products, line)
  common.write("smoke", result)
  common.say("%-34s %s%s", label, ok and ("%8.3f ms  %7.1f TFLOP/s"):format(1e3 * line.seconds, line.tflops)
    or "FAILED: " .. line.failed, line.note and "  (" .. line.note .. ")" or "")
end

-- The products of one dense layer, as a training step makes them.
local function layer(name, dtype, inner, columns, activation)
  local function t(n, m, seed) return normal({ n, m }, seed, dtype) end
  local label = function(what) return ("%s %s %s"):format(name, dtype, what) end
  local flops = 2 * rows * inner * columns
  product(label "forward", "linear", function()
    return { n = 3, t(rows, inner, 1), t(columns, inner, 2), normal({ columns }, 3, dtype) }
  end, { n = 2, true, activation ~= "none" }, { ["function"] = activation }, flops)
  product(label "input gradient", "matmul", function()
    return { n = 2, t(rows, columns, 4), t(columns, inner, 2) }
  end, { n = 1, true }, {}, flops)
  product(label "weight and bias gradient", "linear_weight_grad", function()
    return { n = 2, t(rows, columns, 4), t(rows, inner, 1) }
  end, { n = 2, true, true }, {}, flops)
  if activation == "none" then return end
  product(label "gradient through " .. activation, "linear_input_grad", function()
    return { n = 3, t(rows, inner, 5), t(inner, columns, 6), t(rows, columns, 7) }
  end, { n = 1, true }, { ["function"] = activation }, flops)
end

local width = common.size(768, 16)
for _, dtype in ipairs { "bf16", "f16", "f32" } do
  layer("qkv", dtype, width, 3 * width, "none")
  layer("projection", dtype, width, width, "none")
  layer("up", dtype, width, 4 * width, "gelu_tanh")
  layer("down", dtype, 4 * width, width, "none")
end
layer("head", "bf16", width, common.size(50304, 128), "none")

-- The products of 8 experts whose shares of the rows are as 1 to 8, and of a batch with equal shares.
local function experts(dtype, inner, columns)
  local label, flops = function(what) return ("experts %s %s"):format(dtype, what) end, 2 * rows * inner * columns
  local list = { 0 }
  for e = 1, 8 do list[e + 1] = math.floor(rows * e * (e + 1) / 72) end
  local function bounds() return gm.tensor(list, { dtype = "i64" }) end
  local function weights() return normal({ 8, columns, inner }, 2, dtype) end
  product(label "forward", "grouped_matmul", function()
    return { normal({ rows, inner }, 1, dtype), weights(), bounds(), normal({ 8, columns }, 3, dtype) }
  end, { true }, { transpose_b = true }, flops)
  product(label "input gradient", "grouped_matmul", function()
    return { n = 4, normal({ rows, columns }, 4, dtype), weights(), bounds() }
  end, { true }, {}, flops)
  product(label "weight and bias gradient", "grouped_weight_grad", function()
    return { normal({ rows, columns }, 4, dtype), normal({ rows, inner }, 1, dtype), bounds() }
  end, { true, true }, {}, flops)
  product(label "batch forward", "matmul", function()
    return { normal({ 8, rows / 8, inner }, 1, dtype), weights() }
  end, { true }, { transpose_b = true }, flops)
end
for _, dtype in ipairs { "bf16", "f32" } do experts(dtype, width, 4 * width) end
if failed > 0 then error(("%d of these failed"):format(failed), 0) end
