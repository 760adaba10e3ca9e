-- offload.lua - a step of a GPT whose Adam states, gradients and parameters are in memory, and on a disk: seconds of it
-- beside the least that the disk can take.
--
--     [FOLDER=.] [WIDTH=512] [DEPTH=8] [STEPS=6] [ROUND=64] build/ganymede run spec/bench/offload.lua --threads 1
--
-- Floor: bytes read and written in a step, divided by what the disk moves in a second while one half is read and the
-- other written, measured in the same run by the same module. Hidden: the part of that time in which the program did
-- something else: 1 - (seconds waited) / floor. Medians of the steps behind the first two. ROUND: MiB of the ring.
local core = require "ganymede.core"
local gm = require "ganymede"
local held = require "ganymede.tensor.held"

local function setting(name, default) return tonumber(os.getenv(name)) or default end
local folder, width, depth, steps = os.getenv "FOLDER" or ".", setting("WIDTH", 512), setting("DEPTH", 8),
  setting("STEPS", 6)

local ring = setting("ROUND", 64) .. "M"

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function model_of()
  core.set_seed(1)
  return gm.models.GPT { vocabulary = 1024, sequence_length = 64, width = width, depth = depth, heads = width / 64 }
end

-- Seconds of whole steps and of their updates, bytes and seconds of the disk in a step.
local function measure(offload)
  local engine = gm.initialize { model = model_of(), criterion = { type = "CrossEntropyLoss" },
    optimizer = { type = "AdamW", lr = 1e-4 }, offload = offload }
  local all = gm.uniform({ 2, 65 }, { low = 0, high = 1023, seed = 1 }):to("i64"):keep()
  local whole, update, waited, read, written = {}, {}, {}, 0, 0
  for step = 1, steps do
    gm.scope(function()
      local before = engine:offloaded() or { waited_seconds = 0, read_bytes = 0, written_bytes = 0 }
      local begun = core.now()
      engine:zero_grad()
      engine:backward(engine:criterion(engine(all:narrow(2, 1, 64):contiguous()), all:narrow(2, 2, 64):contiguous()))
      local half = core.now()
      engine:step()
      local now, after = core.now(), engine:offloaded() or before
      if step <= 2 then return end
      whole[#whole + 1], update[#update + 1] = now - begun, now - half
      waited[#waited + 1] = after.waited_seconds - before.waited_seconds
      read, written = after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes
    end)
  end
  local memory = engine.optimizer:bytes() + (engine.tier and engine.tier:stats().ring_bytes or 0)
  for _, p in ipairs(engine.parameters) do memory = memory + held.bytes(p) + held.gradient_bytes(p) end
  return { step = median(whole), update = median(update), waited = median(waited), read = read, written = written,
    memory = memory }
end

local MIB = 2 ^ 20
local plain = measure(nil)
local write, read, both = core.disk_speed(folder, math.max(256 * MIB, plain.memory))
print(("disk: %.0f MiB/s written, %.0f read, %.0f both at once"):format(write / MIB, read / MIB, both / MIB))
print "on the disk   step s  update s  floor s  waited s  hidden  read MiB  written MiB  in memory MiB"
local function show(name, m)
  local floor = (m.read + m.written) / both
  print(("%-12s %7.3f %9.3f %8.3f %9.3f %6.0f%% %9.1f %12.1f %14.1f"):format(name, m.step, m.update, floor, m.waited,
    floor > 0 and 100 * math.max(0, 1 - m.waited / floor) or 0, m.read / MIB, m.written / MIB, m.memory / MIB))
end

local function on_disk(...)
  local offload = { disk = folder, ring = ring }
  for _, kind in ipairs { ... } do offload[kind] = "disk" end
  return measure(offload)
end

show("nothing", plain)
show("states", on_disk "optimizer")
show("gradients", on_disk "gradients")
show("parameters", on_disk "parameters")
show("all three", on_disk("optimizer", "gradients", "parameters"))
