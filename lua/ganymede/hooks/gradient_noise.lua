--- GradientNoise measures the noise scale of the gradient while a run trains: the batch up to which larger batches pay.
--
--     hooks = { { type = "GradientNoise", every = 10 } }
--
-- ganymede.observe.gradient_noise says what is measured, and what that costs. A measured step has gradient_noise (the
-- noise scale, in samples), gradient_variance (of the gradient of one sample) and gradient_square (the squared norm of
-- the true gradient) in metrics.jsonl, TensorBoard and the report; they are means over the measured steps, of which the
-- older ones count less and less. The noise scale is left out as long as the mean of gradient_square is not above 0.
-- `ganymede cluster` reads them. A run whose steps have one batch size is refused (status 2), unless needed = false.
local base = require "ganymede.hooks.base"
local log = require "ganymede.base.log"
local Noise = require "ganymede.observe.gradient_noise"
local ranks = require "ganymede.job.ranks"

local GradientNoise = base.class("GradientNoise", {
  every = { type = "integer", min = 1, default = 10, doc = "the number of steps between two measurements" },
  decay = { type = "number", min = 0, below = 1, default = 0.95,
    doc = "the share of the means that is kept in each measurement; 0: each one stands alone" },
  needed = { type = "boolean", default = true,
    doc = "whether a run in which it cannot be measured is refused; false: the run says so, and keeps the means that "
      .. "other ranks have measured" },
}, { priority = 5, needs_output = false, needs_loss = false })

function GradientNoise:build()
  self.variance, self.square, self.weight = 0, 0, 0
end

function GradientNoise:after_hook_is_attached(trainer)
  for _, hook in ipairs(trainer.hooks) do
    if hook.name == self.name and hook ~= self then error("GradientNoise is given twice", 0) end
  end
  local missing = not self.opt.needed and Noise.missing(trainer.engine)
  if missing and ranks.is_first() then log.info("GradientNoise: nothing is measured on these ranks: %s", missing) end
  self.watch, self.waiting = not missing and Noise.new(trainer.engine, self.opt.every) or nil, {}
end

-- Writes the means into a table.
local function tell(self, into)
  into.gradient_variance, into.gradient_square = self.variance / self.weight, self.square / self.weight
  into.gradient_noise = self.square > 0 and self.variance / self.square or nil
end

function GradientNoise:before_train(trainer)
  trainer.engine.gradient_watch = self.watch
  if self.weight > 0 then tell(self, trainer.states) end -- of the run that goes on
end

-- The sums of a step come before the next one begins, also where its numbers are known later.
function GradientNoise:after_train_iter(trainer)
  if not (self.watch and self.watch:wants(trainer.step)) then return end
  local engine = trainer.engine
  local own = engine.norm_type ~= 2 and engine:gradient_norm(2) or nil
  self.waiting[trainer.step] = { sums = self.watch:sums(), norm = own }
end

-- Adds a measurement to the means, and tells them.
local function note(self, trainer, step, found)
  local keep = self.opt.decay
  self.weight = keep * self.weight + 1
  self.variance = keep * self.variance + found.variance
  self.square = keep * self.square + found.square
  tell(self, step)
  tell(self, trainer.states)
end

function GradientNoise:after_train_loss(trainer, step)
  local waiting = self.waiting[step.step]
  self.waiting[step.step] = nil
  if not waiting or step.not_finite then return end
  local found = Noise.estimate(waiting.sums, waiting.norm or step.gradient_norm, step.samples)
  if found then note(self, trainer, step, found) end
end

function GradientNoise:after_train(trainer) trainer.engine.gradient_watch = nil end

function GradientNoise:state() return { variance = self.variance, square = self.square, weight = self.weight } end

function GradientNoise:load_state(state)
  self.variance, self.square, self.weight = state.variance, state.square, state.weight
end

return GradientNoise
