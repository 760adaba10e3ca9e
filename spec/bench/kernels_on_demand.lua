-- kernels_on_demand.lua - matrix products, attention and convolutions, timed on demand by kernels_gemm.py,
-- kernels_attention.py and convolution.py.
--
-- Reads lines from standard input and answers each with the seconds of one run, the mean of `times`:
--   gemm M N K OP times                        OP: NN, NT, TN or TT: is a, is b transposed
--   attention B S H D causal times             forward and backward, causal 0 or 1
--   conv WHAT N C H W OUT KERNEL STRIDE PADDING GROUPS times     WHAT: forward, input or weight; square kernels
-- All in f32, or in what --set dtype=bf16 names.
local gm = require "ganymede"
local core = require "ganymede.core"

local config = gm.launch { dtype = "f32" }

local kept = {} -- inputs of the last case: making them is not timed
local function prepare(key, make)
  if kept.key ~= key then kept = { key = key, tensors = make() } end
  return kept.tensors
end

local function normal(shape, seed) return gm.normal(shape, { seed = seed, dtype = config.dtype }):keep() end

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
    all.lse = gm.zeros({ b, h, s }, { dtype = config.dtype == "f64" and "f64" or "f32" }):keep()
    return all
  end)
  local attrs = { causal = causal == 1 }
  return timed(times, function()
    core.run_op("cpu", "attention", { n = 6, t.q, t.k, t.v }, { n = 2, t.o, t.lse }, attrs)
    local inputs, outputs = { n = 9, t.q, t.k, t.v, nil, t.o, t.lse, t.g }, { n = 4, t.dq, t.dk, t.dv }
    core.run_op("cpu", "attention_grad", inputs, outputs, attrs)
  end)
end

local function conv(what, n, c, h, w, out, kernel, stride, padding, groups, times)
  local t = prepare(table.concat({ n, c, h, w, out, kernel, stride, padding, groups }, " "), function()
    local function after(size) return math.floor((size + 2 * padding - kernel) / stride) + 1 end
    return { x = normal({ n, c, h, w }, 1), w = normal({ out, c / groups, kernel, kernel }, 2), b = normal({ out }, 3),
             y = normal({ n, out, after(h), after(w) }, 4), dx = normal({ n, c, h, w }, 5),
             dw = normal({ out, c / groups, kernel, kernel }, 6), db = normal({ out }, 7) }
  end)
  local function over(size) return (size + 2 * padding - kernel) % stride end
  local attrs = { stride = { stride, stride }, pad_low = { padding, padding }, pad_high = { padding, padding },
                  groups = groups, kernel = what == "weight" and { kernel, kernel } or nil,
                  output_padding = what == "input" and { over(h), over(w) } or nil }
  local op, inputs, outputs = "convolution", { n = 3, t.x, t.w, t.b }, { n = 2, t.y }
  if what == "input" then op, inputs, outputs = "transposed_convolution", { n = 3, t.y, t.w }, { n = 2, t.dx } end
  if what == "weight" then
    op, inputs, outputs = "convolution_weight_grad", { n = 2, t.y, t.x }, { n = 2, t.dw, t.db }
  end
  return timed(times, function() core.run_op("cpu", op, inputs, outputs, attrs) end)
end

local kinds = { gemm = gemm, attention = attention, conv = conv }

for line in io.lines() do
  local words = {}
  for word in line:gmatch "%S+" do words[#words + 1] = tonumber(word) or word end
  local fn = kinds[words[1]]
  if not fn then error("kernels_on_demand.lua: cannot read: " .. line, 0) end
  print(("%.9f"):format(gm.scope(fn, unpack(words, 2))))
  io.stdout:flush()
end
