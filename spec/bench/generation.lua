-- generation.lua - writing tokens with a pretrained model, timed on demand by generation.py, which alternates with
-- llama.cpp and transformers.
--
-- Reads lines from standard input; the end of input ends it. MODEL names the folder of the model.
--   KIND BATCH TOKENS   KIND: f32, bf16, int8 or int4. One call of gm.generate with BATCH prompts of 128 tokens, to
--                       which TOKENS are added -> prompt tokens a second, added tokens a second of all rows together,
--                       the seconds of CPU time of a step and of the prompts, the bytes of weights and cache that a
--                       step reads, and the operations of the products that the prompts take
--   triad               -> bytes a second of y += a x over 256 MB, the best of 5: what memory gives these threads
--   gemm ROWS           -> operations a second of CPU time of a product of so many rows with 1536 x 576 weights in f32,
--                       the best of 9
local gm = require "ganymede"
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"

local PROMPT = 128
local models, tokenizer = {}, nil

local function model_of(kind)
  if not models[kind] then
    local few = kind:find "^int"
    gm.set_default_dtype(few and "f32" or kind)
    models[kind] = gm.pretrained(os.getenv "MODEL", { quantize = few and kind or nil }):eval():materialize()
  end
  return models[kind]
end

-- What a step reads: all weights, where a table is also the head, and the keys and values halfway through.
local function bytes_of(model, batch, tokens)
  local sum, opt, size = 0, model.opt, 4
  for _, p in ipairs(model:named_parameters()) do
    local bytes = dtypes.bytes[p.tensor:dtype()]
    sum, size = sum + p.tensor:numel() * bytes, p.tensor:dim() == 1 and bytes or size
  end
  return sum + batch * (PROMPT + tokens / 2) * opt.depth * 2 * opt.kv_heads * (opt.width / opt.heads) * size
end

-- The operations of the products of the prompts: all weights for each token, the head for the last one.
local function operations_of(model, batch)
  local weights, table_of_tokens = 0, model.opt.vocabulary * model.opt.width
  for _, p in ipairs(model:declared()) do
    local shape = p.entry.shape
    if #shape == 2 and not p.tied then weights = weights + shape[1] * shape[2] end
  end
  return 2 * batch * (PROMPT * (weights - table_of_tokens) + table_of_tokens)
end

local function generate(kind, batch, tokens)
  local model, prompts = model_of(kind), {}
  for i = 1, batch do
    prompts[i] = {}
    for k = 1, PROMPT do prompts[i][k] = (k * 37 + i * 101) % 1000 + 100 end
  end
  local first, last
  tokenizer = tokenizer or gm.tokenizer(os.getenv "MODEL")
  local began = os.clock()
  local r = gm.generate(model, { prompts = prompts, max_tokens = tokens, tokenizer = tokenizer, on_text = function()
    last = os.clock()
    first = first or last
  end })[1]
  return r.prefill_tokens_per_second, r.tokens_per_second * batch, (last - first) / (tokens - 1), first - began,
    bytes_of(model, batch, tokens), operations_of(model, batch)
end

local function gemm(rows)
  local best, times = math.huge, math.ceil(1024 / rows)
  gm.set_default_dtype "f32"
  gm.scope(gm.no_grad, function()
    local x, w = gm.ones { rows, 576 }, gm.ones { 1536, 576 }
    for _ = 1, 9 do
      local began = os.clock()
      for _ = 1, times do core.run_op(core.device().name, "linear", { n = 3, x, w }, { n = 2, true }) end
      best = math.min(best, (os.clock() - began) / times)
    end
  end)
  return 2 * rows * 576 * 1536 / best
end

local function triad()
  local n, best = 2 ^ 26, math.huge
  return gm.scope(gm.no_grad, function()
    local x, y = gm.ones { n }, gm.ones { n }
    for _ = 1, 5 do
      local began = core.now()
      core.run_op(core.device().name, "axpy", { x }, { y }, { alpha = 0.5 })
      best = math.min(best, core.now() - began)
    end
    return 12 * n / best
  end)
end

for line in io.lines() do
  local kind, batch, tokens = line:match "^(%S+) (%d+) (%d+)$"
  local rows = line:match "^gemm (%d+)$"
  if kind then print(("%.3f %.3f %.6f %.6f %.0f %.0f"):format(generate(kind, tonumber(batch), tonumber(tokens))))
  elseif rows then print(("%.0f"):format(gemm(tonumber(rows))))
  else print(("%.0f"):format(triad())) end
  io.stdout:flush()
end
error("the end of input", 0)
