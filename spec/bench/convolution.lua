-- convolution.lua - convolutions, timed on demand by convolution.py.
--
-- Reads lines from standard input and answers each with the seconds of one run, the mean of `times`:
--   conv WHAT N C H W OUT KERNEL STRIDE PADDING GROUPS times     WHAT: forward, input or weight; square kernels, f32
--   gemm M N K times                                             a product a b' of these sizes
local core = require "ganymede.core"
local gm = require "ganymede"

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

local function gemm(m, n, k, times)
  local t = prepare(table.concat({ m, n, k }, " "), function()
    return { a = normal({ m, k }, 1), b = normal({ k, n }, 2), c = normal({ m, n }, 3) }
  end)
  return timed(times, function() core.run_op("cpu", "matmul", { n = 2, t.a, t.b }, { n = 1, t.c }, {}) end)
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

for line in io.lines() do
  local words, numbers = {}, {}
  for word in line:gmatch "%S+" do words[#words + 1] = word end
  for i = 2, #words do numbers[#numbers + 1] = tonumber(words[i]) end
  local seconds
  if words[1] == "gemm" then seconds = gm.scope(gemm, unpack(numbers))
  else seconds = gm.scope(conv, words[2], unpack(numbers)) end
  print(("%.9f"):format(seconds))
  io.stdout:flush()
end
