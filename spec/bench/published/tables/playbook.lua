-- nanotron v0.5, the best setting found for each model and number of nodes (Ultra-Scale Playbook), H100, nodes of 8.
-- github.com/huggingface/nanotron docs/benchmark_summary.svg, scripts/scaling_benchmarks.py. 4,096 tokens, 256
-- sequences a step, vocabulary 131,072, as many key heads as heads, gated MLPs. The source gives the utilization of a
-- peak of 989 TFLOP/s (inferred) with attention counted whole; the seconds below follow from it. Gradients are summed
-- as those of nanotron.lua.
local shapes = { ["1.34B"] = { 16, 2048, 32, 8192, true }, ["3.57B"] = { 28, 3072, 32, 8192, true },
  ["8.86B"] = { 32, 4096, 32, 14336, false }, ["80B"] = { 80, 8192, 64, 28672, false } }

local measured = [[
1.34B 1 4 1 2 16 4 1 44.32 41.76; 3.57B 1 4 1 2 32 2 1 46.68 56.87; 1.34B 2 8 1 2 32 1 1 41.59 19.45;
3.57B 2 8 1 2 16 2 1 43.77 54.31; 1.34B 4 16 1 2 16 1 1 38.38 16.39; 3.57B 4 16 1 2 8 2 1 40.39 53.33;
80B 4 1 8 4 256 1 0 14.76 65.97; 1.34B 8 32 1 2 8 1 1 32.47 16.27; 8.86B 8 32 1 2 8 1 1 39.50 59.09;
80B 8 1 4 16 256 1 0 30.65 63.07; 3.57B 16 32 4 1 1 8 0 34.59 66.20; 8.86B 16 16 8 1 2 8 0 36.33 66.88;
1.34B 32 64 4 1 1 4 0 23.20 19.57; 3.57B 32 64 4 1 1 4 0 26.77 38.98; 80B 32 4 4 16 64 1 1 30.75 64.21;
1.34B 64 128 2 2 1 2 1 5.25 8.40; 8.86B 64 128 4 1 1 2 0 18.69 57.76; 80B 64 32 16 1 4 2 1 17.79 53.46]]

-- Operations of a step as the source counts them: 6 a weight and token, and attention in full.
local function flops_of(depth, width, hidden)
  local weights = depth * (4 * width ^ 2 + 3 * width * hidden) + 131072 * width
  return 256 * 4096 * (6 * weights + 12 * depth * width * 4096)
end

local rows = {}
for size, nodes, data, tensor, pipeline, pieces, micro, zero, utilization, gigabytes in measured:gmatch
  "(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) ([%d.]+) ([%d.]+)" do
  local n = tonumber
  local depth, width, heads, hidden, tied = unpack(shapes[size])
  rows[#rows + 1] = { name = ("%s, %s nodes, dp %s tp %s pp %s, %s x %s"):format(size, nodes, data, tensor, pipeline,
      pieces, micro), sequence = 4096, data = n(data), tensor = n(tensor), pipeline = n(pipeline), micro = n(micro),
    pieces = n(pieces), zero = n(zero), gradients = "f32", bucket = 50,
    model = { type = "Llama", vocabulary = 131072, sequence_length = 4096, width = width, depth = depth, heads = heads,
      kv_heads = heads, hidden = hidden, tied = tied },
    seconds = flops_of(depth, width, hidden) / (nodes * 8 * 989e12 * n(utilization) / 100),
    gib = n(gigabytes) * 1e9 / 2 ^ 30 }
end

return { machine = "dgx_h100", software = "nanotron", rows = rows, calibrate = {} }
