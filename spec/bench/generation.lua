-- generation.lua - writing tokens with a pretrained model, timed on demand by generation.py, which alternates with
-- llama.cpp and transformers.
--
-- Reads lines from standard input; the end of input ends it. MODEL names the folder of the model.
--   KIND BATCH TOKENS   KIND: f32, bf16, int8 or int4. One call of gm.generate with BATCH prompts of 128 tokens, to
--                       which TOKENS are added -> prompt tokens a second, added tokens a second of all rows together,
--                       the bytes of weights and cache that a step reads, and its seconds of CPU time
--   triad               -> bytes a second of y += a x over 256 MB, the best of 5: what memory gives these threads
local gm = require "ganymede"
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"

local PROMPT = 128
local models = {}

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

local function generate(kind, batch, tokens)
  local model, prompts = model_of(kind), {}
  for i = 1, batch do
    prompts[i] = {}
    for k = 1, PROMPT do prompts[i][k] = (k * 37 + i * 101) % 1000 + 100 end
  end
  local began = os.clock()
  gm.generate(model, { prompts = prompts, max_tokens = 1 })
  local middle = os.clock()
  local r = gm.generate(model, { prompts = prompts, max_tokens = tokens })[1]
  local seconds = (os.clock() - middle - (middle - began)) / (tokens - 1)
  return r.prefill_tokens_per_second, r.tokens_per_second * batch, bytes_of(model, batch, tokens), seconds
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
  if kind then print(("%.3f %.3f %.0f %.6f"):format(generate(kind, tonumber(batch), tonumber(tokens))))
  else print(("%.0f"):format(triad())) end
  io.stdout:flush()
end
error("the end of input", 0)
