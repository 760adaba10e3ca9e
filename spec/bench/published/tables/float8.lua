-- The rows in FP8 of NVIDIA's DGX Cloud recipes (dgx_cloud.lua has those in bf16, and what the settings mean), and of
-- its summary of NeMo: github.com/NVIDIA/dgxc-benchmarking A @143b90d, B @85380ff, NVIDIA/NeMo-Framework-Launcher
-- examples/README.md (24; its tokens a second and GPU as seconds of a step). Dense layers multiply in 8 bits with
-- Transformer Engine, and their parameters are gathered in 8 bits (A: fp8_params; B: fp8_params of
-- nemo/collections/llm/recipes/precision/mixed_precision.py). 24 says neither that nor grad_sync_dtype, whose default
-- is f32 (examples/training/llama/h100/llama2_7b_fp8.sh). That scales come from earlier steps (software.lua,
-- delayed_scales) was added after these rows had been predicted without it. Rows of 24 with stages do not say their
-- chunks and are left out. Rates of products of 8 bits in dgx_h100 are assumed: twice those of bf16.
local shapes = {
  ["15B"] = { type = "GPT", vocabulary = 256000, width = 6144, depth = 32, heads = 48, kv_heads = 8, mlp_ratio = 4,
    tied = false, bias = false },
  ["340B"] = { type = "GPT", vocabulary = 256000, width = 18432, depth = 96, heads = 96, kv_heads = 8, mlp_ratio = 4,
    tied = false, bias = false },
  ["175B"] = { type = "GPT", vocabulary = 51200, width = 12288, depth = 96, heads = 96 },
  ["7B"] = { type = "Llama", vocabulary = 32000, width = 4096, depth = 32, heads = 32, hidden = 11008, tied = false },
}

local flash_2 = { attention = { h100 = 0.35 } }
local more = { ["A 340B"] = flash_2, ["A 175B"] = flash_2, ["B 15B"] = { square_apart = true },
  ["B 340B"] = { square_apart = true }, ["24 7B"] = { gathers_8_bits = false } }
local bf16_states = { "float8=true", "optimizer.state_dtype=bf16", "optimizer.master_weights=false" }
local buckets = { ["A 15B"] = 100, ["A 340B"] = 50, ["A 175B"] = 220, ["B 15B"] = 256, ["B 340B"] = 256, -- megabytes
  ["24 7B"] = 125 }

local measured = [[
A 15B 16 64 4 1 1 4 4096 2.08; B 15B 16 64 2 1 1 2 4096 1.98; B 15B 256 1024 2 1 1 2 4096 2.00;
A 340B 128 32 8 8 12 1 4096 3.16; A 340B 512 128 8 8 12 1 4096 3.26; B 340B 256 64 8 8 12 1 4096 2.93;
B 340B 2048 512 8 8 12 1 4096 3.05; A 175B 512 1024 4 8 12 1 2048 6.44; A 175B 2048 4096 4 8 12 1 2048 6.24;
24 7B 8 128 1 1 1 1 4096 4.057]]

local rows = {}
for release, size, gpus, batch, tensor, pipeline, chunks, micro, sequence, seconds in measured:gmatch
  "(%w+) (%w+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d.]+)" do
  local n = tonumber
  local data, model = n(gpus) / (n(tensor) * n(pipeline)), { sequence_length = n(sequence) }
  for key, value in pairs(shapes[size]) do model[key] = value end
  rows[#rows + 1] = { name = ("%s %s, %s GPUs, tp %s pp %s v %s mbs %s"):format(release, size, gpus, tensor, pipeline,
      chunks, micro), sequence = n(sequence), data = data, tensor = n(tensor), pipeline = n(pipeline),
    chunks = n(chunks), micro = n(micro), model = model, pieces = batch / (data * micro), zero = 1,
    gradients = release == "24" and "f32" or "auto", bucket = buckets[release .. " " .. size],
    how = more[release .. " " .. size],
    overrides = release == "A" and size == "340B" and bf16_states or { "float8=true" }, seconds = n(seconds) }
end

return { machine = "dgx_h100", software = "nemo_float8", rows = rows, calibrate = {} }
