-- step.lua - whole training steps, timed on demand by step.py, which alternates with PyTorch.
--
-- Reads lines from standard input: "<case> <steps>" runs that many steps of a case and answers with the
-- seconds of each; the end of input ends it. Cases: gpt64 (GPT-2 124M, 4 x 64 tokens), gpt1024 (1 x 1024),
-- vit (width 192, depth 12, 3 heads, batch 32, 49 patches + 1). f32, AdamW, no dropout, random data.
local gm = require "ganymede"
local core = require "ganymede.core"

local function gpt(batch, length)
  local model = gm.models.GPT { vocabulary = 50257 }
  local tokens = gm.uniform({ batch, length + 1 }, { low = 0, high = 50256, seed = 1 }):to("i64")
  return model, tokens:narrow(2, 1, length):contiguous():keep(), tokens:narrow(2, 2, length):contiguous():keep()
end

local make = {
  gpt64 = function() return gpt(4, 64) end,
  gpt1024 = function() return gpt(1, 1024) end,
  vit = function()
    local model = gm.models.VisionTransformer {
      image_size = 28, patch_size = 4, channels = 1, classes = 10, width = 192, depth = 12, heads = 3,
    }
    return model, gm.normal({ 32, 1, 28, 28 }, { seed = 1 }):keep(),
      gm.uniform({ 32 }, { low = 0, high = 10, seed = 2 }):to("i64"):keep()
  end,
}

local cases = {}
local function case(name)
  if not cases[name] then
    local model, x, y = make[name]()
    local parameters = model:materialize():parameters()
    cases[name] = {
      model = model, x = x, y = y, parameters = parameters, loss = gm.nn.CrossEntropyLoss {},
      optimizer = core.optimizer("adam", parameters, { eps = 1e-8, weight_decay = 0.01, decoupled = true }),
    }
  end
  return cases[name]
end

local function step(c)
  core.begin_step()
  core.zero_grad(c.parameters)
  local loss = c.loss(c.model(c.x), c.y)
  loss:backward()
  c.optimizer:step { lr = 1e-4 }
  return loss:item()
end

for line in io.lines() do
  local name, steps = line:match "^(%w+) (%d+)$"
  local c, out = case(name), {}
  for i = 1, tonumber(steps) do
    local from = core.now()
    gm.scope(step, c)
    out[i] = ("%.6f"):format(core.now() - from)
  end
  print(table.concat(out, " "))
  io.stdout:flush()
end
