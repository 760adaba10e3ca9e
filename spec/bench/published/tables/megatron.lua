-- Megatron-LM on A100 80 GB (Selene: DGX A100 with 8 x 200 Gb/s). GPT, hidden width of MLPs 4 h, vocabulary 51,200,
-- 2,048 tokens, f16, no ZeRO.
-- weak_*: Narayanan et al. 2021 (arXiv:2104.04473) table 1, from github.com/NVIDIA/Megatron-LM
-- images/cases_april2021.png and examples/sc21/run_table_1.sh: recomputation of blocks. TFLOP/s counts what runs again:
-- 96 B s L h^2 (1 + s / 6h + V / 16 L h) operations a step, and the seconds below follow from that.
-- full_*: Korthikanti et al. 2022 (arXiv:2205.05198) table 5, from github.com/calculon-ai/calculon validation/seqsel:
-- recomputation of blocks, no sequence parallelism, one data rank. Megatron-LM had sums beside products and gradients
-- that are added in products by then (core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
local function row(name, depth, width, heads, tensor, pipeline, chunks, micro, batch, data, seconds)
  return { name = name, sequence = 2048, data = data, tensor = tensor, pipeline = pipeline, chunks = chunks,
    model = { type = "GPT", vocabulary = 51200, sequence_length = 2048, width = width, depth = depth, heads = heads },
    micro = micro, pieces = batch / (data * micro), recompute = "block", sequence_parallel = false, overlap = false,
    gradients = "auto",
    seconds = seconds }
end

local function full(name, ...)
  local out = row("full " .. name, ...)
  out.how = { waits = false, sums = false }
  return out
end

local function weak(name, depth, width, heads, gpus, tensor, pipeline, chunks, micro, batch, teraflops)
  local s, v = 2048, 51200
  local flops = 96 * batch * s * depth * width ^ 2 * (1 + s / (6 * width) + v / (16 * depth * width))
  return row("weak " .. name, depth, width, heads, tensor, pipeline, chunks, micro, batch, gpus / (tensor * pipeline),
    flops / (gpus * teraflops * 1e12))
end

return { machine = "dgx_a100_80g", software = "megatron_2021", calibrate = { 1 }, rows = {
  weak("1.7B", 24, 2304, 24, 32, 1, 1, 1, 16, 512, 137), weak("3.6B", 30, 3072, 32, 64, 2, 1, 1, 16, 512, 138),
  weak("18.4B", 40, 6144, 48, 256, 8, 1, 1, 8, 1024, 135), weak("39.1B", 48, 8192, 64, 512, 8, 2, 1, 4, 1536, 138),
  weak("145.6B", 80, 12288, 96, 1536, 8, 8, 2, 2, 2304, 148),
  weak("310.1B", 96, 16384, 128, 1920, 8, 16, 2, 1, 2160, 155),
  weak("1008B", 128, 25600, 160, 3072, 8, 64, 1, 1, 3072, 163),
  full("22B", 48, 6144, 64, 8, 1, 1, 4, 4, 1, 1.42), full("175B", 96, 12288, 96, 8, 8, 3, 1, 64, 1, 18.13),
  full("530B", 105, 20480, 128, 8, 35, 3, 1, 280, 1, 49.05),
  full("1008B", 128, 25600, 160, 8, 64, 1, 1, 512, 1, 94.42) } }
