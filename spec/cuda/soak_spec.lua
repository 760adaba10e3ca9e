--- A thousand steps on a GPU without growth (#slow): what the driver, the pool, page-locked memory, the Lua heap and
--- the process hold after step 1,000 is what they held after step 100, on one rank and on two that share the device.
--
-- Step 100 and not step 1: losses are read, epochs end and checkpoints are written in between, which fills the pool's
-- classes once. The Lua heap is measured after a full collection and without a compiler, whose traces come when they
-- come; it may grow by 24 KiB: a trainer keeps its losses, 8 bytes each in a list that doubles.
-- luacheck: globals finally
local emulation = require "spec.cuda.emulation"
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"

if emulation.lacks(pending) then return end

local recipe = [[
jit.off()
local core = require "ganymede.core"
local names = { "live", "peak", "reserved", "pinned", "system_allocations" }
require("ganymede.hooks.base").class("Measure", {}, { after_train_iter = function(_, trainer)
  local step = trainer.step
  if step ~= 100 and step ~= 1000 then return end
  collectgarbage()
  collectgarbage()
  local memory, said = core.memory(), {}
  for i, name in ipairs(names) do said[i] = name .. " " .. memory[name] end
  said[#said + 1] = "driver_allocations " .. core.device_counts().allocations
  local list = io.popen("ls /proc/" .. core.process().pid .. "/fd")
  said[#said + 1] = "files " .. select(2, list:read("*a"):gsub("\n", ""))
  list:close()
  said[#said + 1] = "lua " .. math.floor(collectgarbage "count" * 1024)
  local file = assert(io.open(("held-%d-%d"):format(core.rank(), step), "w"))
  file:write(table.concat(said, "\n"), "\n")
  file:close()
end })
return {
  name = "soak", seed = 6,
  model = { type = "GPT", vocabulary = 256, sequence_length = 4, width = 8, depth = 1, heads = 1, dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 4, stride = 100 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 1e-3 },
  epochs = 100, clip_grad_norm = 1,
  hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 50, keep_last = 2, background = false },
            { type = "Measure" } },
}
]]

local function held(folder, rank, step)
  local values = {}
  for line in io.lines(("%s/held-%d-%d"):format(folder, rank, step)) do
    local name, value = line:match "^(%S+) (%S+)$"
    values[name] = tonumber(value)
  end
  return values
end

describe("a thousand steps on a GPU", function()
  for _, case in ipairs { { 1, {} }, { 2, {} }, { 2, { "parallel={pipeline=2}", "num_microbatches=2" } } } do
    local ranks, set = unpack(case)
    it(("hold what a hundred did: %d ranks %s #slow"):format(ranks, table.concat(set, " ")), function()
      local folder = shell.temporary_folder()
      finally(function() shell.remove(folder) end)
      local stats = job.run_in(folder, recipe, ranks, { steps = 1000, set = set, timeout = 900,
        flags = { "--device", "cuda", "--no-eval", "--out", "out" }, env = emulation.environment() })
      assert.equal(1000, #stats.loss)
      for rank = 0, ranks - 1 do
        local early, late = held(folder, rank, 100), held(folder, rank, 1000)
        assert.is_true(early.live > 0 and early.reserved >= early.live and early.driver_allocations > 0)
        assert.is_true(late.lua <= early.lua + 24 * 1024, ("Lua: %d bytes, then %d"):format(early.lua, late.lua))
        early.lua, late.lua = nil, nil
        assert.same(early, late)
      end
    end)
  end
end)
