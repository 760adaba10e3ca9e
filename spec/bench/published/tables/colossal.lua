-- Colossal-AI on H200: models like Llama 2 of 7 and 70 billion parameters, ZeRO 2 over all ranks, 4,096 tokens.
-- github.com/hpcaitech/ColossalAI README.md. Sequences a second; the source counts what runs again, so blocks do. Its
-- rows on B200 contradict themselves (2 x 2 x 4 ranks on 8 devices) and are left out. Memory: MiB as printed. Gradients
-- are summed in their own dtype, in buckets of 12 Mi (communication_dtype = None and reduce_bucket_size_in_m of
-- LowLevelZeroPlugin).
local function row(name, gpus, micro, depth, width, heads, kv_heads, hidden, rate, mebibytes)
  return { name = name, sequence = 4096, data = gpus, tensor = 1, pipeline = 1, micro = micro, pieces = 1, zero = 2,
    recompute = "block", gradients = "auto", bucket = 24, seconds = gpus * micro / rate, gib = mebibytes / 1024,
    model = { type = "Llama", vocabulary = 32000, sequence_length = 4096, width = width, depth = depth, heads = heads,
      kv_heads = kv_heads, hidden = hidden, tied = false } }
end

return { machine = "dgx_h200", software = "colossal_ai", calibrate = {}, rows = {
  row("7B, 8 H200, 36 a rank", 8, 36, 32, 4096, 32, 32, 11008, 17.13, 119040),
  row("70B, 16 H200, 48 a rank", 16, 48, 80, 8192, 64, 8, 28672, 3.27, 150032) } }
