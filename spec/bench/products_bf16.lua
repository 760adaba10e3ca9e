-- products_bf16.lua - products of bf16 by two tables of kernels in turns: the one that widens them to f32, and the one
-- that multiplies them as they are (vdpbf16ps).
--
--     ganymede run spec/bench/products_bf16.lua --threads 1 --set rounds=7
--     ganymede run spec/bench/products_bf16.lua --threads 1 --set dtype=f32       what f32 does on the same machine
--
-- Shapes of GPT-2 124M (1,024 tokens) and Llama (width 2,048), and of generation (1 to 16 rows). Prints the CPU
-- time of a call, the least of the rounds, operations a second, and time before / time now. On a busy machine believe
-- the ratios only. docs/performance_kernels.md has figures.
local gm = require "ganymede"
local core = require "ganymede.core"

local config = gm.launch { rounds = 5, dtype = "bf16", before = "cpu-avx512", now = "cpu-avx512bf16", only = "" }

-- op, rows, columns, k: linear y = x w'; input dx = g w; weight dw = g' x; nn, nt: matmul
local shapes = {
  { "linear", 1024, 2304, 768 }, { "linear", 1024, 768, 768 }, { "linear", 1024, 3072, 768 },
  { "linear", 1024, 768, 3072 }, { "input", 1024, 768, 2304 }, { "input", 1024, 3072, 768 },
  { "weight", 3072, 768, 1024 }, { "weight", 2304, 768, 1024 }, { "nn", 1024, 1024, 1024 }, { "nt", 1024, 1024, 1024 },
  { "linear", 512, 2048, 2048 }, { "linear", 512, 5632, 2048 }, { "weight", 5632, 2048, 512 },
  { "linear", 128, 1536, 576 }, { "linear", 128, 576, 1536 }, { "nt", 64, 64, 64 }, { "nn", 1, 3072, 768 },
  { "linear", 17, 3072, 768 }, { "linear", 16, 3072, 768 }, { "linear", 4, 3072, 768 }, { "linear", 2, 3072, 768 },
  { "linear", 1, 3072, 768 }, { "linear", 3, 3072, 768 }, { "linear", 6, 3072, 768 }, { "linear", 1, 32768, 2048 },
  { "linear", 2, 32768, 2048 }, { "linear", 3, 32768, 2048 }, { "linear", 4, 32768, 2048 },
  { "linear", 6, 32768, 2048 }, { "linear", 16, 32768, 2048 },
}

local function make(a, b) return gm.normal({ a, b }, { seed = a + b, dtype = config.dtype }) end

-- -> operands, output, op, attributes
local function case(kind, m, n, k)
  local y = make(m, n)
  if kind == "linear" then return { make(m, k), make(n, k), n = 3 }, { y, false, n = 2 }, "linear", {} end
  if kind == "weight" then return { make(k, m), make(k, n), n = 2 }, { y, n = 1 }, "matmul", { transpose_a = true } end
  return { make(m, k), kind == "nt" and make(n, k) or make(k, n), n = 2 }, { y, n = 1 }, "matmul",
    { transpose_b = kind == "nt" }
end

local function seconds(backend, times, op, inputs, outputs, attrs)
  local from = os.clock()
  for _ = 1, times do core.run_op(backend, op, inputs, outputs, attrs) end
  return (os.clock() - from) / times
end

local function compare(kind, m, n, k)
  local inputs, outputs, op, attrs = case(kind, m, n, k)
  local times = math.max(1, math.floor(2e9 / (2 * m * n * k)))
  local before, now = math.huge, math.huge
  for _ = 1, config.rounds do
    before = math.min(before, seconds(config.before, times, op, inputs, outputs, attrs))
    now = math.min(now, seconds(config.now, times, op, inputs, outputs, attrs))
  end
  print(("%-6s %5d x %5d x %5d   before %9.3f ms %6.1f GFLOP/s   now %9.3f ms %6.1f GFLOP/s   %5.2f"):format(kind, m, n,
    k, before * 1e3, 2e-9 * m * n * k / before, now * 1e3, 2e-9 * m * n * k / now, before / now))
end

for _, shape in ipairs(shapes) do
  if table.concat(shape, " "):find(config.only, 1, true) then gm.scope(compare, unpack(shape)) end
end
