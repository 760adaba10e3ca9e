-- kernels_gemm.lua - matrix products and attention, timed on demand by kernels_gemm.py and kernels_attention.py.
--
-- Reads lines from standard input and answers each with the seconds of one run, the mean of `times`:
--   gemm M N K OP times                        OP: NN, NT, TN or TT: is a, is b transposed
--   attention B S H D causal times             forward and backward, causal 0 or 1, f32
local gm = require "ganymede"
local core = require "ganymede.core"

local kept = {} -- inputs of the last case: making them is not timed
local function prepare(key, make)
  if kept.key ~= key then kept = { key = key, tensors = make() } end
  return kept.tensors
end

local function normal(shape, seed) return gm.normal(shape, { seed = seed }):keep() end

local function timed(times, run)
  local from = core.now()
  for _ = 1, times do run() end
  return (core.now() - from) / times
end

local function gemm(m, n, k, op, times)
  local ta, tb = op:sub(1, 1) == "T", op:sub(2, 2) == "T"
  local t = prepare(table.concat({ m, n, k, op }, " "), function()
    local a, b = ta and { k, m } or { m, k }, tb and { n, k } or { k, n }
    return { a = normal(a, 1), b = normal(b, 2), c = normal({ m, n }, 3) }
  end)
  local attrs = { transpose_a = ta, transpose_b = tb }
  return timed(times, function() core.run_op("cpu", "matmul", { n = 2, t.a, t.b }, { n = 1, t.c }, attrs) end)
end

local function attention(b, s, h, d, causal, times)
  local t = prepare(table.concat({ b, s, h, d }, " "), function()
    local all = {}
    for i, name in ipairs { "q", "k", "v", "g", "o", "dq", "dk", "dv" } do all[name] = normal({ b, s, h, d }, i) end
    all.lse = normal({ b, h, s }, 9)
    return all
  end)
  local attrs = { causal = causal == 1 }
  return timed(times, function()
    core.run_op("cpu", "attention", { n = 5, t.q, t.k, t.v }, { n = 2, t.o, t.lse }, attrs)
    local inputs, outputs = { n = 8, t.q, t.k, t.v, nil, t.o, t.lse, t.g }, { n = 3, t.dq, t.dk, t.dv }
    core.run_op("cpu", "attention_grad", inputs, outputs, attrs)
  end)
end

for line in io.lines() do
  local m, n, k, op, times = line:match "^gemm (%d+) (%d+) (%d+) (%u%u) (%d+)$"
  local seconds
  if m then
    seconds = gm.scope(gemm, tonumber(m), tonumber(n), tonumber(k), op, tonumber(times))
  else
    local numbers = {}
    for v in assert(line:match "^attention (.*)$", "kernels_gemm.lua: cannot read: " .. line):gmatch "%d+" do
      numbers[#numbers + 1] = tonumber(v)
    end
    seconds = gm.scope(attention, unpack(numbers))
  end
  print(("%.9f"):format(seconds))
  io.stdout:flush()
end
