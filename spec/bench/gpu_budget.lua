-- gpu_budget.lua - the least that a training step of GPT-2 124M can cost on an H200: for each op its calls, launches
-- and library calls, bytes and operations, and the time that these take at what the chip is known to reach. Counted on
-- the meta device, which has no data: limits, not measurements.
--
--     ganymede check spec/bench/gpu_budget.lua
--
-- Sizes and rates are the table below. The rates are those that others have reached with copies (GB/s read and written)
-- and with bf16 products of 8192 (TFLOP/s); attention is held to that of products.
local gm = require "ganymede"
local core = require "ganymede.core"
local op_launches = require "op_launches"

local config = {
  batch = 64, length = 1024, depth = 12, width = 768, heads = 12, dropout = 0, bandwidth = 4300, products = 790,
}

gm.set_default_dtype "bf16"
local engine = gm.initialize {
  model = gm.models.GPT {
    vocabulary = 50257, sequence_length = config.length, width = config.width, depth = config.depth,
    heads = config.heads, dropout = config.dropout,
  },
  optimizer = { type = "AdamW", lr = 1e-3 }, clip_grad_norm = 1,
}
local x = gm.full({ config.batch, config.length }, 0, { dtype = "i64" })
local y = gm.full({ config.batch, config.length }, 0, { dtype = "i64" })

-- CrossEntropyLoss as a GPU makes it, where the gradient comes with the loss. Other devices make it in backward.
local function mean_loss(logits, target)
  local by = gm.full({}, 1 / target:numel(), { dtype = "f32" })
  return gm.ops.sum(gm.ops.cross_entropy(logits, target, { scale = by })) * by
end

local function step()
  engine:announce(y:numel(), 1)
  engine:zero_grad()
  engine:backward(mean_loss(engine(x), y))
  engine:step()
end

engine:train()
gm.scope(step) -- afterwards there are gradients and moments
local before = core.counters().by_op
gm.scope(step)

-- -> calls, bytes, operations, of which products
local function made(name, op)
  local old = before[name] or { calls = 0, bytes = 0, flops = 0, product_flops = 0 }
  return op.calls - old.calls, op.bytes - old.bytes, op.flops - old.flops, op.product_flops - old.product_flops
end

local rows = {}
for name, op in pairs(core.counters().by_op) do
  local calls, bytes, flops, products = made(name, op)
  local asks = op_launches[name] or {}
  local by_bytes, by_products = bytes / (config.bandwidth * 1e9), products / (config.products * 1e12)
  if calls > 0 then
    rows[#rows + 1] = {
      name = name, calls = calls, bytes = bytes, flops = flops, launches = calls * (asks.launches or 0),
      libraries = calls * (asks.libraries or 0), seconds = math.max(by_bytes, by_products),
      limit = by_products > by_bytes and "products" or "bytes",
    }
  end
end
table.sort(rows, function(a, b)
  if a.seconds ~= b.seconds then return a.seconds > b.seconds end
  return a.name < b.name
end)

local all = { name = "all", calls = 0, launches = 0, libraries = 0, bytes = 0, flops = 0, seconds = 0, limit = "" }
local function show(row)
  print(("| %s | %d | %d | %d | %.1f | %.2f | %.2f | %s |"):format(row.name, row.calls, row.launches, row.libraries,
    row.bytes / 1e9, row.flops / 1e12, row.seconds * 1e3, row.limit))
end
print "| op | calls | launches | library calls | GB | TFLOP | ms at least | bound by |"
print "|---|---:|---:|---:|---:|---:|---:|---|"
for _, row in ipairs(rows) do
  show(row)
  for _, key in ipairs { "calls", "launches", "libraries", "bytes", "flops", "seconds" } do
    all[key] = all[key] + row[key]
  end
end
show(all)
print(("\n%d tokens a step: %.0f tokens/s at most, if every op ran at its limit and nothing beside it")
  :format(config.batch * config.length, config.batch * config.length / all.seconds))
os.exit(0) -- there is no recipe that `check` could look into
