-- MosaicML's llm-foundry (PyTorch FSDP): MPT on H100 80 GB and A100 (80 and 40 GB, 1,600 Gb/s a node).
-- github.com/mosaicml/llm-foundry scripts/train/benchmarking/README.md, shapes from scripts/train/yamls/pretrain.
-- GPT with FlashAttention, hidden width of MLPs 4 h, vocabulary 50,368, tied. Z: stage of ZeRO (full shard 3). The
-- network of the H100 rows is not stated. Tokens a second and GPU. The table's mixed precision says how gradients are
-- summed: PURE in bf16, DEFAULT in f32 (composer's get_mixed_precision since 2023-10-10; before, DEFAULT summed in
-- bf16, and the source does not say which release ran). FSDP scatters the gradients of a block at once (fsdp_wrap_fn).
local shapes = { ["1b"] = { 24, 2048, 16 }, ["3b"] = { 32, 2560, 20 }, ["7b"] = { 32, 4096, 32 },
  ["13b"] = { 40, 5120, 40 }, ["30b"] = { 48, 7168, 56 }, ["70b"] = { 80, 8192, 64 } }

local measured = [[
h100 70b 2048 512 8 1 3 r 1007; h100 70b 2048 256 8 1 3 r 1035; h100 30b 2048 512 8 1 3 r 2115;
h100 30b 2048 128 8 1 3 r 2199; h100 13b 2048 128 16 1 3 r 5080; h100 7b 2048 512 6 1 3 - 9670;
h100 7b 2048 128 6 1 3 - 10475; h100 1b 2048 512 12 1 2 - 39837; h100 1b 2048 128 12 1 2 - 44123;
h100 70b 2048 64 8 4 3 r 1039; h100 30b 8192 8 1 21 3 r 1384; h100 30b 2048 32 14 3 3 r 2308;
h100 13b 32768 8 1 3 3 r 1976; h100 13b 2048 64 2 1 3 - 4800; h100 7b 65536 8 1 2 3 r 1956;
h100 7b 8192 8 8 2 3 r 6935; h100 7b 2048 8 6 1 3 - 10643; h100 3b 2048 16 10 3 3 - 24142;
h100 1b 2048 64 20 1 3 - 44402; h100 1b 2048 8 14 1 3 - 45455;
a100 70b 2048 32 2 16 3 r 373; a100 30b 2048 8 3 21 3 r 916; a100 13b 2048 8 2 3 3 - 2262;
a100 7b 65536 8 1 2 3 r 1013; a100 3b 2048 8 10 2 3 - 10811; a100 70b 2048 128 4 1 3 r 376;
a100 30b 2048 128 6 1 3 r 865; a100 30b 2048 32 4 1 3 r 857; a100 13b 2048 32 14 1 3 r 1998;
a100 13b 2048 8 4 16 3 r 1668; a100 1b 2048 16 8 1 3 - 19085]]

-- GPU, model, GPUs and sequences of those that sum gradients in bf16.
local pure = { ["a100 70b 32 2"] = true, ["a100 70b 128 4"] = true, ["a100 30b 128 6"] = true, ["a100 30b 32 4"] = true,
  ["a100 13b 32 14"] = true, ["a100 13b 8 4"] = true, ["a100 1b 16 8"] = true }

local rows = {}
for gpu, size, sequence, gpus, micro, pieces, zero, again, tokens in measured:gmatch
  "(%w+) (%w+) (%d+) (%d+) (%d+) (%d+) (%d) (%S) (%d+)" do
  local depth, width, heads = unpack(shapes[size])
  local where = ("%s %s %s %s"):format(gpu, size, gpus, micro)
  rows[#rows + 1] = { name = ("%s %s seq %d, %d GPUs, %d x %d, stage %d%s"):format(gpu, size, sequence, gpus, micro,
      pieces, zero, again == "r" and ", recomputation" or ""),
    machine = gpu == "h100" and "dgx_h100" or "dgx_a100_80g", sequence = tonumber(sequence), data = tonumber(gpus),
    tensor = 1, pipeline = 1, micro = tonumber(micro), pieces = tonumber(pieces), zero = tonumber(zero),
    recompute = again == "r" and "block" or nil,
    model = { type = "GPT", vocabulary = 50368, sequence_length = tonumber(sequence), width = width, depth = depth,
      heads = heads, bias = false },
    gradients = pure[where] and "auto" or "f32", bucket = 12 * width ^ 2 * (pure[where] and 2 or 4) / 2 ^ 20,
    seconds = micro * pieces * sequence / tokens }
end

return { machine = "dgx_h100", software = "fsdp_2023", rows = rows, calibrate = { 12, 18, 22, 25 } }
