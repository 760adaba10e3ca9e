--- recompute = { memory = BYTES } of gm.initialize, in a program: what runs again in backward is chosen before the
-- second step.
--
--     gm.initialize { model = model, criterion = loss, recompute = { memory = "4G" } }
--
-- A program has no recipe that another process could rehearse. So in the first step each section of the model runs
-- again, which needs about the least memory. That step leaves what it was given, the optimizer's state and the
-- gradients. When the second step forgets the gradients (engine:zero_grad), the sections are measured on the first
-- batch, and the solver chooses (ganymede.recompute). Rank 0 chooses for all. No number of the training changes. The
-- traps: the memory that a kernel uses for itself comes on top of what is predicted; later batches must not be larger.
-- @module ganymede.train.chosen_regions
local at_path = require "ganymede.tensor.at_path"
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local measure = require "ganymede.recompute.chain"
local ranks = require "ganymede.job.ranks"
local recompute = require "ganymede.recompute"
local region = require "ganymede.nn.region"
local sections = require "ganymede.nn.sections"
local tensors = require "ganymede.tensor"

local Choice = {}
Choice.__index = Choice

local INSTEAD = "; say \"block\", a list of patterns over module paths, or { sections = ... }"

-- Why a program cannot have it, or nil.
local function problem_of(stage, zero)
  local list, reason = sections.of(stage.model)
  if stage.n_parts > 1 then return "is for a model that is not cut into stages" .. INSTEAD end
  if not list then return "needs the sections of the model, and " .. reason end
  if #list == 1 then return "needs a model of several sections; this has one" end
  if zero.stage == 3 then return "does not measure parameters that are gathered (zero = 3)" .. INSTEAD end
  for _, m in ipairs(stage.model:modules()) do
    if m.after_update then
      return ("would count twice what %s (%s) counts in a step%s"):format(m.name, m:path(), INSTEAD)
    end
  end
end

local function start(engine, given, zero)
  local problem = problem_of(engine.stage, zero)
  if problem then error("gm.initialize: recompute = { memory = ... } " .. problem, 0) end
  local numbers = {}
  for i = 1, #sections.of(engine.model) - 1 do numbers[i] = tostring(i) end
  region.mark(engine.model, { sections = table.concat(numbers, ", ") })
  engine.regions_wanted = setmetatable({ memory = machine.bytes_of(tostring(given.memory)) }, Choice)
end

-- Keeps a tensor of the first step.
local function copy_of(t, what)
  if not core.is_tensor(t) then
    error(("gm.initialize: recompute = { memory = ... } measures %s, which must be one tensor; got a %s%s"):format(what,
      type(t), INSTEAD), 0)
  end
  return t:detach():keep()
end

--- The engine is called with x, in training.
function Choice:note_input(x, ...)
  if self.x then return end
  if select("#", ...) > 0 then copy_of(nil, "the arguments of the model") end
  self.x = copy_of(x, "the argument of the model")
end

--- The criterion is called with a label, in training.
function Choice:note_label(y)
  if not self.y then self.y = copy_of(y, "the label") end
end

-- The chain on the first batch, under the path of the model; what it leaves in Lua is collected.
local function chain_of(self, engine)
  local chain = at_path(engine.model:path(), tensors.scope, region.as_again, measure,
    (sections.of(engine.model)), self.x, self.y, engine.loss_function) -- the batch has been counted in its step
  engine.optimizer:zero_grad()
  collectgarbage()
  collectgarbage()
  return chain
end

-- -> setting, line about it; or text of a failure.
local function solved(self, chain, live)
  local whole = 0
  for _, stage in ipairs(chain) do whole = whole + stage.forward + stage.backward end
  local found, why = recompute.predict({ chain = chain, live = live, flops = whole }, self.memory)
  if found then return { setting = found.setting, said = recompute.said(chain, found, self.memory) } end
  return { text = recompute.too_little(self.memory, why) }
end

--- The gradients of a step have been forgotten. engine: its owner, which lets go of this when the choice is made.
function Choice:choose(engine)
  if not (self.x and self.y) then return end
  engine.regions_wanted = nil
  local chain = chain_of(self, engine)
  local live = core.memory().live - held.bytes(self.x) - held.bytes(self.y) -- counted in the chain
  local function own() return solved(self, chain, live) end
  local found = core.world() > 1 and json.decode(ranks.from_first(function() return json.encode(own()) end), "regions")
    or own()
  self.x:release()
  self.y:release()
  if found.text then ranks.fail(2, "%s", found.text) end
  region.mark(engine.model, found.setting or nil)
  if core.rank() == 0 then log.info("recompute: %s", found.said) end
end

return { start = start }
