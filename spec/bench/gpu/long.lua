-- long.lua - a thousand steps of a small GPT: does anything grow? Looked at after a hundred and at the end: bytes
-- and blocks of the device, allocations from the driver, the process's memory and open files, Lua's heap.
--
--     ganymede run spec/bench/gpu/long.lua --device cuda --no-eval
--
-- With -n 2 and more the ranks share the device. The trap: the collector's own rhythm moves Lua's heap by a megabyte.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local common = require "spec.bench.gpu.common"
local core = require "ganymede.core"
local hooks = require "ganymede.hooks.base"

local steps = common.size(1000, 30)
local early = common.size(100, 10) -- the graph of a step, and its memory, are there by then

local function files_open()
  local list = io.popen "ls /proc/$PPID/fd 2>/dev/null | wc -l"
  local n = tonumber(list:read "*l")
  list:close()
  return n
end

local function look()
  core.synchronize()
  collectgarbage()
  collectgarbage()
  local memory, calls = core.memory(), core.device_counts() or {}
  local status = io.open "/proc/self/status"
  local resident = tonumber((status:read "*a"):match "VmRSS:%s*(%d+)") * 1024
  status:close()
  return { live = memory.live, reserved = memory.reserved, pinned = memory.pinned, taken = memory.system_allocations,
    allocations = calls.allocations, resident = resident, files = files_open(), lua = collectgarbage "count" * 1024 }
end

local first
local Watch = hooks.class("Watch", nil, { needs_output = false })

function Watch.after_train_iter(_, trainer)
  if trainer.step == early then first = look() end
  if trainer.step ~= steps or core.rank() > 0 then return end
  local last, growth = look(), {}
  for name, value in pairs(first) do growth[name] = last[name] - value end
  common.write("long", { steps = steps - early, first = first, last = last, growth = growth,
    steps_per_second = trainer.step / trainer.seconds })
  common.say("%d steps: bytes held %+d, taken from the driver %+d, resident %+d, open files %+d", steps - early,
    growth.live, growth.allocations or growth.taken, growth.resident, growth.files)
end

return gm.recipe {
  name = "bench-long",
  parallel = { data = "auto" },
  model = { type = "GPT", vocabulary = common.size(2048, 64), sequence_length = common.size(256, 16),
            width = common.size(256, 32), depth = common.size(4, 2), heads = common.size(4, 2), dropout = 0.1 },
  data = { train = { type = "Synthetic", kind = "tokens", length = 16 * common.size(100, 10),
                     sequence_length = common.size(256, 16), vocab_size = common.size(2048, 64) }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, weight_decay = 0.1 },
  clip_grad_norm = 1.0, steps = steps, seed = 1, hooks = { { type = "Watch" }, { type = "AccuracyHook" } },
}
