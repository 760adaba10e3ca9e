-- Megatron-DeepSpeed on A100, nodes of 8 with 800 Gb/s each: the measured rows of vTrain (Bang et al., MICRO 2024).
-- github.com/VIA-Research/vTrain data/ground_truth_multi.csv; settings from config/validation/multi. GPT, hidden width
-- of MLPs 4 h, vocabulary 50,257, 2,048 tokens, recomputation of blocks, 1F1B, gradients summed at the end (no
-- buckets). Not stated: precision (taken as 16 bits), stage of ZeRO (taken as 0), memory. 16 tensor ranks cross nodes.
local sizes = { ["3.6"] = { 30, 3072, 32, 512 }, ["18.4"] = { 40, 6144, 48, 1024 }, ["39.1"] = { 48, 8192, 64, 1536 },
  ["175"] = { 96, 12288, 96, 1536 } }

local measured = [[
3.6 1 64 1 8 3.57; 3.6 1 64 1 4 3.64; 3.6 1 64 1 2 3.70; 3.6 2 32 1 16 3.94; 3.6 2 32 1 2 4.26; 3.6 4 16 1 16 4.49;
3.6 4 16 1 8 4.63; 3.6 4 16 1 4 4.76; 3.6 1 32 2 2 4.03; 3.6 4 16 1 2 6.23; 3.6 8 8 1 64 9.84; 3.6 8 8 1 32 4.97;
3.6 8 8 1 8 5.18; 3.6 8 8 1 4 5.62; 3.6 16 4 1 32 10.58; 3.6 16 4 1 16 10.72; 3.6 16 4 1 4 11.96; 3.6 16 4 1 2 13.47;
18.4 8 32 1 16 10.51; 18.4 8 32 1 4 9.93; 18.4 4 32 2 8 10.86; 18.4 4 32 2 4 10.95; 18.4 2 32 4 4 10.82;
18.4 1 32 8 4 12.38; 18.4 8 8 4 2 10.93; 18.4 8 4 8 8 11.03; 18.4 16 16 1 2 20.41; 18.4 8 4 8 32 16.24;
39.1 4 32 4 2 13.88; 39.1 2 16 16 2 23.75; 39.1 4 32 4 4 15.63; 39.1 4 16 8 2 16.07; 39.1 4 16 8 3 17.61;
39.1 4 8 16 2 14.53; 39.1 4 16 8 4 17.41; 39.1 4 32 4 6 18.53; 39.1 8 32 2 8 15.21; 39.1 8 32 2 4 14.76;
39.1 8 32 2 3 14.85; 39.1 4 8 16 3 15.02; 39.1 4 8 16 4 15.59; 39.1 8 16 4 2 14.71; 39.1 8 16 4 3 14.83;
39.1 8 16 4 4 14.75; 39.1 8 8 8 2 15.00; 39.1 8 16 4 8 15.81; 39.1 8 8 8 4 14.97; 39.1 4 8 16 6 20.04;
39.1 8 16 4 12 17.18; 39.1 1 32 16 3 19.99; 39.1 2 32 8 6 23.06; 39.1 8 4 16 3 16.36; 39.1 8 4 16 4 15.94;
39.1 8 4 16 6 16.23; 39.1 8 8 8 12 18.00; 39.1 4 16 8 12 20.61; 39.1 8 4 16 12 18.57; 39.1 4 8 16 12 27.81;
39.1 8 4 16 24 24.17; 175 4 8 16 2 54.26; 175 4 4 32 2 53.91; 175 4 4 32 2 53.94; 175 2 8 32 2 57.41;
175 4 8 16 4 57.72; 175 8 8 8 3 56.18; 175 8 4 16 2 56.32; 175 8 8 8 4 58.24; 175 8 4 16 3 55.68;
175 8 2 32 2 58.56; 175 8 2 32 3 57.32; 175 8 4 16 6 60.52; 175 4 4 32 6 66.63; 175 8 2 32 6 62.64]]

local rows = {}
for size, tensor, data, pipeline, micro, seconds in measured:gmatch "([%d.]+) (%d+) (%d+) (%d+) (%d+) ([%d.]+)" do
  local depth, width, heads, batch = unpack(sizes[size])
  tensor, data, pipeline, micro = tonumber(tensor), tonumber(data), tonumber(pipeline), tonumber(micro)
  rows[#rows + 1] = { name = ("%sB tp %d dp %d pp %d mbs %d"):format(size, tensor, data, pipeline, micro),
    model = { type = "GPT", vocabulary = 50257, sequence_length = 2048, width = width, depth = depth, heads = heads },
    sequence = 2048, data = data, tensor = tensor, pipeline = pipeline, micro = micro,
    pieces = batch / (data * micro), recompute = "block", sequence_parallel = false, overlap = false,
    gradients = "auto",
    seconds = tonumber(seconds) }
end

return { machine = "dgx_a100_80g", network = { bandwidth = 11.25e9 }, software = "megatron_2021", rows = rows,
  calibrate = { 1, 8, 13, 20, 29, 45, 68 } }
