--- A run whose batch may change between two steps: the setting `adaptive_batch` (ganymede.config.batch_setting).
--
--     trainer:set_batch(128)     -- -> true; or nil and why not. From the next step on. COLLECTIVE, between two steps
--     trainer.batching           -- nil: the batch of this run stays
--
-- The order of an epoch is one list of samples, whatever its batches are. Batches of the new size begin behind the last
-- sample that was read; so each epoch has every sample once. Where in an epoch the present size began, the size, and
-- the factor of the learning rate are part of the run's state: checkpoints, `resize` and --resume keep them. The factor
-- is computed when a batch is chosen and stays until the next one, so that a run can be repeated from what is recorded.
-- An epoch's number of steps follows the batch: trainer.steps_per_epoch is that of the present epoch.
-- The trap: batches have gradient_accumulation parts as before; sizes here are those of data.batch_size.
-- @module ganymede.train.adaptive_batch
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local live = require "ganymede.job.live"
local setting = require "ganymede.config.batch_setting"

local Batching = {}
Batching.__index = Batching

--- trainer: prepared; settings: of the recipe. Its batch is the first one.
function Batching.new(trainer, settings)
  local loader, opt = trainer.opt.train_dataloader, settings.adaptive_batch
  if not (loader.can_change and loader:can_change()) then
    failure(2, "adaptive_batch: the training loader is the recipe's own, and has no set_batch and begin_at")
  end
  if loader.loader.opt and loader.loader.opt.drop_last then -- of a sampler
    failure(2, "adaptive_batch: %s", setting.drop_last)
  end
  local first = settings.data.batch_size
  return setmetatable({ trainer = trainer, loader = loader, first = first, largest = opt.largest, rule = opt.rate,
    accumulation = settings.gradient_accumulation or 1, batch = first, factor = 1, from = 0, from_step = 0,
    usual = trainer.steps_per_epoch }, Batching)
end

-- The samples of this epoch that were read so far.
local function read_so_far(self)
  local steps = self.trainer.step_of_epoch - self.from_step
  return math.min(self.from + steps * self:samples(), self.loader.loader:samples_of_epoch())
end

-- Lets the loader go on behind the last sample that was read, with batches of the present size.
local function begin_here(self, loader)
  if self.from > 0 then loader:begin_at(self.from) end
  self.trainer.steps_per_epoch = self.from_step + loader:length()
end

--- For the trainer, at the beginning of an epoch or of what is left of it -> the step of the epoch with which the
-- loader begins.
function Batching:begin_epoch(loader)
  if self.trainer.step_of_epoch == 0 then self.from, self.from_step = 0, 0 end
  begin_here(self, loader)
  return self.from_step
end

--- The number of steps of the whole run, if the batch stays as it is; nil: the run does not end by epochs.
function Batching:total_steps()
  local t = self.trainer
  if not t.max_epochs then return nil end
  local samples = self.loader.loader:samples_of_epoch()
  local usual = math.ceil(math.ceil(samples / self.batch) / self.accumulation)
  local left = t.step_of_epoch > 0 and t.steps_per_epoch - t.step_of_epoch or usual
  if t.epoch >= t.max_epochs then return t.step end
  return t.step + left + (t.max_epochs - t.epoch - 1) * usual
end

-- Changes the batch and the factor, without a word to anybody.
local function change(self, batch, factor)
  local trainer = self.trainer
  local optimizer = trainer.engine.optimizer
  if batch ~= self.batch then
    self.from, self.from_step, self.batch = read_so_far(self), trainer.step_of_epoch, batch
    if trainer.engine.graph then trainer.engine.graph:forget() end
    self.loader:set_batch(batch)
    begin_here(self, self.loader)
  end
  optimizer.lr, self.factor = optimizer.lr * (factor / self.factor), factor
end

-- The factor of the learning rate with a batch; nil and why there is none.
local function factor_of(self, batch)
  local states, noise = self.trainer.states, nil
  if batch == self.first then return 1 end
  if self.rule == "adascale" then
    noise = { square = states.gradient_square, variance = states.gradient_variance }
    if not (noise.square and noise.variance) then
      return nil, "adascale needs the noise of the gradient, which this run has not measured yet: it does so on two "
        .. "data ranks or more, or with gradient_accumulation"
    end
  end
  return setting.factor(self.rule, batch / self.first, noise, self.first)
end

--- What is wrong with a batch that somebody wants; nil: nothing.
function Batching:problem(batch)
  if type(batch) ~= "number" or batch % 1 ~= 0 or batch < self.first or batch > self.largest then
    return ("a batch of %s samples: adaptive_batch allows %d to %d"):format(tostring(batch), self.first, self.largest)
  end
end

--- Changes the batch -> a function that changes it back, and what is to be noted of it; nil and why not.
function Batching:try(batch)
  local wrong = self:problem(batch)
  if wrong then return nil, wrong end
  self.trainer:settle() -- the noise of steps that a device has not told yet
  local factor, missing = factor_of(self, batch)
  if not factor then return nil, missing end
  local before = { batch = self.batch, factor = self.factor }
  change(self, batch, factor)
  local about = { event = "batch", step = self.trainer.step, seconds = 0, before = before.batch, batch = batch,
    factor = factor, lr = self.trainer.engine.optimizer.lr }
  return function() change(self, before.batch, before.factor) end, about
end

--- Notes a change in the run's folder, and where others see the job.
function Batching:note(about)
  local trainer = self.trainer
  if trainer.happened then trainer.happened(about) end
  if core.rank() == 0 then live.tell { batch = self:samples() } end
  trainer:say(("batch %d from step %d on, before it %d; learning rate %g"):format(about.batch, about.step + 1,
    about.before, about.lr))
end

--- The samples of a step.
function Batching:samples() return self.batch * self.accumulation end

-- ---------------------------------------------------------------- checkpoints

--- Plain values for the checkpoint; nil: the batch has never changed.
function Batching:state()
  if self.batch == self.first and not self.changed then return nil end
  local t = self.trainer
  return { batch = self.batch, factor = self.factor, from = self.from, from_step = self.from_step, epoch = t.epoch,
    step_of_epoch = t.step_of_epoch }
end

local fields = { "batch", "factor", "from", "from_step", "epoch", "step_of_epoch" }

--- Restores them; nil: a run whose batch has never changed.
function Batching:load_state(state)
  if not state then return end
  for _, name in ipairs(fields) do
    local value = state[name]
    if type(value) ~= "number" or value < 0 or value >= 2 ^ 53 or (name ~= "factor" and value % 1 ~= 0) then
      error("batching." .. name .. " is no number", 0)
    end
  end
  local wrong = self:problem(state.batch)
  if wrong then failure(2, "cannot resume: the checkpoint has %s", wrong) end
  change(self, state.batch, state.factor)
  local t = self.trainer
  t.epoch, t.step_of_epoch, self.changed, self.restored = state.epoch, state.step_of_epoch, true, true
  self.from, self.from_step = state.from, state.from_step
  if read_so_far(self) == self.loader.loader:samples_of_epoch() then -- it goes on with the next one, as others do
    t.epoch, t.step_of_epoch, self.from, self.from_step = t.epoch + 1, 0, 0, 0
  end
end

-- ---------------------------------------------------------------- of a trainer

local adaptive_batch = {}

--- Lets the batch of a prepared trainer change, as the settings of a recipe say.
function adaptive_batch.attach(trainer, settings) trainer.batching = Batching.new(trainer, settings) end

--- Lets `ganymede top` show how many samples a step has.
function adaptive_batch.show(trainer)
  if core.rank() > 0 then return end
  live.tell { batch = trainer.batching and trainer.batching:samples() or trainer.samples_per_step }
end

--- Adds set_batch to a class of trainers.
function adaptive_batch.install(Trainer)

--- Changes data.batch_size from the next step on, and the learning rate with it -> true; or nil and why not. The recipe
-- must have adaptive_batch. All ranks call it, between two steps.
function Trainer:set_batch(batch)
  if not self.batching then return nil, "the recipe has no adaptive_batch, so its batch stays" end
  local back, about = self.batching:try(batch)
  if not back then return nil, about end
  self.batching.changed = true
  self.batching:note(about)
  return true
end

end

return adaptive_batch
