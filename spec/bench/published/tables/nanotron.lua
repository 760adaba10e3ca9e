-- nanotron, Llama of 1.2 billion parameters on H100 80 GB, nodes of 8 (AWS p5, inferred): a grid of settings.
-- huggingface.co/nanotron/old_bench and bench_cluster, log_metrics.csv of each; settings from
-- github.com/huggingface/bench_cluster @e987dd5, @6cd3c38 (July 2024). Seconds: the median of steps 8-12; GiB: the peak
-- of the rank that logs, whose stage is not stated. 1,024 sequences of 4,096 tokens a step. Gradients are summed in f32
-- (accumulate_grad_in_fp32), in DDP's buckets of 25 MB of bf16, which are 50 MB then (optim/gradient_accumulator.py of
-- nanotron's branch bench_cluster). In October the authors changed the versions of what this ran with and wrote "fix
-- throughput issue with proper version of torch/triton/flash" (bench_cluster @f55b5e5): what slowed it is not known.
-- The source is odd in some rows: `slow` ones had a slow phase, and the time of step 7 of the same run is given; one
-- (8 GPUs 1 8 1 32: 92.1 s) has no other and is left out. Labels of out of memory cover illegal accesses too.
local model = { type = "Llama", vocabulary = 50257, sequence_length = 4096, width = 2048, depth = 24, heads = 32,
  kv_heads = 32, hidden = 4096, tied = true }

local function row(data, tensor, pipeline, micro, seconds, gib, about)
  return { name = ("dp %d tp %d pp %d mbs %d"):format(data, tensor, pipeline, micro), model = model, sequence = 4096,
    data = data, tensor = tensor, pipeline = pipeline, micro = micro, pieces = 1024 / (data * micro), zero = 1,
    gradients = "f32", bucket = 50, how = { waits = true }, -- tp_linear_async_communication: False
    seconds = seconds, gib = gib, about = about, out_of_memory = seconds == nil }
end

return { machine = "dgx_h100", software = "nanotron", rows = {
  row(4, 2, 1, 8, 15.8, 42.6), row(2, 4, 1, 8, 18.8, 25.2), row(1, 4, 2, 8, 20.3, 25.1), row(2, 1, 4, 4, 22.0, 38.1),
  row(2, 1, 4, 2, 22.4, 21.3), row(1, 1, 8, 4, 29.2, 43.0), row(4, 4, 1, 16, 10.4, 46.4), row(1, 4, 4, 4, 17.6, 12.8),
  row(1, 2, 8, 8, 55.0, 44.7), row(2, 1, 8, 4, 28.1, 41.5), row(16, 4, 1, 4, 2.85, 12.8),
  row(16, 4, 1, 16, 2.41, 45.8, "slow"), row(32, 2, 1, 8, 2.13, 41.3, "slow"), row(1, 8, 8, 16, 18.9, 34.0),
  row(4, 2, 1, 16), row(1, 8, 1, 64), row(2, 1, 4, 16), row(1, 2, 8, 32), row(8, 1, 8, 8), row(2, 8, 4, 64),
}, calibrate = { 1 } }
