--- Muon: momentum whose update of each hidden matrix is orthogonalised (Jordan 2024,
-- https://kellerjordan.github.io/posts/muon/); other parameters are AdamW's, inside of the same optimizer.
--
--     optimizer = { type = "Muon", lr = 0.02, momentum = 0.95, adamw = { lr = 3e-4, betas = { 0.9, 0.95 } } }
--     optimizer = { type = "Muon", lr = 3e-4, adjust_lr_fn = "match_rms_adamw" }      -- Moonlight, arXiv:2502.16982
--
-- The options have the names of torch.optim.Muon, and the numbers are the same in f64; torch iterates in bf16, this in
-- f32. ganymede.optim.hidden_matrices says which parameters are hidden matrices.
--
-- A scheduler moves both rates: AdamW's is always adamw.lr / lr times the rate.
-- On several ranks each matrix is gathered by one of them, whatever cuts it (host/optim/muon.h).
-- The trap: query, key and value of attention are one matrix, unless split_qkv = true.
-- @module ganymede.optim.muon
local core = require "ganymede.core"
local hidden_matrices = require "ganymede.optim.hidden_matrices"
local options = require "ganymede.base.options"

-- How the rows of a matrix are shared out among several: those of query, key and value, if they shall be.
local function parts_of(opt, declared)
  return opt.split_qkv and declared and declared.entry.name == "weight" and rawget(declared.module, "row_parts") or nil
end

-- ---------------------------------------------------------------- two optimizers as one

-- The C side: muon has some of the items, adam the others. Its methods are those of core.optimizer.
local Pair = {}
Pair.__index = Pair

-- Entries of a part's list by the places of all items.
local function renumbered(list, places, out)
  for _, entry in ipairs(list) do
    out[#out + 1] = { parameter = places[entry.parameter], name = entry.name, tensor = entry.tensor }
  end
end

function Pair:step(values)
  self.muon:step(values)
  self.adam:step(values)
end

function Pair:state()
  local out = {}
  renumbered(self.muon:state(), self.muon_places, out)
  renumbered(self.adam:state(), self.adam_places, out)
  return out
end

function Pair:steps() return self.adam:steps() end

function Pair:set_steps(n)
  self.muon:set_steps(n)
  self.adam:set_steps(n)
end

function Pair:set_skipped(n)
  self.muon:set_skipped(n)
  self.adam:set_skipped(n)
end

-- An update of Muon depends on no number of steps.
function Pair:missed()
  local out = {}
  for _, place in ipairs(self.muon_places) do out[place] = 0 end
  for i, n in ipairs(self.adam:missed()) do out[self.adam_places[i]] = n end
  return out
end

function Pair:set_missed(list)
  local own = {}
  for i, place in ipairs(self.adam_places) do own[i] = list[place] end
  self.adam:set_missed(own)
end

function Pair:regrouped() return self.adam:regrouped() end
function Pair:prepare(lr) self.adam:prepare(lr) end -- the step's numbers, which are muon's, too
function Pair:bytes() return self.muon:bytes() + self.adam:bytes() end

-- What AdamW needs to know of an item: its rate and decay are in proportion to adamw's own.
local function adam_item(opt, item, adamw)
  local spared = opt.no_decay == "norm_and_bias" and item.tensor:dim() < 2
  return { site = item.site, lr_scale = item.lr_scale * adamw.lr / opt.lr,
    weight_decay = (item.has_decay or spared) and item.weight_decay or adamw.weight_decay }
end

-- The items of both parts: lists of tensors, settings, and places among all items.
local function dealt_out(opt, items, declared, adamw)
  local muon, adam = { tensors = {}, items = {}, places = {} }, { tensors = {}, items = {}, places = {} }
  local is_matrix = hidden_matrices.choose("Muon", opt, items, declared)
  for i, item in ipairs(items) do
    local list = is_matrix[i] and muon or adam
    local n = #list.tensors + 1
    list.tensors[n], list.places[n] = item.tensor, i
    list.items[n] = is_matrix[i] and { site = item.site, lr_scale = item.lr_scale, weight_decay = item.weight_decay,
      parts = parts_of(opt, declared[item.tensor]) } or adam_item(opt, item, adamw)
  end
  return muon, adam
end

local function new_pair(opt, items, declared, adamw)
  local muon, adam = dealt_out(opt, items, declared, adamw)
  local c, stochastic = opt.ns_coefficients, not opt.master_weights
  local rule = { momentum = opt.momentum, nesterov = opt.nesterov, stochastic = stochastic, steps = opt.ns_steps,
    match_rms_adamw = opt.adjust_lr_fn == "match_rms_adamw", a = c[1], b = c[2], c = c[3], eps = opt.eps }
  local attrs = { beta1 = adamw.betas[1], beta2 = adamw.betas[2], eps = adamw.eps, decoupled = true,
    stochastic = stochastic }
  return setmetatable({
    muon = core.muon(muon.tensors, rule, muon.items), muon_places = muon.places,
    adam = core.optimizer("adam", adam.tensors, attrs, adam.items), adam_places = adam.places,
  }, Pair)
end

--- Adds the class to the optimizers; common: options that others have, too; Fused: the parent of optimizers with a C
-- kernel.
return function(optim, common, Fused)
  local chosen = hidden_matrices.options "orthogonalised"
  local Muon = optim.class("Muon", {
    lr = { type = "number", above = 0, default = 1e-3,
      doc = "the learning rate of the matrices, before the scheduler" },
    weight_decay = { type = "number", min = 0, default = 0.1,
      doc = "the weight decay, apart from the gradient, of every parameter for which groups or adamw do not give "
        .. "another" },
    momentum = { type = "number", min = 0, below = 1, default = 0.95,
      doc = "the share of the momentum that is kept in each step" },
    nesterov = { type = "boolean", default = true,
      doc = "whether the update mixes the new gradient into the momentum once more (Nesterov)" },
    ns_steps = { type = "integer", min = 1, max = 99, default = 5, doc = "the number of Newton-Schulz iterations" },
    ns_coefficients = { type = "list", default = { 3.4445, -4.775, 2.0315 },
      doc = "the three coefficients a, b and c of an iteration, X <- a X + b X X' X + c X X' X X' X" },
    eps = { type = "number", above = 0, default = 1e-7,
      doc = "the least norm by which a matrix is divided before the iterations" },
    adjust_lr_fn = { type = "string", one_of = { "original", "match_rms_adamw" }, default = "original",
      doc = "what the update of a matrix is multiplied by: original is sqrt(max(1, rows / columns)); match_rms_adamw "
        .. "is 0.2 sqrt(max(rows, columns)), which makes updates as large as AdamW's, so that AdamW's rates fit" },
    split_qkv = { type = "boolean", default = false,
      doc = "whether the rows of queries, keys and values in attention are three matrices; else they are one" },
    include = chosen.include, exclude = chosen.exclude,
    adamw = { type = "table", default = {},
      doc = "the options of AdamW, for all other parameters: { lr, betas, eps, weight_decay }; lr and weight_decay "
        .. "are the optimizer's own if they are left out" },
    master_weights = common.master_weights,
  }, Fused)
  optim.Muon = Muon

  local adamw_options = {
    lr = { type = "number", min = 0, optional = true, doc = "the learning rate, before the scheduler" },
    betas = common.betas,
    eps = common.eps,
    weight_decay = { type = "number", min = 0, optional = true, doc = "the weight decay, apart from the gradient" },
  }

  local function numbers(what, list, n, min, below)
    for i = 1, n do
      local x = list[i]
      if type(x) ~= "number" or not (x >= min and x < below) or #list ~= n then
        error(("Muon: %s must be a list of %d numbers%s"):format(what, n,
          min > -math.huge and (" from %g, below %g"):format(min, below) or ""), 0)
      end
    end
  end

  function Muon:build(opt, items)
    local adamw = options.check("Muon: adamw", adamw_options, opt.adamw, 0)
    adamw.lr, adamw.weight_decay = adamw.lr or opt.lr, adamw.weight_decay or opt.weight_decay
    numbers("ns_coefficients", opt.ns_coefficients, 3, -math.huge, math.huge)
    numbers("adamw.betas", adamw.betas, 2, 0, 1)
    self.core = new_pair(opt, items, hidden_matrices.declarations(self.given), adamw)
  end

  Muon.offload, Muon.room = optim.Optimizer.offload, optim.Optimizer.room -- states stay in memory

  --- Elements of the matrices that this rank iterates on; of all ranks of a stage they add up to those of all matrices.
  function Muon:owned() return self.core.muon:owned() end

  function Muon:set_momentum()
    error("Muon keeps its momentum: give the scheduler cycle_momentum = false", 0)
  end
end
