--- Float8Hook tells which tensors of 8 bits had numbers beyond the range of the scale that delayed scaling gave them:
-- those numbers became the end of the range. It says in how many steps, and how much larger a scale they needed.
--
--     hooks = { { type = "Float8Hook", interval = 100 } }
--
-- A line every `interval` steps and at the end of an epoch names the tensors that were clipped in most steps; where
-- they are not few, raise float8.margin. Their number is trainer.states.float8_clipped, and float8_clipped in
-- trainer.metrics.train. What the codes of a step needed is there anyhow: the hook compares 3 numbers for each layer in
-- each update, on the device, and reads them when it writes a line. How many numbers of a tensor were clipped is not
-- known; the ops of this rank would have to count them.
-- All ranks have the same numbers. A run whose layers keep no scales is refused: other scales leave nothing out.
local base = require "ganymede.hooks.base"

local Float8Hook = base.class("Float8Hook", {
  interval = { type = "integer", min = 1, default = 100, doc = "the number of steps between two lines" },
  named = { type = "integer", min = 0, default = 3,
    doc = "the number of tensors that a line names, those first that were clipped in most steps" },
}, { priority = 10, needs_output = false, needs_loss = false })

function Float8Hook:after_hook_is_attached(trainer)
  if not trainer.engine.float8 then
    error("Float8Hook: no layer keeps scales; float8 = { scaling = \"delayed\" } lets them", 0)
  end
  for _, hook in ipairs(trainer.hooks) do
    if hook.name == self.name and hook ~= self then error("Float8Hook is given twice", 0) end
  end
end

-- Has the updates count, or not. A graph without the counting would go on without it.
local function watch(self, trainer, wanted)
  trainer.engine.float8:watch(wanted)
  if trainer.engine.graph then trainer.engine.graph:forget() end
  self.steps = 0
end

function Float8Hook:before_train(trainer) watch(self, trainer, true) end

function Float8Hook:after_train(trainer) watch(self, trainer, false) end

local function tell(self, trainer)
  local clipped, all = trainer.engine.float8:clipped()
  local named = {}
  for i = 1, math.min(self.opt.named, #clipped) do
    local c = clipped[i]
    named[i] = ("%s of %s in %d, up to %g times"):format(c.tensor, c.path, c.steps, c.times)
  end
  trainer.states.float8_clipped, trainer.metrics.train.float8_clipped = #clipped, #clipped
  trainer:say(("float8  %d of %d tensors were clipped in the last %d steps%s"):format(#clipped, all, self.steps,
    #named > 0 and "  (" .. table.concat(named, "; ") .. ")" or ""))
  self.steps = 0
end

function Float8Hook:after_train_iter(trainer)
  self.steps = self.steps + 1
  if self.steps >= self.opt.interval then tell(self, trainer) end
end

function Float8Hook:after_train_epoch(trainer)
  if self.steps > 0 then tell(self, trainer) end
end

return Float8Hook
