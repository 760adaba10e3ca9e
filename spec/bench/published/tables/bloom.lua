-- BigScience's search for BLOOM's topology: 384 A100 80 GB, 48 nodes of 8 with 4 Omni-Path links of 100 Gb/s each.
-- github.com/bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md. Megatron-DeepSpeed, GPT, hidden
-- width of MLPs 4 h, vocabulary 250,880 (tied), 2,048 tokens, recomputation of blocks, ZeRO 1, 1F1B; 2,048 sequences a
-- step unless said. Seconds: of step 2; GB: of the fullest node. Phases: a: f16; b: f16, after a repair of the nodes
-- (1-5 % faster); c: bf16 with gradients in f32. Stages share layers alone (a, b: `78 layers over 12 stages are split
-- 7...7,1`), or layers, the embedding and the head (c). Rows on fewer than 384 GPUs are left out here.
-- Jobs of this size ran with CUDA_LAUNCH_BLOCKING=1, because they hung without it (the source, "dealing with JZ
-- hanging on the large model": with 320 GPUs always; tr11-176B-ml.slurm). Phase c sums f32 gradients whole over the
-- data ranks (DeepSpeed @fb0dc00f8, bf16_optimizer.py and pipe/engine.py). Both were added on 2026-11-27, after rows
-- had been seen.
-- The source is odd: rows of its table of ZeRO 0 and 1 are swapped in part and left out (published figures that
-- contradict each other), and clocks are not stated.
local measured = [[
a 72 14336 64 4 8 12 1 2048 143.3 29; a 72 14336 64 4 8 12 2 2048 134.0 37; a 72 14336 64 4 8 12 8 2048 129.3 69;
a 72 14336 64 8 8 6 1 2048 139.8 38; a 72 14336 64 8 8 6 4 2048 121.5 56; a 72 14336 112 8 8 6 4 2048 138.7 53;
a 84 13824 64 8 8 6 4 2048 130.3 56; a 96 12288 64 8 8 6 2 2048 136.7 -; b 72 14336 64 8 8 6 4 2048 114.1 55;
b 72 14336 64 8 8 6 6 2016 123.6 66; b 72 14336 64 4 8 12 4 2048 117.1 49; b 72 14336 64 4 8 12 2 2048 128.8 -;
b 72 14336 64 12 8 4 2 2016 125.5 53; b 72 14336 64 12 8 4 4 2016 114.8 59; b 72 14336 64 48 8 1 1 2016 OOM -;
b 72 14336 64 8 4 12 4 2048 111.9 60; b 72 14336 64 16 4 6 4 2048 117.1 75; b 72 14336 64 16 4 6 2 2048 111.7 57;
b 72 14336 64 32 2 6 1 2048 OOM -; b 72 14336 64 8 2 24 1 2048 119.5 44; b 72 14336 64 4 4 24 1 2048 130.6 -;
b 96 12288 64 8 1 48 1 2048 142.2 58; b 78 13824 64 8 4 12 2 2048 103.5 48; b 78 13824 64 8 4 12 4 2048 106.7 -;
b 84 13312 64 8 4 12 2 2048 103.8 -; b 84 13312 64 8 4 12 4 2048 113.2 -; b 78 13824 96 8 4 12 2 512 35.8 -;
b 78 13824 96 8 4 12 2 1536 83.1 -; c 106 12288 64 8 4 12 2 2048 116.5 67; c 106 12288 96 8 4 12 4 2048 120.3 79;
c 100 12288 64 8 8 6 2 2048 139.7 61; c 100 12288 64 8 8 6 4 2048 121.0 72; c 82 13312 64 8 4 12 2 2048 104.5 63;
c 82 13312 64 8 4 12 4 2048 104.8 74; c 70 14336 64 8 4 12 2 2048 102.0 59; c 70 14336 112 8 4 12 2 2048 104.5 59;
c 82 14336 128 8 4 12 2 2048 OOM -]]

-- Layers that count (phase c: and the embedding and the head) shared by stages as DeepSpeed does it, with the embedding
-- and the head at the ends -> sections of each stage.
local function split_of(depth, stages, counts_ends)
  local left, out = depth + (counts_ends and 2 or 0), {}
  local most = math.ceil(left / stages)
  for i = 1, stages do
    out[i] = math.min(most, left)
    left = left - out[i]
  end
  if not counts_ends then out[1], out[stages] = out[1] + 1, out[stages] + 1 end
  return out
end

local rows = {}
for phase, depth, width, heads, data, tensor, pipeline, micro, batch, seconds, gigabytes in measured:gmatch
  "(%l) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) ([%d-]+)" do
  local n = tonumber
  depth, width, heads, data, tensor, pipeline = n(depth), n(width), n(heads), n(data), n(tensor), n(pipeline)
  rows[#rows + 1] = { name = ("%s %d/%d/%d dp %d tp %d pp %d mbs %s"):format(phase, depth, width, heads, data, tensor,
      pipeline, micro), sequence = 2048, data = data, tensor = tensor, pipeline = pipeline, micro = n(micro),
    model = { type = "GPT", vocabulary = 250880, sequence_length = 2048, width = width, depth = depth, heads = heads },
    pieces = batch / (data * micro), zero = 1, recompute = "block", sequence_parallel = false, overlap = false,
    split = pipeline > 1 and split_of(depth, pipeline, phase == "c") or nil,
    gradients = phase == "c" and "f32" or "auto", how = phase == "c" and { sums = 10, whole_sums = true } or nil,
    seconds = n(seconds),
    gib = n(gigabytes) and n(gigabytes) * 1e9 / 2 ^ 30, out_of_memory = seconds == "OOM" }
end

return { machine = "dgx_a100_80g", network = { bandwidth = 11.25e9, ranks_per_port = 2 },
  software = "megatron_deepspeed_blocking", rows = rows,
  calibrate = {} }
