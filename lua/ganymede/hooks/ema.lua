--- EMA: averages of the weights over the steps of training, which often do better than the last weights.
--
--     hooks = { { type = "EMA", decay = 0.999 } }
--
-- After an update, average = decay average + (1 - decay) weight; the first time the weights are copied (as PyTorch's
-- AveragedModel and get_ema_avg_fn). Evaluations use the averages. In code:
--
--     local ema = gm.hooks.EMA { decay = 0.999 }
--     trainer:fit { hooks = { ema }, ... }
--     ema:swap()                               -- the model holds the averages now
--     trainer:predict(x)
--     ema:swap()                               -- and its own weights again, bit for bit
--
-- A loop of one's own calls ema:follow(engine) once, then ema:update() after each step. With ZeRO a rank holds the
-- averages of what it owns; averages of 16-bit weights are f32. Checkpoints hold averages as tensors
-- ("average/<parameter>"), which load into any number of ranks.
-- The trap: a model that holds the averages is not trained and not saved: swap once more before.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"

local EMA = base.class("EMA", {
  decay = { type = "number", min = 0, below = 1, default = 0.999,
    doc = "the share of the average that is kept in each update" },
  warmup = { type = "boolean", default = false,
    doc = "whether the n-th update keeps at most (1 + n) / (10 + n), so that averages follow faster at first" },
  every = { type = "integer", min = 1, default = 1, doc = "the number of optimizer steps between two updates" },
  evaluate = { type = "boolean", default = true, doc = "whether evaluations use the averages" },
}, { needs_output = false, needs_loss = false, adds_metrics = false })

--- Averages the parameters that the engine's optimizer trains, from now on.
function EMA:follow(engine)
  local tensors, names = {}, {}
  for i, item in ipairs(engine.optimizer.items) do tensors[i], names[i] = item.tensor, item.name end
  self.core, self.followed, self.names, self.updates = core.average(tensors), tensors, names, 0
  return self
end

-- Whether the averages are those of the parameters that the engine's optimizer trains.
local function follows(self, engine)
  local items = engine.optimizer.items
  if not self.core or #items ~= #self.followed then return false end
  for i, item in ipairs(items) do
    if item.tensor ~= self.followed[i] then return false end
  end
  return true
end

local function followed(self)
  return self.core or error("EMA: whose weights? give the hook to a trainer, or call ema:follow(engine)", 3)
end

local function decay_of(self)
  local n = self.updates
  return self.opt.warmup and math.min(self.opt.decay, (1 + n) / (10 + n)) or self.opt.decay
end

--- Moves the averages towards the weights as they are now.
function EMA:update()
  followed(self):update(self.updates == 0 and 1 or 1 - decay_of(self))
  self.updates = self.updates + 1
end

--- The model's weights become the averages, or if they are, become its own again. Collective: all ranks call it.
function EMA:swap()
  followed(self):swap()
  return self
end

--- Does the model hold the averages?
function EMA:is_swapped() return self.core ~= nil and self.core:is_swapped() end

--- The averages: list of { name, tensor }, which share their memory.
function EMA:averages()
  local out = {}
  for i, entry in ipairs(followed(self):state()) do
    out[i] = { name = self.names[entry.parameter], tensor = entry.tensor }
  end
  return out
end

--- A trainer that is called once more (fit, fit) goes on with the averages that the hook has.
function EMA:after_hook_is_attached(trainer)
  if not follows(self, trainer.engine) then self:follow(trainer.engine) end
end

function EMA:before_train_iter()
  if not self:is_swapped() then return end
  if not self.testing then error("EMA: the model holds the averages; call ema:swap() before it is trained", 0) end
  self.testing = nil -- an evaluation ended with an error
  self:swap()
end

function EMA:after_train_iter(trainer)
  if trainer.step % self.opt.every == 0 then self:update() end
end

function EMA:before_test()
  if not self.opt.evaluate or self:is_swapped() then return end
  self.testing = true
  self:swap()
end

function EMA:after_test()
  if not self.testing then return end
  self.testing = nil
  self:swap()
end

-- ---------------------------------------------------------------- checkpoints

--- What a checkpoint holds besides state(): list of { name, tensor }.
function EMA:tensors()
  if self:is_swapped() then error("EMA: the model holds the averages; call ema:swap() before it is saved", 0) end
  local out = self:averages()
  for _, entry in ipairs(out) do entry.name = "average/" .. entry.name end
  return out
end

--- The model was loaded from a checkpoint without averages: they begin with its weights.
function EMA:begin_anew()
  self.core:update(1)
  self.updates = 0
end

function EMA:state() return { updates = self.updates } end
function EMA:load_state(state) self.updates = state.updates end

return EMA
