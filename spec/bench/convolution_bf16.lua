-- convolution_bf16.lua - convolutions of bf16 by several tables of kernels in turns, and f32 beside them.
--
--     ganymede run spec/bench/convolution_bf16.lua --threads 1 --set rounds=3
--     ganymede run spec/bench/convolution_bf16.lua --threads 1 --set "tables={'cpu-avx512','cpu-amx'}"
--
-- The first table also computes in f32. Prints the CPU time of a call in ms, forward, gradient of the image, gradient
-- of the weights, the least of the rounds of six calls each. On a busy machine believe the ratios only.
-- docs/performance_kernels.md has figures.
local gm = require "ganymede"
local core = require "ganymede.core"

local config = gm.launch { rounds = 3, tables = { "cpu-avx512", "cpu-avx512bf16" } }

-- images, channels, height and width, results, kernel, stride, padding
local shapes = {
  { 32, 64, 32, 128, 3, 2, 1 }, { 4, 3, 224, 64, 7, 2, 3 }, { 4, 256, 14, 512, 3, 2, 1 }, { 8, 256, 28, 64, 1, 1, 0 },
  { 8, 3, 224, 768, 16, 16, 0 }, { 8, 32, 56, 32, 5, 1, 2 }, { 32, 64, 32, 128, 1, 2, 0 }, { 32, 3, 32, 64, 3, 1, 1 },
  { 32, 64, 32, 64, 3, 1, 1 }, { 4, 128, 28, 128, 3, 1, 1 },
}

-- -> the three calls of a convolution: op, inputs, outputs, attributes
local function calls(dtype, n, c, s, out, kernel, stride, padding)
  local after, over = math.floor((s + 2 * padding - kernel) / stride) + 1, (s + 2 * padding - kernel) % stride
  local function of(shape, seed) return gm.normal(shape, { seed = seed, dtype = dtype }) end
  local x, w, y = of({ n, c, s, s }, 1), of({ out, c, kernel, kernel }, 2), of({ n, out, after, after }, 3)
  local function attrs(more)
    local all = { stride = { stride, stride }, pad_low = { padding, padding }, pad_high = { padding, padding } }
    for name, value in pairs(more) do all[name] = value end
    return all
  end
  return {
    { "convolution", { n = 3, x, w, false }, { n = 2, of({ n, out, after, after }, 4), false }, attrs {} },
    { "transposed_convolution", { n = 3, y, w, false }, { n = 2, of({ n, c, s, s }, 5), false },
      attrs { output_padding = { over, over } } },
    { "convolution_weight_grad", { n = 2, y, x }, { n = 2, of({ out, c, kernel, kernel }, 6), false },
      attrs { kernel = { kernel, kernel } } },
  }
end

local function seconds(backend, call)
  local from = os.clock()
  for _ = 1, 6 do core.run_op(backend, unpack(call)) end
  return (os.clock() - from) / 6
end

local ways = { { "f32", config.tables[1] } }
for _, name in ipairs(config.tables) do ways[#ways + 1] = { "bf16", name } end

local function compare(...)
  local least, words = {}, { table.concat({ ... }, " ") }
  local all = { f32 = calls("f32", ...), bf16 = calls("bf16", ...) }
  for _ = 1, config.rounds do
    for i, way in ipairs(ways) do
      least[i] = least[i] or { math.huge, math.huge, math.huge }
      for c = 1, 3 do least[i][c] = math.min(least[i][c], seconds(way[2], all[way[1]][c])) end
    end
  end
  for i, way in ipairs(ways) do
    words[#words + 1] = ("%s on %s %.2f, %.2f, %.2f ms"):format(way[1], way[2], least[i][1] * 1e3, least[i][2] * 1e3,
      least[i][3] * 1e3)
  end
  print(table.concat(words, "   "))
end

for _, way in ipairs(ways) do
  if not core.has_backend(way[2]) then error("this machine, or this build, lacks the table " .. way[2], 0) end
end
for _, shape in ipairs(shapes) do gm.scope(compare, unpack(shape)) end
