-- step.lua - whole training steps, timed on demand by step.py and step_images.py, which alternate with PyTorch.
--
-- Reads lines from standard input; the end of input ends it.
--   <case> <steps>   runs that many steps -> the seconds of each
--   flops <case>     -> the operations of the matrix products and convolutions of one step
--   products         -> operations a second of a product of 1024 x 1024 x 1024 on all threads, the best of 9
--   graph <setting>  -> 0: steps of cases that come from here on are recorded (true) or not (false; so it begins)
--   dtype <name>     -> 0: the parameters of cases that come from here on (f32; so it begins)
--   profile <case>   -> a line for each op that took half a percent of three steps or more: milliseconds of a step,
--                       calls, GB/s and TFLOP/s; then an empty line
-- Cases: gpt64 (GPT-2 124M, 4 x 64 tokens), gpt1024 (1 x 1024), llama (the shape of SmolLM2-135M, 4 x 256 tokens), vit
-- (width 192, depth 12, 3 heads, batch 32, 49 patches + 1), vitsmall (width 64, depth 4, 4 heads, batch 64, 16
-- patches, of which the mean is taken), resnet32 (ResNet-18, stem of CIFAR, 32 images of 32 x 32), resnet224
-- (ResNet-18, 8 images of 224 x 224), unet (width 64, levels 1, 2, 2, attention in the second, 8 images of 32 x 32).
-- AdamW, with masters in f32 where parameters have 16 bits, no dropout, random data. Steps are those of
-- engine:train_step, as in a run.
local gm = require "ganymede"
local core = require "ganymede.core"
local profile_lines = require "ganymede.observe.profile_lines"

local function text(model, vocabulary, batch, length)
  local numbers = gm.uniform({ batch, length + 1 }, { low = 0, high = vocabulary - 1, seed = 1, dtype = "f32" })
  local tokens = numbers:to("i64")
  return model, tokens:narrow(2, 1, length):contiguous():keep(), tokens:narrow(2, 2, length):contiguous():keep()
end

local function gpt(...) return text(gm.models.GPT { vocabulary = 50257 }, 50257, ...) end

local function vit(batch, options)
  options.image_size, options.channels, options.classes = 28, 1, 10
  return gm.models.VisionTransformer(options), gm.normal({ batch, 1, 28, 28 }, { seed = 1 }):keep(),
    gm.uniform({ batch }, { low = 0, high = 10, seed = 2, dtype = "f32" }):to("i64"):keep()
end

local make = {
  gpt64 = function() return gpt(4, 64) end,
  gpt1024 = function() return gpt(1, 1024) end,
  llama = function()
    local model = gm.models.Llama { vocabulary = 49152, width = 576, hidden = 1536, depth = 30, heads = 9,
      kv_heads = 3 }
    return text(model, 49152, 4, 256)
  end,
  vit = function() return vit(32, { patch_size = 4, width = 192, depth = 12, heads = 3 }) end,
  vitsmall = function() return vit(64, { patch_size = 7, width = 64, depth = 4, heads = 4, pool = "mean" }) end,
}

local function pictures(batch, side, classes)
  return gm.normal({ batch, 3, side, side }, { seed = 1 }):keep(),
    gm.uniform({ batch }, { low = 0, high = classes, seed = 2, dtype = "f32" }):to("i64"):keep()
end

function make.resnet32()
  return gm.models.ResNet { depth = 18, stem = "cifar", classes = 10 }, pictures(32, 32, 10)
end

function make.resnet224() return gm.models.ResNet { depth = 18, classes = 1000 }, pictures(8, 224, 1000) end

function make.unet()
  local model = gm.models.UNet { channels = 3, width = 64, multipliers = { 1, 2, 2 }, blocks = 1, attention = { 2 },
    heads = 4 }
  local times = gm.uniform({ 8 }, { low = 0, high = 1000, seed = 3, dtype = "f32" }):to("i64"):keep()
  local x = pictures(8, 32, 1)
  return model, { x, times }, gm.normal({ 8, 3, 32, 32 }, { seed = 4 }):keep(), gm.nn.MSELoss {}
end

local cases, graph = {}, false
local function case(name)
  if not cases[name] then
    local model, x, y, loss = make[name]()
    local engine = gm.initialize { model = model, criterion = loss or gm.nn.CrossEntropyLoss {}, graph = graph,
      optimizer = { type = "AdamW", lr = 1e-4, eps = 1e-8, weight_decay = 0.01 } }
    cases[name] = { engine = engine, x = x, y = y, samples = y:size(1) }
  end
  return cases[name]
end

local function step(c)
  c.engine:train_step { { c.x, c.y }, samples = c.samples, tokens = 0, pieces = 1 }
  return c.engine.last_loss
end

local function seconds(name, steps)
  local c, out = case(name), {}
  for i = 1, steps do
    local from = core.now()
    gm.scope(step, c)
    out[i] = ("%.6f"):format(core.now() - from)
  end
  return table.concat(out, " ")
end

local function flops(name)
  local before = core.counters().product_flops
  gm.scope(step, case(name))
  return ("%.0f"):format(core.counters().product_flops - before)
end

local function products()
  local n, best = 1024, math.huge
  return gm.scope(gm.no_grad, function()
    local x, w = gm.ones { n, n }, gm.ones { n, n }
    for _ = 1, 9 do
      local from = core.now()
      core.run_op(core.device().name, "linear", { n = 3, x, w }, { n = 2, true })
      best = math.min(best, core.now() - from)
    end
    return ("%.0f"):format(2 * n ^ 3 / best)
  end)
end

-- What ops cost, as `ganymede run --profile` measures it.
local function profile(name)
  local c, steps, from, out = case(name), 3, core.now(), {}
  core.profile_start()
  for _ = 1, steps do gm.scope(step, c) end
  local all, lines = core.now() - from, profile_lines.by_op(core.profile_stop())
  out[1] = ("%9.2f ms a step"):format(all / steps * 1000)
  for _, l in ipairs(lines) do
    if l.seconds > all / 200 then
      out[#out + 1] = ("%9.2f %5.0f %7.1f GB/s %7.3f TFLOP/s  %s %s"):format(l.seconds / steps * 1000, l.calls / steps,
        l.bytes / l.seconds / 1e9, l.flops / l.seconds / 1e12, l.op, l.about or "")
    end
  end
  return table.concat(out, "\n") .. "\n"
end

local commands = { flops = flops, profile = profile }
function commands.graph(setting) graph = setting == "true" end

function commands.dtype(name) core.set_default_dtype(name) end

for line in io.lines() do
  local name, steps = line:match "^(%w+) (%d+)$"
  local command, of = line:match "^(%a+) (%w+)$"
  print(name and seconds(name, tonumber(steps)) or line == "products" and products()
    or commands[command] and commands[command](of) or "0")
  io.stdout:flush()
end
