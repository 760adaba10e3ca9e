--- Optimizers: SGD, Adam, AdamW with PyTorch's options and defaults, over host/optim (fused, in C), and the
-- class from which optimizers written in Lua inherit.
--
--     local optimizer = gm.optim.AdamW({ lr = 1e-3, weight_decay = 0.05 }, model)
--     optimizer:step { clip = 1 }            -- at the rate optimizer.lr, which schedulers write
--
-- The second argument is a module, a list of tensors, or a list of groups { params = ..., lr_scale =,
-- weight_decay = }. In a config, `groups` picks parameters by their names (Lua patterns); the first group
-- that matches has a parameter. The trap: as in PyTorch, biases and norms decay too, unless
-- no_decay = "norm_and_bias".
-- @module ganymede.optim
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local optim = {}

local Optimizer = {}
Optimizer.__index = Optimizer
optim.Optimizer = Optimizer

-- ---------------------------------------------------------------- parameters and groups

local group_options = {
  params = { type = { "table", "module" }, optional = true, doc = "a module or a list of tensors" },
  match = { type = "string", optional = true, doc = "Lua pattern over parameter names" },
  lr_scale = { type = "number", min = 0, default = 1, doc = "times the learning rate" },
  weight_decay = { type = "number", min = 0, optional = true, doc = "in place of the optimizer's own" },
}

local common = {
  lr = { type = "number", min = 0, default = 1e-3, doc = "learning rate, before the scheduler" },
  weight_decay = { type = "number", min = 0, default = 0, doc = "of every parameter, if groups do not say otherwise" },
  groups = { type = "table", optional = true, doc = "list of { match = pattern, lr_scale =, weight_decay = }" },
  no_decay = { type = "string", one_of = { "none", "norm_and_bias" }, default = "none",
               doc = "norm_and_bias: parameters of fewer than two dimensions do not decay" },
}

local function is_module(x) return type(x) == "table" and type(rawget(x, "_module")) == "table" end

-- anything that holds parameters -> list of { name, tensor }
local function named(owner, params)
  if is_module(params) then
    local list = {} -- a frozen parameter (requires_grad(false)) is none of the optimizer's
    for _, p in ipairs(params:named_parameters()) do
      if p.tensor:requires_grad() then list[#list + 1] = p end
    end
    return list
  end
  local out = {}
  for i, p in ipairs(params) do
    if core.is_tensor(p) then
      out[i] = { name = tostring(i), tensor = p }
    elseif type(p) == "table" and core.is_tensor(p.tensor) then
      out[i] = { name = p.name or tostring(i), tensor = p.tensor }
    else
      error(("%s: parameter %d is no tensor but %s"):format(owner, i, tostring(p)), 0)
    end
  end
  return out
end

local function is_group_list(params)
  return type(params) == "table" and not is_module(params) and type(params[1]) == "table"
    and not core.is_tensor(params[1]) and params[1].params ~= nil
end

-- -> list of { name, tensor, lr_scale, weight_decay }
local function from_group_list(owner, groups, decay)
  local out = {}
  for i, given in ipairs(groups) do
    local g = options.check(("%s: group %d"):format(owner, i), group_options, given, 0)
    if not g.params then error(("%s: group %d has no 'params'"):format(owner, i), 0) end
    for _, p in ipairs(named(owner, g.params)) do
      local name = is_module(g.params) and p.name or ("%d.%s"):format(i, p.name)
      out[#out + 1] = { name = name, tensor = p.tensor, lr_scale = g.lr_scale, weight_decay = g.weight_decay or decay,
                        has_decay = g.weight_decay ~= nil }
    end
  end
  return out
end

local function matched_group(groups, name)
  for _, g in ipairs(groups) do
    if name:find(g.match) then return g end
  end
end

-- The names that a pattern may mean: of a module those that other stages of a pipeline hold, too.
local function all_names(given, params)
  local names = {}
  for _, p in ipairs(is_module(given) and given:declared() or params) do
    if not p.tied then names[#names + 1] = p.name end
  end
  return names
end

-- Groups that no name falls into, here or, where stages built their own parts, on any.
local function refuse_idle(owner, groups, names)
  if #groups == 0 then return end
  local used, place = {}, {}
  for i, g in ipairs(groups) do used[i], place[g] = 0, i end
  for _, name in ipairs(names) do
    local g = matched_group(groups, name)
    if g then used[place[g]] = 1 end
  end
  local _, stages = ranks.stage()
  if stages > 1 and core.device().has_data then used = ranks.sum(used) end
  for i, g in ipairs(groups) do
    if used[i] == 0 and (stages == 1 or core.device().has_data) then
      error(("%s: groups[%d] has match = %q, which no parameter is left for; names look like '%s'"):format(
        owner, i, g.match, names[1] or ""), 0)
    end
  end
end

-- A module or list and its list of { name, tensor }, and the config's groups -> list of { name, tensor, lr_scale,
-- weight_decay }
local function with_settings(owner, given, opt)
  local params = named(owner, given)
  local groups = {}
  for i, one in ipairs(opt.groups or {}) do
    groups[i] = options.check(("%s: groups[%d]"):format(owner, i), group_options, one, 0)
    if not groups[i].match or groups[i].params then
      error(("%s: groups[%d] needs 'match', a pattern over parameter names (params is for code)"):format(owner, i), 0)
    end
  end
  local out = {}
  for i, p in ipairs(params) do
    local g = matched_group(groups, p.name)
    local decay = opt.no_decay == "norm_and_bias" and p.tensor:dim() < 2 and 0 or opt.weight_decay
    out[i] = { name = p.name, tensor = p.tensor, lr_scale = g and g.lr_scale or 1,
               weight_decay = g and g.weight_decay or decay, has_decay = g and g.weight_decay ~= nil or false }
  end
  refuse_idle(owner, groups, all_names(given, params))
  return out
end

local function refuse_doubles(owner, items)
  local seen = {}
  for _, item in ipairs(items) do
    local other = seen[item.name] or seen[item.tensor]
    if other then error(("%s: parameter '%s' is given twice, also as '%s'"):format(owner, item.name, other), 0) end
    seen[item.name], seen[item.tensor] = item.name, item.name
  end
  local _, stages = ranks.stage()
  if #items == 0 and stages == 1 then -- a stage may have none
    error(owner .. ": there are no parameters that require a gradient", 0)
  end
  return items
end

-- ---------------------------------------------------------------- what all optimizers share

local construct = signature.constructor("options table?, parameters any?", function(class, given, params)
  local opt = {}
  for name, value in pairs(given or {}) do opt[name] = value end
  if opt.params ~= nil and params == nil then params = opt.params end
  opt.params = nil
  opt = options.check(class.name, class.options, opt, 2)
  if params == nil then error(class.name .. ": which parameters? give a module as the second argument", 3) end
  local items = is_group_list(params) and from_group_list(class.name, params, opt.weight_decay)
    or with_settings(class.name, params, opt)
  local self = setmetatable({ opt = opt, lr = opt.lr, items = refuse_doubles(class.name, items), tensors = {},
    given = params }, class)
  for i, item in ipairs(items) do self.tensors[i] = item.tensor end
  self:build(opt, items)
  return self
end)

--- For classes: makes what the optimizer needs. items: list of { name, tensor, lr_scale, weight_decay }. self.given is
-- what was given as parameters.
function Optimizer.build(_) end

--- One update from the gradients. settings.lr: the rate (default self.lr); settings.clip: factor for all
-- gradients; settings.loss_scale: divisor of all gradients. Classes with takes_control = true may be given
-- settings.control in place of both: core.step_control(), which decides on the device.
function Optimizer:step() error(self.name .. " does not define step{ lr, clip }", 2) end

--- Forgets all gradients: the next backward sets them.
function Optimizer:zero_grad() core.zero_grad(self.tensors) end

--- Tensors that the next steps depend on, beside the parameters: list of { name, tensor }, names without
-- repeats. What a checkpoint holds.
function Optimizer.state(_) return {} end

--- Updates made so far.
function Optimizer:steps() return self.step_count or 0 end
--- Sets the number of updates made: part of resuming.
function Optimizer:set_steps(n) self.step_count = n end

--- Of these, how many were made without a parameter, because it had no gradient: list of { name, updates }, where there
-- are any. The step numbers of bias corrections leave them out. On a GPU it waits.
function Optimizer.missed(_) return {} end
--- numbers: { [name of a parameter] = updates }; absent: none. Part of resuming.
function Optimizer:set_missed(numbers)
  if next(numbers) then error(self.name .. " does not count updates that parameters have missed", 0) end
end

--- Bytes of the state that exists on this rank.
function Optimizer:bytes()
  local sum = 0
  for _, entry in ipairs(self:state()) do sum = sum + held.bytes(entry.tensor) end
  return sum
end

function Optimizer:set_momentum()
  error(("%s has no momentum to change; give the scheduler cycle_momentum = false"):format(self.name), 0)
end

--- A new class of optimizers, registered under its name in registry.optimizers. Its own options are added
-- to lr, weight_decay, groups and no_decay; it defines build, step and state.
function optim.class(name, own_options, parent)
  parent = parent or Optimizer
  local all = {}
  for key, entry in pairs(common) do all[key] = entry end
  for key, entry in pairs(own_options or {}) do all[key] = entry end
  local class = setmetatable({ name = name, options = all }, { __index = parent, __call = construct })
  class.__index = class
  class.__tostring = function(self) return self.name .. options.show(self.options, self.opt) end
  registry.optimizers:register(name, class)
  return class
end

-- ---------------------------------------------------------------- over host/optim

local master_weights = { type = "boolean", default = true,
  doc = "parameters of 16 bits: update a copy in f32, of which they are the rounding? else they are rounded by chance" }

-- A parent for optimizers whose update is a C kernel: `kind` and attrs(opt). It reads what step_control decided.
local Fused = setmetatable({ takes_control = true }, { __index = Optimizer })

function Fused:build(opt, items)
  local attrs = self.attrs(opt)
  attrs.stochastic = not opt.master_weights
  self.core = core.optimizer(self.kind, self.tensors, attrs, items)
end

Fused.step = signature.declare("optimizer:step", "optimizer table, settings options?", {
  lr = { type = "number", optional = true, doc = "the rate; default optimizer.lr" },
  clip = { type = "number", default = 1, doc = "factor for all gradients" },
  loss_scale = { type = "number", default = 1, doc = "divisor of all gradients" },
  control = { type = "object", optional = true, doc = "core.step_control(), in place of clip and loss_scale" },
}, function(self, settings)
  self.core:step { lr = settings.lr or self.lr, clip = settings.clip, loss_scale = settings.loss_scale,
    control = settings.control }
end)

function Fused:state()
  local out = {}
  for i, entry in ipairs(self.core:state()) do
    out[i] = { name = ("%s/%s"):format(entry.name, self.items[entry.parameter].name), tensor = entry.tensor }
  end
  return out
end

function Fused:steps() return self.core:steps() end
function Fused:set_steps(n) self.core:set_steps(n) end
function Fused:set_skipped(n) self.core:set_skipped(n) end

function Fused:missed()
  local out = {}
  for i, n in ipairs(self.core:missed()) do
    if n ~= 0 then out[#out + 1] = { name = self.items[i].name, updates = n } end
  end
  return out
end

function Fused:set_missed(numbers)
  local list = {}
  for i, item in ipairs(self.items) do list[i] = numbers[item.name] or 0 end
  self.core:set_missed(list)
end

function Fused:prepare() self.core:prepare(self.lr) end
function Fused:bytes() return self.core:bytes() end
function Fused:set_momentum(value) self.core:set_momentum(value) end

--- v = momentum v + (1 - dampening) g, w -= lr v (Sutskever et al. 2013, as PyTorch writes it).
local SGD = optim.class("SGD", {
  momentum = { type = "number", min = 0, below = 1, default = 0, doc = "share of the last update that is kept" },
  dampening = { type = "number", default = 0, doc = "share of the gradient that is left out of the momentum" },
  nesterov = { type = "boolean", default = false, doc = "look ahead (Nesterov)?" },
  master_weights = master_weights,
}, Fused)
optim.SGD = SGD
SGD.kind = "sgd"

function SGD.attrs(opt)
  if opt.nesterov and (opt.momentum == 0 or opt.dampening ~= 0) then
    error("SGD: nesterov needs momentum above 0 and dampening 0", 0)
  end
  return { momentum = opt.momentum, dampening = opt.dampening, nesterov = opt.nesterov,
           weight_decay = opt.weight_decay }
end

function SGD:set_momentum(value)
  if self.opt.momentum == 0 then return Optimizer.set_momentum(self) end
  self.core:set_momentum(value)
end

local adam_options = {
  master_weights = master_weights,
  betas = { type = "table", default = { 0.9, 0.999 }, doc = "decay of the first and the second moment" },
  eps = { type = "number", min = 0, default = 1e-8, doc = "added to the root of the second moment" },
}

local function adam_attrs(name, decoupled)
  return function(opt)
    local b = opt.betas
    for i = 1, 2 do
      if type(b[i]) ~= "number" or b[i] < 0 or b[i] >= 1 then
        error(("%s: betas[%d] must be a number from 0, below 1; got %s"):format(name, i, tostring(b[i])), 0)
      end
    end
    return { beta1 = b[1], beta2 = b[2], eps = opt.eps, weight_decay = opt.weight_decay, decoupled = decoupled }
  end
end

--- Kingma and Ba 2015; weight_decay is added to the gradient.
local Adam = optim.class("Adam", adam_options, Fused)
optim.Adam = Adam
Adam.kind, Adam.attrs = "adam", adam_attrs("Adam", false)

--- Loshchilov and Hutter 2019: w shrinks by lr weight_decay, apart from the gradient.
local AdamW = optim.class("AdamW", {
  betas = adam_options.betas, eps = adam_options.eps, master_weights = master_weights,
  weight_decay = { type = "number", min = 0, default = 0.01, doc = common.weight_decay.doc },
}, Fused)
optim.AdamW = AdamW
AdamW.kind, AdamW.attrs = "adam", adam_attrs("AdamW", true)

require "ganymede.optim.muon"(optim, Fused, { betas = adam_options.betas, eps = adam_options.eps,
  master_weights = master_weights })

signature.export("optimizer", Fused, ":")
signature.export("optimizer", Optimizer, ":", { "build", "step", "set_momentum" })
return require("ganymede.base.missing").guard("optim", signature.export("optim", optim))
