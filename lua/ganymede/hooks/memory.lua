--- MemoryHook prints a line with the bytes of tensors, now and at their peak, of the rank that has most, and with the
-- modules that hold most on rank 0. LogMemoryByEpochHook is another name of it.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local ranks = require "ganymede.job.ranks"

local MemoryHook = base.class("MemoryHook", {
  interval = { type = "integer", min = 1, default = 1, doc = "the number of epochs between two lines" },
  holders = { type = "integer", min = 0, max = 256, default = 3,
    doc = "the number of largest holders that the line names" },
}, { priority = 10, needs_output = false, needs_loss = false })

function MemoryHook.after_train_iter(_, trainer)
  local memory = core.memory()
  trainer.states.memory_live, trainer.states.memory_peak = memory.live, memory.peak
end

function MemoryHook:after_train_epoch(trainer)
  if (trainer.epoch + 1) % self.opt.interval ~= 0 then return end
  local memory, named = core.memory(), {}
  local most = ranks.max { memory.live, memory.peak }
  for i, holder in ipairs(self.opt.holders > 0 and core.memory_holders(self.opt.holders) or {}) do
    named[i] = ("%s %.1f MB"):format(holder.place, holder.peak / 1e6)
  end
  trainer.metrics.train.memory_peak = most[2]
  trainer:say(("memory  live %.1f MB  peak %.1f MB%s%s"):format(most[1] / 1e6, most[2] / 1e6,
    core.world() > 1 and " on the rank that has most" or "",
    #named > 0 and "  (peaks: " .. table.concat(named, ", ") .. ")" or ""))
end

return MemoryHook
