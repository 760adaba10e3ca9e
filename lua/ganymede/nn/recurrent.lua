--- Recurrent layers: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014, with the reset gate behind the
-- product, as in cuDNN), with the parameters, names and initial weights of PyTorch.
--
--     local y, state = nn.LSTM { inputs = 8, hidden = 16, layers = 2 }(x)       -- state = { h, c }
--     local y, h = nn.GRU { inputs = 8, hidden = 16, bidirectional = true }(x, h)
--
-- x is (samples, length, inputs), y (samples, length, hidden), twice as wide if the layer looks both ways. A state is
-- (layers, samples, hidden), with two rows for each layer that looks both ways, forward first; without one the layers
-- begin with zeros. Ranks may share the samples, and not the length. Tensor parallelism does not cut these layers.
-- One product for all places of a sequence makes the part of x. The steps that follow, each a product of h and a cell,
-- are core.recurrent (host/parallel/sharded/recurrent.h).
-- @module ganymede.nn.recurrent
local core = require "ganymede.core"
local dropout = require "ganymede.nn.dropout"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"

local M = {}

local shared = {
  inputs = { type = "integer", min = 1, doc = "the width of x" },
  hidden = { type = "integer", min = 1, doc = "the width of the state" },
  layers = { type = "integer", min = 1, default = 1, doc = "how many layers stand on each other" },
  bias   = { type = "boolean", default = true, doc = "whether the two biases of each layer are added" },
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element between two layers is dropped in training" },
  bidirectional = { type = "boolean", default = false,
    doc = "whether a second part of each layer goes through the sequence from its end" },
  returns = { type = "string", default = "all", one_of = { "all", "sequence", "last" },
    doc = "what a call returns; all: y and the last state, sequence: y alone, last: the last h of the uppermost layer, "
      .. "(samples, hidden), of both ways beside each other" },
}

local Recurrent = {} -- the methods of both; kind: that of the cell; gates: how many it has; parts: of a state

-- The ends of the names of a layer's parameters, one for each way, as in PyTorch.
local function ways(opt, layer)
  local name = "l" .. layer - 1
  return opt.bidirectional and { name, name .. "_reverse" } or { name }
end

function Recurrent:build(opt)
  if opt.dropout > 0 and opt.layers == 1 then
    error(("%s: dropout is between layers, and there is one layer; give layers = 2 or more, or no dropout")
      :format(self.name), 3)
  end
  local rows = self.gates * opt.hidden
  local function drawn() return init.resolve(nil, init.dense_bias, opt.hidden) end
  for layer = 1, opt.layers do
    local width = layer == 1 and opt.inputs or #ways(opt, 1) * opt.hidden
    for _, way in ipairs(ways(opt, layer)) do
      self:param("weight_ih_" .. way, { rows, width }, drawn())
      self:param("weight_hh_" .. way, { rows, opt.hidden }, drawn())
      if opt.bias then
        self:param("bias_ih_" .. way, { rows }, drawn())
        self:param("bias_hh_" .. way, { rows }, drawn())
      end
    end
  end
  if opt.dropout > 0 then self.dropout = dropout.Dropout(opt.dropout) end
end

-- Samples and length change places.
local function turned(x) return ops.permute(x, { 2, 1, 3 }) end

-- One way through a sequence x (length, samples, width). state: the first one, a list of tensors (samples, hidden), or
-- nil: zeros. -> y, and the last state.
local function pass(self, x, way, state, backwards)
  local bias = self.opt.bias
  local given = ops.linear(x, self:use("weight_ih_" .. way), bias and self:use("bias_ih_" .. way) or nil)
  local y, c = core.recurrent(self.kind, given, self:use("weight_hh_" .. way), bias and self:use("bias_hh_" .. way),
    state and state[1], state and state[2], backwards)
  return y, { ops.select(y, 1, backwards and 1 or y:size(1)), c }
end

-- The given state of one way of one layer -> a list of tensors, or nil.
local function part_of(given, row)
  if not given then return nil end
  local list = {}
  for i, t in ipairs(given) do list[i] = ops.select(t, 1, row) end
  return list
end

-- Checks a state and makes a list of it.
local function listed(self, state, x)
  if state == nil then return nil end
  local list = core.is_tensor(state) and { state } or state
  local rows = self.opt.layers * (self.opt.bidirectional and 2 or 1)
  if type(list) ~= "table" or #list ~= self.parts then
    error(("%s: a state is %s; got %s"):format(self.name, self.parts == 1 and "a tensor" or "a list { h, c }",
      options.brief(state)), 4)
  end
  for _, t in ipairs(list) do
    local shape = core.is_tensor(t) and t:shape() or {}
    if #shape ~= 3 or shape[1] ~= rows or shape[2] ~= x:size(1) or shape[3] ~= self.opt.hidden then
      error(("%s: a state must be (%d, %d, %d): layers, samples, hidden; got %s"):format(self.name, rows, x:size(1),
        self.opt.hidden, core.is_tensor(t) and "(" .. table.concat(shape, ", ") .. ")" or options.brief(t)), 4)
    end
  end
  return list
end

--- x (samples, length, inputs) -> y (samples, length, hidden), and the last state of each layer and way, or what
-- `returns` says.
function Recurrent:forward(x, state)
  local opt, last, row = self.opt, {}, 0
  if x:dim() ~= 3 or x:size(3) ~= opt.inputs or x:size(2) == 0 then
    error(("%s: x must be (samples, length, %d) with a length of 1 or more; got (%s)"):format(self.name, opt.inputs,
      table.concat(x:shape(), ", ")), 3)
  end
  state = listed(self, state, x)
  x = turned(x)
  for i = 1, self.parts do last[i] = {} end
  for layer = 1, opt.layers do
    local both = {}
    for w, way in ipairs(ways(opt, layer)) do
      local ended
      row = row + 1
      both[w], ended = pass(self, x, way, part_of(state, row), w == 2)
      for i = 1, self.parts do last[i][row] = ended[i] end
    end
    x = #both == 2 and ops.cat(both, 3) or both[1]
    -- which elements are dropped depends on their samples, which dropout looks for in front
    if self.dropout and layer < opt.layers then x = turned(self.dropout(turned(x))) end
  end
  if opt.returns == "last" then
    return opt.bidirectional and ops.cat({ last[1][row - 1], last[1][row] }, 2) or last[1][row]
  end
  x = turned(x)
  if opt.returns == "sequence" then return x end
  for i = 1, self.parts do last[i] = ops.stack(last[i], 1) end
  return x, self.parts == 1 and last[1] or last
end

local function with(name, gates, parts)
  local class = module.class(name)
  class.positional = { "inputs", "hidden", "layers" }
  class.aliases = { input_size = "inputs", hidden_size = "hidden", num_layers = "layers" }
  class.options, class.kind, class.gates, class.parts = shared, name, gates, parts
  for key, method in pairs(Recurrent) do class[key] = method end
  M[name] = class
end

with("LSTM", 4, 2)
with("GRU", 3, 1)

return M
