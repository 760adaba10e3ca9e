--- Optimizers: SGD, Adam and AdamW, whose options and defaults are PyTorch's and whose update is one call into C
-- (host/optim), and the class from which optimizers written in Lua inherit. The modules beside this one have the
-- others: families (C kernels), adafactor, came and galore (ops), muon.
--
--     local optimizer = gm.optim.AdamW({ lr = 1e-3, weight_decay = 0.05 }, model)
--     optimizer:step { clip = 1 }            -- uses the rate optimizer.lr, which schedulers write
--
-- The second argument is a module, a list of tensors, or a list of groups { params = ..., lr_scale =,
-- weight_decay =, trust =, and any option of the class, such as betas or state_dtype }. In a config,
-- `groups` selects parameters by their names (Lua patterns). A parameter belongs to the first group whose pattern
-- matches its name. The trap: as in PyTorch, weight decay also acts on biases and norms, but for no_decay.
-- @module ganymede.optim
local numbers_of = require "ganymede.optim.numbers"
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local idle = require "ganymede.optim.idle"
local layer_decay = require "ganymede.optim.layer_decay"
local matching = require "ganymede.optim.matching"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local rate = require "ganymede.optim.rate"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local sites = require "ganymede.optim.sites"
local touched = require "ganymede.optim.touched"

local optim = {}

local Optimizer = {}
Optimizer.__index = Optimizer
optim.Optimizer = Optimizer

-- ---------------------------------------------------------------- parameters and groups

local group_options = {
  params = { type = { "table", "module" }, optional = true,
    doc = "the parameters of the group: a module or a list of tensors" },
  match = { type = "string", optional = true, doc = "the Lua pattern of the names of the parameters in the group" },
  lr_scale = { type = "number", min = 0, default = 1,
    doc = "the factor by which the learning rate of these parameters is multiplied" },
  lr = { type = "number", min = 0, optional = true,
    doc = "the learning rate of these parameters, before the scheduler, which changes all in proportion" },
  weight_decay = { type = "number", min = 0, optional = true,
    doc = "the weight decay of these parameters; default: that of the optimizer" },
  trust = { type = "boolean", optional = true,
    doc = "whether these parameters have a trust ratio (LAMB, LARS); default: as no_trust says" },
}

local common = {
  lr = { type = "number", min = 0, default = 1e-3,
    doc = "the learning rate; a scheduler computes the rate of each step from it" },
  weight_decay = { type = "number", min = 0, default = 0,
    doc = "the weight decay of every parameter whose group sets none" },
  groups = { type = "list", optional = true,
    doc = "the list of groups { match = pattern, lr_scale =, lr =, weight_decay =, trust =, and options of the "
      .. "optimizer, such as betas }; a parameter belongs to the first that matches its name" },
  layer_decay = { type = "number", above = 0, max = 1, optional = true,
    doc = "the factor by which the rate of each section of the model (a block, the embeddings) is smaller than that of "
      .. "the next; the last, with the head, has the full rate" },
  no_decay = { type = "string", one_of = { "none", "norm_and_bias" }, default = "none",
               doc = "which parameters are left out of weight decay; norm_and_bias: those with fewer than two "
                 .. "dimensions" },
}

local function is_module(x) return type(x) == "table" and type(rawget(x, "_module")) == "table" end

-- A module or a list of tensors -> the list of its parameters, each { name, tensor, site or nil }.
local function named(owner, params)
  if is_module(params) then
    local list = {} -- a frozen parameter (requires_grad(false)) is left out
    for _, p in ipairs(params:named_parameters()) do
      if p.tensor:requires_grad() then list[#list + 1] = p end
    end
    return sites.add(params, list)
  end
  local out = {}
  if type(params) ~= "table" then
    error(("%s: parameters are a module or a list of tensors; got %s"):format(owner, options.brief(params)), 0)
  end
  for i, p in ipairs(params) do
    if core.is_tensor(p) then
      out[i] = { name = tostring(i), tensor = p }
    elseif type(p) == "table" and core.is_tensor(p.tensor) then
      out[i] = { name = p.name or tostring(i), tensor = p.tensor }
    else
      error(("%s: parameter %d must be a tensor; got %s"):format(owner, i, tostring(p)), 0)
    end
  end
  return out
end

local function is_group_list(params)
  return type(params) == "table" and not is_module(params) and type(params[1]) == "table"
    and not core.is_tensor(params[1]) and params[1].params ~= nil
end

-- trust is for optimizers with a trust ratio: those with the option no_trust.
local function refuse_trust(owner, what, group, opt)
  if group.trust == nil or opt.no_trust then return end
  error(("%s: %s has trust, but %s has no trust ratio; LAMB and LARS have"):format(owner, what, owner), 0)
end

-- Does a parameter of this weight decay have a trust ratio? use_nvlamb is an option of FusedLAMB.
local function has_trust(opt, group, tensor, decay)
  if group and group.trust ~= nil then return group.trust end
  if opt.use_nvlamb == false and decay == 0 then return false end
  return not (opt.no_trust == "norm_and_bias" and tensor:dim() < 2)
end

-- What groups of a class may have: all of its options but those that choose parameters, where kernels read them.
local function options_of_groups(class)
  local all = {}
  for key, entry in pairs(group_options) do all[key] = entry end
  for key, entry in pairs(class.attrs and class.options or {}) do
    if not (all[key] or key == "groups" or key == "no_decay" or key == "no_trust" or key == "layer_decay") then
      all[key] = {}
      for field, value in pairs(entry) do all[key][field] = value end
      all[key].default, all[key].optional = nil, true
    end
  end
  return all
end

-- A group as it was given -> with its defaults, own: the options of the class that it gives, or nil.
local function checked_group(class, what, given, opt)
  local g = options.check(what, options_of_groups(class), given, 0)
  refuse_trust(class.name, what:sub(#class.name + 3), g, opt)
  for key in pairs(given) do
    if not group_options[key] then
      g.own = g.own or {}
      g.own[key] = g[key]
    end
  end
  if not g.lr then return g end
  if given.lr_scale or opt.lr == 0 then
    error(("%s: lr goes with no lr_scale, and not with a learning rate of the optimizer that is 0"):format(what), 0)
  end
  g.lr_scale = g.lr / opt.lr
  return g
end

-- Groups given in code -> the list of their parameters, each { name, tensor, lr_scale, weight_decay, trust, own }.
local function from_group_list(class, groups, opt)
  if opt.layer_decay then layer_decay.factors(class.name, groups, 1) end -- refused: groups are lists of parameters
  local out, owner = {}, class.name
  for i, given in ipairs(groups) do
    local g = checked_group(class, ("%s: group %d"):format(owner, i), given, opt)
    if not g.params then error(("%s: group %d has no 'params'"):format(owner, i), 0) end
    for _, p in ipairs(named(owner, g.params)) do
      local name = is_module(g.params) and p.name or ("%d.%s"):format(i, p.name)
      out[#out + 1] = { name = name, site = p.site or name, tensor = p.tensor, lr_scale = g.lr_scale,
                        weight_decay = g.weight_decay or opt.weight_decay, has_decay = g.weight_decay ~= nil,
                        trust = has_trust(opt, g, p.tensor, g.weight_decay or opt.weight_decay), own = g.own }
    end
  end
  return out
end

-- A module or a list of tensors, with the groups of a config -> the list of its parameters, each { name, tensor,
-- lr_scale, weight_decay, trust, own }.
local function with_settings(class, given, opt)
  local owner = class.name
  local params = named(owner, given)
  local groups = {}
  for i, one in ipairs(opt.groups or {}) do
    groups[i] = checked_group(class, ("%s: groups[%d]"):format(owner, i), one, opt)
    if not groups[i].match or groups[i].params then
      error(("%s: groups[%d] needs 'match', a pattern of parameter names (params is for code)"):format(owner, i), 0)
    end
  end
  local out, factor = {}, opt.layer_decay and layer_decay.factors(owner, given, opt.layer_decay) or {}
  for i, p in ipairs(params) do
    local g = matching.group(groups, p.name)
    local decay = opt.no_decay == "norm_and_bias" and p.tensor:dim() < 2 and 0 or opt.weight_decay
    out[i] = { name = p.name, site = p.site or p.name, tensor = p.tensor,
               lr_scale = (g and g.lr_scale or 1) * (factor[p.name] or 1),
               weight_decay = g and g.weight_decay or decay, has_decay = g and g.weight_decay ~= nil or false,
               trust = has_trust(opt, g, p.tensor, g and g.weight_decay or decay), own = g and g.own }
  end
  matching.refuse_idle(owner, groups, matching.names(given, params))
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
  if given and (given[1] ~= nil or options.is_of_type("module", given)) then
    error(("%s: options come first, parameters second: gm.optim.%s({ lr = 1e-3 }, model)"):format(class.name,
      class.name), 2)
  end
  local opt = {}
  for name, value in pairs(given or {}) do opt[name] = value end
  if opt.params ~= nil and params == nil then params = opt.params end
  opt.params = nil
  opt = options.check(class.name, class.options, opt, 2)
  if params == nil then error(class.name .. " needs parameters: give a module as the second argument", 2) end
  local items = is_group_list(params) and from_group_list(class, params, opt)
    or with_settings(class, params, opt)
  touched.check(class, opt, items)
  idle.refuse(class, opt, given or {}, items)
  local self = setmetatable({ opt = opt, lr = opt.lr, items = refuse_doubles(class.name, items), tensors = {},
    given = params }, class)
  for i, item in ipairs(items) do self.tensors[i] = item.tensor end
  self:build(opt, items)
  return self
end)

--- Creates what the optimizer needs; a class defines it. items: the list of { name, tensor, lr_scale, weight_decay,
-- trust }. self.given is what was given as parameters.
function Optimizer.build(_) end

--- Makes one update from the gradients. settings.lr is the rate (default self.lr). All gradients are multiplied by
-- settings.clip and divided by settings.loss_scale. A class with takes_control = true may receive settings.control
-- in place of both: a core.step_control(), which decides on the device.
function Optimizer:step() error(self.name .. " does not define step{ lr, clip }", 2) end

--- Forgets all gradients, so that the next backward pass sets them.
function Optimizer:zero_grad() core.zero_grad(self.tensors) end

--- Returns the tensors, besides the parameters, that the next steps depend on: a list of { name, tensor, store } in
-- which each name is unique. A checkpoint saves them. Where an entry has the function store, tensor is a copy of the
-- state, and store() takes the state from it.
function Optimizer.state(_) return {} end

-- What this rank holds of them: a list of { name, bytes, resting: outside of memory? }.
function Optimizer:held()
  local out = {}
  for i, entry in ipairs(self:state()) do
    out[i] = { name = entry.name, bytes = held.bytes(entry.tensor), resting = entry.resting }
  end
  return out
end

--- The number of updates made so far. Classes with counts_updates = true leave out steps that were skipped, and get
-- that number back when a run resumes; others get the number of all steps.
function Optimizer:steps() return self.step_count or 0 end
--- Sets the number of updates made so far, when a run resumes.
function Optimizer:set_steps(n) self.step_count = n end

--- Returns how many updates left a parameter out because it had no gradient: a list of { name, updates }, with the
-- parameters that missed any. Bias corrections do not count these updates. On a GPU the call waits for the device.
function Optimizer.missed(_) return {} end
--- Sets how many updates each parameter has missed, when a run resumes. numbers: { [name of a parameter] = updates }; a
-- parameter that is not in it has missed none.
function Optimizer:set_missed(numbers)
  if next(numbers) then error(self.name .. " does not count the updates that a parameter has missed", 0) end
end

--- For ganymede.train.step_kind: a number that changes whenever steps recorded before would make another update than
-- this optimizer does now.
function Optimizer.regrouped(_) return 0 end

--- Returns the bytes of the state that exists on this rank.
function Optimizer:bytes()
  local sum = 0
  for _, entry in ipairs(self:state()) do sum = sum + held.bytes(entry.tensor) end
  return sum
end

--- For ganymede.train.offload: bytes that all states take of a tier ("host" or "disk"), and those of the parameter that
-- has most.
function Optimizer.room() return 0, 0 end
--- For ganymede.train.offload: from here on this part of the states rests in the tier. unit: as core's.
function Optimizer:offload()
  error(("gm.initialize: %s keeps its states itself, so that offload.optimizer cannot move them"):format(self.name), 0)
end

function Optimizer:set_momentum()
  error(("%s has no momentum to change; give the scheduler cycle_momentum = false"):format(self.name), 0)
end

--- Makes a new class of optimizers and registers it under its name in registry.optimizers. Its own options are added
-- to lr, weight_decay, groups and no_decay. The class defines build, step and state.
function optim.class(name, own_options, parent)
  parent = parent or Optimizer
  options.refuse_class("optim.class " .. tostring(name), "optimizers", parent, Optimizer, own_options)
  local all = {}
  for key, entry in pairs(common) do all[key] = entry end
  for key, entry in pairs(own_options or {}) do all[key] = entry end
  local class = setmetatable({ name = name, options = all }, { __index = parent, __call = construct })
  class.__index, class.__tostring = class, function(self) return self.name .. options.show(self.options, self.opt) end
  registry.optimizers:register(name, class)
  return class
end

-- ---------------------------------------------------------------- over host/optim

local maximize = { type = "boolean", default = false, doc = "go up the gradients, to the largest loss?" }
local master_weights = { type = "boolean", default = true,
  doc = "whether each parameter of 16 bits has a copy in f32, which an update changes and then rounds into the "
    .. "parameter; if false, the parameter itself is updated with stochastic rounding" }

local state_dtype = { type = "string", one_of = { "f32", "bf16", "8bit" }, default = "f32",
  doc = "in what moments are kept: f32; bf16, rounded by chance; or 8 bits with a scale for each 256 elements "
    .. "(Dettmers et al. 2021). Parameters of fewer than 4096 elements keep f32" }
local SMALL = 4096
local kinds_of_states = { f32 = 0, bf16 = 1, ["8bit"] = 2 } -- GM_STATES_* of kernels/states.h

-- In what the moments of an item are kept. opt: the options that count for it.
local function states_of(self, item, opt)
  local kind = kinds_of_states[opt.state_dtype]
  if kind == 0 then return 0 end
  if self.kind == "sgd" and opt.momentum == 0 then
    error(("%s: state_dtype = %q is for moments, and without momentum there are none"):format(self.name,
      opt.state_dtype), 0)
  end
  if item.tensor:numel() < SMALL then return 0 end
  if item.tensor:dtype() == "f64" then
    error(("%s: state_dtype = %q, but '%s' is f64, whose moments are f64"):format(self.name, opt.state_dtype,
      item.name), 0)
  end
  return kind
end

-- The options that count for a group which gives some of its own.
local function overlaid(opt, own)
  local out = {}
  for key, value in pairs(opt) do out[key] = value end
  for key, value in pairs(own or {}) do out[key] = value end
  return out
end

-- The parent of optimizers whose update is a C kernel. A class defines `kind` and attrs(opt). The kernel reads what
-- step_control has decided.
local Fused = setmetatable({ takes_control = true, counts_updates = true }, { __index = Optimizer })

function Fused:build(opt, items)
  local lists, place = {}, {}
  for _, item in ipairs(items) do
    local own = item.own or opt
    local all = overlaid(opt, item.own)
    if not place[own] then
      local attrs = self.attrs(all)
      attrs.stochastic, attrs.maximize = not all.master_weights, all.maximize
      lists[#lists + 1], place[own] = attrs, #lists + 1
    end
    item.attrs, item.states = place[own], states_of(self, item, all)
  end
  if not lists[1] then lists[1] = self.attrs(opt) end -- of a stage without parameters
  self.core = core.optimizer(self.kind, self.tensors, lists, items)
end

Fused.step = signature.declare("optimizer:step", "optimizer table, settings options?", {
  lr = { type = "number", min = 0, optional = true, doc = "the learning rate of this update; default: optimizer.lr" },
  clip = { type = "number", default = 1, doc = "the factor by which all gradients are multiplied" },
  loss_scale = { type = "number", default = 1, doc = "the number by which all gradients are divided" },
  control = { type = "object", optional = true, doc = "a core.step_control(), which replaces clip and loss_scale" },
}, function(self, settings)
  self.core:step { lr = settings.lr or rate(self), clip = settings.clip, loss_scale = settings.loss_scale,
    control = settings.control }
end)

function Fused:state()
  local out = {}
  for i, entry in ipairs(self.core:state()) do
    local numbers = not entry.tensor and self.core:numbers(entry.parameter, entry.place)
    out[i] = { name = ("%s/%s"):format(entry.name, self.items[entry.parameter].name),
               tensor = entry.tensor or numbers, resting = entry.resting }
    if numbers then
      out[i].store = function() self.core:set_numbers(entry.parameter, entry.place, numbers) end
    end
  end
  return out
end

function Fused:held()
  local out = {}
  for i, entry in ipairs(self.core:state()) do
    out[i] = { name = ("%s/%s"):format(entry.name, self.items[entry.parameter].name), resting = entry.resting,
               bytes = entry.bytes or held.bytes(entry.tensor) }
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

function Fused:regrouped() return self.core:regrouped() end
function Fused:prepare() self.core:prepare(rate(self)) end
function Fused:bytes() return self.core:bytes() end
function Fused:room(kind) return self.core:room(kind) end
function Fused:offload(tier, fraction, unit) touched.offload(self, tier, fraction, unit) end
function Fused:set_momentum(value)
  self.momentum_set = value
  self.core:set_momentum(value)
end

--- The velocity is v = momentum v + (1 - dampening) g, and w = w - lr v (Sutskever et al. 2013, in PyTorch's form).
local sgd_options = {
  momentum = { type = "number", min = 0, below = 1, default = 0,
    doc = "the factor of the velocity v of the step before; 0: no momentum" },
  dampening = { type = "number", default = 0,
    doc = "the part of the gradient that does not enter the velocity; needs momentum above 0" },
  nesterov = { type = "boolean", default = false,
    doc = "whether w moves by g + momentum v in place of v (Nesterov); needs momentum above 0, dampening 0" },
  master_weights = master_weights, maximize = maximize, state_dtype = state_dtype,
}
local SGD = optim.class("SGD", sgd_options, Fused)
optim.SGD = SGD
SGD.kind = "sgd"

function SGD.attrs(opt)
  if opt.dampening ~= 0 and opt.momentum == 0 then
    error("SGD: dampening needs momentum above 0: without a velocity it changes nothing", 0)
  end
  if opt.nesterov and (opt.momentum == 0 or opt.dampening ~= 0) then
    error("SGD: nesterov needs momentum above 0 and dampening 0", 0)
  end
  return { momentum = opt.momentum, dampening = opt.dampening, nesterov = opt.nesterov,
           weight_decay = opt.weight_decay }
end

function SGD.takes_rows(opt, tensor)
  return opt.momentum ~= 0 and "momentum moves all rows" or touched.reason(opt, tensor)
end

function SGD:set_momentum(value)
  if self.opt.momentum == 0 then return Optimizer.set_momentum(self) end
  Fused.set_momentum(self, value)
end

local adam_options = {
  master_weights = master_weights, maximize = maximize, state_dtype = state_dtype,
  betas = { type = "list", default = { 0.9, 0.999 },
    doc = "{ beta1, beta2 }: the decay rates of the running means of the gradient and of its square, each from 0, "
      .. "below 1" },
  eps = { type = "number", min = 0, default = 1e-8,
    doc = "a number added to the square root of the second moment, which prevents a division by 0" },
  amsgrad = { type = "boolean", default = false,
    doc = "whether updates are divided by the root of the largest second moment so far (Reddi, Kale and Kumar 2018)" },
}

local function adam_attrs(name, decoupled)
  return function(opt)
    local b1, b2 = numbers_of(name, opt, "betas", 2)
    return { beta1 = b1, beta2 = b2, eps = opt.eps, weight_decay = opt.weight_decay, decoupled = decoupled,
             amsgrad = opt.amsgrad }
  end
end

--- The method of Kingma and Ba (2015). Weight decay adds weight_decay w to the gradient.
local Adam = optim.class("Adam", adam_options, Fused)
optim.Adam = Adam
Adam.kind, Adam.attrs = "adam", adam_attrs("Adam", false)

--- The method of Loshchilov and Hutter (2019). Weight decay multiplies w by 1 - lr weight_decay and does not enter the
-- moments.
local AdamW = optim.class("AdamW", {
  betas = adam_options.betas, eps = adam_options.eps, amsgrad = adam_options.amsgrad,
  master_weights = master_weights, maximize = maximize, state_dtype = state_dtype,
  weight_decay = { type = "number", min = 0, default = 0.01, doc = common.weight_decay.doc },
}, Fused)
optim.AdamW = AdamW
AdamW.kind, AdamW.attrs = "adam", adam_attrs("AdamW", true)

require "ganymede.optim.families"(optim, Fused, {
  lr = common.lr, weight_decay = common.weight_decay, betas = adam_options.betas, eps = adam_options.eps,
  amsgrad = adam_options.amsgrad, sgd = sgd_options,
  fused = { master_weights = master_weights, maximize = maximize, state_dtype = state_dtype },
})
local shared = { lr = common.lr, maximize = maximize, betas = adam_options.betas, eps = adam_options.eps,
  master_weights = master_weights }
for _, name in ipairs { "adafactor", "came", "galore", "muon" } do
  require("ganymede.optim." .. name)(optim, shared, Fused)
end

signature.export("optimizer", Fused, ":", { "held", "offload", "regrouped", "room" })
signature.export("optimizer", Optimizer, ":", { "build", "held", "step", "set_momentum", "offload", "regrouped",
  "room" })
return require("ganymede.base.missing").guard("optim", signature.export("optim", optim))
