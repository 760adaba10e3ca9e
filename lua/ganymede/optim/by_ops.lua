--- The parent of optimizers whose update is written with ops on tensors (Adafactor, CAME, GaLore).
--
-- States lie as the gradients do: ZeRO divides them. The ops know the layouts of what they work on. So means over rows
-- and columns, and sizes of parameters and updates, are those of global tensors in every mode and ZeRO stage. An update
-- is some twenty small ops for each parameter; where a parameter is cut, some of them communicate. It is not part of
-- CUDA graphs. Parameters of 16 bits have masters in f32. A parameter without a gradient in a step keeps its value and
-- states, and its count of updates.
--
-- A class is made by by_ops.class(optim, name, options) and defines
--
--     Class.names               in what order its states stand in a checkpoint: a list of names
--     Class:new_states(w)       -> states of a parameter with the values w, or of what is this rank's of it:
--                               { [name] = tensor }, all zeros
--     Class:change(states, w, g, lr, t) -> what update t subtracts from w, after the weight decay; it changes states.
--                               g: the gradient, scaled and clipped, in the dtype of w
-- @module ganymede.optim.by_ops
local core = require "ganymede.core"
local gm = require "ganymede.tensor"
local rate = require "ganymede.optim.rate"

local by_ops = {}

--- Returns zeros that lie as t does, which are kept until they are freed.
function by_ops.zeros_like(t) return (t:detach() * 0):settle():keep() end

--- Moves a state towards a value, and returns the state: (1 - share) state + share value.
function by_ops.mix(state, value, share)
  state:copy_((state + (value - state) * share):redistribute(state:layout()))
  return state
end

--- Returns the means of t over its columns and its rows, which keep their dimension of one element.
function by_ops.means(t) return t:mean(-1, true):settle(), t:mean(-2, true):settle() end

--- Returns the root of the mean of squares of all elements, a tensor of one.
function by_ops.rms(t) return (t:square():sum() / t:numel()):settle():sqrt() end

local function states_of(self, i)
  return gm.scope(gm.no_grad, function()
    local part = core.owned_part(self.mine[i].tensor)
    local dtype = part:dtype()
    local narrow = dtype == "bf16" or dtype == "f16"
    local wide = narrow and part:to "f32" or part
    local states = self:new_states(wide)
    states.master = narrow and wide:clone():keep() or nil
    return states
  end)
end

local function update(self, i, lr, factor)
  local item, states = self.mine[i], self:state_of(i)
  local w = states.master or core.owned_part(item.tensor)
  local g = item.tensor:grad():to(w:dtype()) * (self.opt.maximize and -factor or factor)
  local change = self:change(states, w, g, lr, self.step_count - self.misses[i])
  local new = w * (1 - lr * item.weight_decay) - change:redistribute(w:layout())
  if states.master then states.master:copy_(new) end
  item.tensor:copy_(new:to(item.tensor:dtype()))
end

local methods = {}

-- items: those that are updated with ops; a class may have others updated otherwise.
function methods:prepare_items(items)
  self.mine, self.states, self.misses = items, {}, {}
  for i in ipairs(items) do self.misses[i] = 0 end
end

function methods:build(_, items) self:prepare_items(items) end

function methods:state_of(i)
  self.states[i] = self.states[i] or states_of(self, i)
  return self.states[i]
end

function methods:step(settings)
  settings = settings or {}
  local lr, factor = rate(self, settings.lr), (settings.clip or 1) / (settings.loss_scale or 1)
  self.step_count = self:steps() + 1
  for i, item in ipairs(self.mine) do
    if item.tensor:grad() then
      gm.scope(gm.no_grad, update, self, i, lr * item.lr_scale, factor)
    else
      self.misses[i] = self.misses[i] + 1
    end
  end
end

function methods:state()
  local out = {}
  for i, item in ipairs(self.mine) do
    local states = self:state_of(i)
    for _, name in ipairs(self.names) do
      if states[name] then out[#out + 1] = { name = name .. "/" .. item.name, tensor = states[name] } end
    end
    if states.master then out[#out + 1] = { name = "master/" .. item.name, tensor = states.master } end
  end
  return out
end

function methods:missed()
  local out = {}
  for i, n in ipairs(self.misses) do
    if n > 0 then out[#out + 1] = { name = self.mine[i].name, updates = n } end
  end
  return out
end

function methods:set_missed(numbers)
  for i, item in ipairs(self.mine) do self.misses[i] = numbers[item.name] or 0 end
end

--- Returns a new class of optimizers of this kind, registered under its name. optim: the module ganymede.optim.
function by_ops.class(optim, name, own_options)
  local class = optim.class(name, own_options)
  for key, method in pairs(methods) do class[key] = method end
  class.counts_updates = true
  optim[name] = class
  return class
end

return by_ops
