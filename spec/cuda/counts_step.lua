-- counts_step.lua - one steady step of a GPT in bf16, as a program: what each phase of it asks of the device, and which
-- ops it runs, as one line of JSON. counts_spec.lua runs it and compares with formulas.
--
--     ganymede run spec/cuda/counts_step.lua --device cuda --set depth=2 --set dropout=0.1
local gm = require "ganymede"
local core = require "ganymede.core"
local json = require "ganymede.base.json"

local config = gm.launch {
  seed = 1, depth = 2, dropout = 0, batch = 2, length = 16, width = 64, heads = 2,
  vocabulary = 320, -- more than 256: its indices are sorted in two rounds, as those of a large one
}

gm.set_default_dtype "bf16"
local engine = gm.initialize {
  model = gm.models.GPT {
    vocabulary = config.vocabulary, sequence_length = config.length, width = config.width, depth = config.depth,
    heads = config.heads, dropout = config.dropout,
  },
  optimizer = { type = "AdamW", lr = 1e-3 },
  criterion = { type = "CrossEntropyLoss" },
  clip_grad_norm = 1,
}
local tokens = gm.uniform({ config.batch, config.length + 1 }, { high = config.vocabulary, dtype = "f32", seed = 1 })
  :to "i64"
local x = tokens:narrow(2, 1, config.length):contiguous():keep()
local y = tokens:narrow(2, 2, config.length):contiguous():keep()

local function now()
  local all = core.device_counts()
  for name, op in pairs(core.counters().by_op) do
    all[name], all[name .. ".bytes"] = op.calls, op.bytes
  end
  return all
end

local phases, before = {}, now()
local function ends(phase)
  local after, made = now(), {}
  for name, n in pairs(after) do
    if n ~= (before[name] or 0) then made[name] = n - (before[name] or 0) end
  end
  phases[phase], before = made, now()
end

engine:train()
for _ = 1, 3 do
  gm.scope(function()
    before = now()
    engine:announce(y:numel(), 1)
    engine:zero_grad()
    ends "start"
    local output = engine(x)
    ends "forward"
    local loss = engine:criterion(output, y)
    ends "loss"
    engine:backward(loss)
    ends "backward"
    engine:step()
    ends "update"
  end)
end
print(json.encode(phases))
