-- lua_share.lua - how much of a training step is spent outside kernels: Lua, bindings, tape, shapes.
--
--     ganymede run spec/bench/lua_share.lua --threads 1
--     ganymede run spec/bench/lua_share.lua --threads 1 --set width=64 --set depth=4 --set batch=128
--
-- A vision transformer (width 192, depth 12, 3 heads, 50 tokens; batch 32), f32, AdamW, clipping, by the
-- trainer with a LossHook. The same steps are then run on the meta device by a process of its own: there
-- kernels do nothing, and what remains is the share of everything else. Processor time is measured, not the
-- clock, so that other work on the machine matters less; hence one thread. With n threads kernels take 1 / n of
-- the time and the rest stays, so the share is nearly n times as large.
local gm = require "ganymede"
local core = require "ganymede.core"

local config = gm.launch { width = 192, depth = 12, heads = 3, batch = 32, steps = 30, epochs = 1 }

local meta = not core.device().has_data

-- One batch, again and again: reading data is no part of this.
local function loader(x, y, steps)
  local at = 0
  return {
    length = function() return steps end,
    set_epoch = function() at = 0 end,
    seek = function(_, step) at = step end,
    next = function()
      at = at + 1
      if at <= steps then return x, y end
    end,
  }
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Processor seconds of a step, the median; the first three steps allocate and do not count.
local function measure()
  local model = gm.models.VisionTransformer {
    image_size = 28, patch_size = 4, channels = 1, classes = 10,
    width = config.width, depth = config.depth, heads = config.heads,
  }
  local x = gm.normal({ config.batch, 1, 28, 28 }, { seed = 1 }):keep()
  local y = gm.zeros({ config.batch }, { dtype = "i64" }):keep()
  local engine, train = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, clip_grad_norm = 1,
    optimizer = { type = "AdamW", lr = 1e-4 }, train_dataloader = loader(x, y, config.steps),
  }
  local trainer, seconds, before = gm.trainer(engine), {}, os.clock()
  trainer.sink = function() end
  trainer.on_step = function(t)
    local now = os.clock()
    if t.step > 3 then seconds[#seconds + 1] = now - before end
    before = now
  end
  trainer:fit { train_dataloader = train, epochs = 1, hooks = { { type = "LossHook" } } }
  return median(seconds), core.counters().calls / config.steps
end

local function in_child()
  local words = { "/proc/self/exe", "check", "spec/bench/lua_share.lua" }
  for _, key in ipairs { "width", "depth", "heads", "batch", "steps" } do
    words[#words + 1] = ("--set %s=%d"):format(key, config[key])
  end
  local exe = io.popen("readlink /proc/" .. core.process().pid .. "/exe"):read "*l"
  words[1] = "'" .. exe .. "'"
  local text = io.popen("cd '" .. GANYMEDE_ROOT .. "' && " .. table.concat(words, " ") .. " 2>&1"):read "*a"
  return tonumber(text:match "on meta ([%d.e+-]+) s") or error("the run on meta failed:\n" .. text)
end

local step, calls = measure()
if meta then
  print(("on meta %.6g s"):format(step))
else
  local rest = in_child()
  print(("a step  %.2f ms on %d thread(s), %.0f kernel calls"):format(step * 1e3, core.device().threads, calls))
  print(("outside kernels  %.3f ms, %.1f us a call"):format(rest * 1e3, rest / calls * 1e6))
  print(("share  %.2f %%; with 2 threads about %.2f %%"):format(100 * rest / step,
    100 * rest / (rest + (step - rest) / 2)))
end
