-- NVIDIA DGX Cloud recipes (NeMo on Megatron-Core), DGX H100, the rows in bf16. github.com/NVIDIA/dgxc-benchmarking: A
-- @143b90d (NeMo 24.05 to 24.11: nemotron/ and nemo_megatron/, *.yaml and configure.sh), B @85380ff (May 2025, NeMo
-- @d2b2155).
-- * Distributed optimizer (ZeRO 1). Gradients are summed in bf16 (A: grad_sync_dtype; B: grad_reduce_in_fp32 = False of
--   nemo/collections/llm/recipes/nemotron4_*.py) in buckets of 100 MB (15B), 50 MB (340B) and 220 MB (175B) in A and of
--   128 Mi gradients in B (callbacks/megatron_comm_overlap.py). Gathers of parameters overlap with the next forward.
-- * Sequence parallelism of tensor ranks, hidden beside products (ub_tp_comm_overlap: configure.sh sets it for the 340B
--   in A, too). On an H100 in bf16, A turns off what hides gathers of forward of the 340B and the 175B
--   (NVTE_UB_SPLIT_AG of NeMo-Framework-Launcher's conditional_cfgs.py).
-- * A computes attention of the 340B and the 175B with FlashAttention 2 (NVTE_FUSED_ATTN=0), and the rest with cuDNN's.
-- * A's 340B holds moments in bf16 and no second copy of parameters (optim.dtype: bf16; NeMo's megatron_base_model.py:
--   store_params = False if the dtypes are equal).
-- * B's squared ReLU is two ops without a compiler (nemo/collections/llm/fn/activation.py; A's is compiled).
-- These were added on 2026-11-27, after rows had been predicted without them: f32 gradients, nothing hidden.
-- Rows with context parallelism (8B, 70B and 405B of Llama) are left out: its order of the ranks has no counterpart
-- here. A runs nothing again but attention of the 340B (selective), which FlashAttention makes needless. Releases
-- differ by up to 7 % in the same setting.
local shapes = {
  ["15B"] = { vocabulary = 256000, width = 6144, depth = 32, heads = 48, kv_heads = 8, mlp_ratio = 4, tied = false,
    bias = false },
  ["340B"] = { vocabulary = 256000, width = 18432, depth = 96, heads = 96, kv_heads = 8, mlp_ratio = 4, tied = false,
    bias = false },
  ["175B"] = { vocabulary = 51200, width = 12288, depth = 96, heads = 96 },
}

local flash_2 = { whole_gathers = true, attention = { h100 = 0.35 } }
local more = { ["A 340B"] = flash_2, ["A 175B"] = flash_2, ["B 15B"] = { square_apart = true },
  ["B 340B"] = { square_apart = true } }
local bf16_states = { "optimizer.state_dtype=bf16", "optimizer.master_weights=false" }
local buckets = { ["A 15B"] = 100, ["A 340B"] = 50, ["A 175B"] = 220, ["B 15B"] = 256, ["B 340B"] = 256 } -- megabytes

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
    gradients = "auto", bucket = buckets[release .. " " .. size],
    how = more[release .. " " .. size], overrides = release == "A" and size == "340B" and bf16_states or nil,
    seconds = n(seconds) }
end

return { machine = "dgx_h100", software = "nemo", rows = rows, calibrate = { 1 } }
