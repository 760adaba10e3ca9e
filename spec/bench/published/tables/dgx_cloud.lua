-- NVIDIA DGX Cloud recipes (NeMo on Megatron-Core), DGX H100, the rows in bf16. github.com/NVIDIA/dgxc-benchmarking: A
-- @143b90d (NeMo 24.09, 24.11), B @85380ff (May 2025). Distributed optimizer (ZeRO 1) that overlaps, in buckets of 40
-- million gradients (core/distributed, its default), tensor ranks with sequence parallelism. Rows with context
-- parallelism (8B, 70B and 405B of Llama) are left out: its order of the ranks has no counterpart here. A runs nothing
-- again but attention of the 340B (selective), which FlashAttention makes needless. Releases differ by up to 7 % in
-- the same setting.
local shapes = {
  ["15B"] = { vocabulary = 256000, width = 6144, depth = 32, heads = 48, kv_heads = 8, mlp_ratio = 4, tied = false,
    bias = false },
  ["340B"] = { vocabulary = 256000, width = 18432, depth = 96, heads = 96, kv_heads = 8, mlp_ratio = 4, tied = false,
    bias = false },
  ["175B"] = { vocabulary = 51200, width = 12288, depth = 96, heads = 96 },
}

local measured = [[
A 15B 16 64 4 1 1 4 4096 2.83; B 15B 16 64 2 1 1 2 4096 2.66; B 15B 256 1024 2 1 1 2 4096 2.68;
A 340B 128 32 8 8 12 1 4096 4.61; A 340B 512 128 8 8 12 1 4096 4.70; B 340B 256 64 8 8 12 1 4096 4.36;
B 340B 2048 512 8 8 12 1 4096 4.43; A 175B 512 1024 4 8 12 1 2048 9.09; A 175B 2048 4096 4 8 12 1 2048 9.02]]

local rows = {}
for release, size, gpus, batch, tensor, pipeline, chunks, micro, sequence, seconds in measured:gmatch
  "(%u) (%w+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d.]+)" do
  local n = tonumber
  local data, model = n(gpus) / (n(tensor) * n(pipeline)), { type = "GPT", sequence_length = n(sequence) }
  for key, value in pairs(shapes[size]) do model[key] = value end
  rows[#rows + 1] = { name = ("%s %s, %s GPUs, tp %s pp %s v %s mbs %s"):format(release, size, gpus, tensor, pipeline,
      chunks, micro), sequence = n(sequence), data = data, tensor = n(tensor), pipeline = n(pipeline),
    chunks = n(chunks), micro = n(micro), model = model, pieces = batch / (data * micro), zero = 1,
    bucket = 160, seconds = n(seconds) }
end

return { machine = "dgx_h100", software = "megatron_core", rows = rows, calibrate = { 1 } }
