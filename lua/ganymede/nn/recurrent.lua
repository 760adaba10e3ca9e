--- Recurrent layers: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014, with the reset gate behind the
-- product, as in cuDNN), with the parameters, names and initial weights of PyTorch.
--
--     local y, state = nn.LSTM { inputs = 8, hidden = 16, layers = 2 }(x)       -- state = { h, c }
--     local y, h = nn.GRU { inputs = 8, hidden = 16, bidirectional = true }(x, h)
--
-- x is (samples, length, inputs), y (samples, length, hidden), twice as wide if the layer looks both ways. A state is
-- (layers, samples, hidden), with two rows for each layer that looks both ways, forward first; without one the layers
-- begin with zeros. Ranks may share the samples, and not the length. Tensor parallelism does not cut these layers.
-- One product for all places of a sequence makes the part of x; the steps that follow are products of h alone.
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

local Recurrent = {} -- the methods of both; gates: how many a cell has; parts: of a state

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

-- Appends the places of x (samples, length, ...) to out, each without the dimension of the length. Backward, each cut
-- costs the bytes of what it is cut from, so eight at a time: their sum is that of x, 8 log8(length) times.
local function places(x, out)
  local length = x:size(2)
  if length <= 8 then
    for _, place in ipairs { ops.unbind(x, 2) } do out[#out + 1] = place end
  else
    for _, piece in ipairs { ops.chunk(x, 8, 2) } do places(piece, out) end
  end
  return out
end

-- The reverse; at most 64 tensors can be joined at a time.
local function joined(list)
  local pieces = {}
  for from = 1, #list, 64 do
    pieces[#pieces + 1] = ops.stack({ unpack(list, from, math.min(from + 63, #list)) }, 2)
  end
  while #pieces > 1 do
    local fewer = {}
    for from = 1, #pieces, 64 do
      fewer[#fewer + 1] = ops.cat({ unpack(pieces, from, math.min(from + 63, #pieces)) }, 2)
    end
    pieces = fewer
  end
  return pieces[1]
end

-- One way through a sequence. state: the first one, a list of tensors (samples, hidden), or nil: zeros, which no
-- product has to meet. -> y, and the last state.
local function pass(self, x, way, state, backwards)
  local hidden, bias = self:use("weight_hh_" .. way), self.opt.bias and self:use("bias_hh_" .. way)
  local given = ops.linear(x, self:use("weight_ih_" .. way), self.opt.bias and self:use("bias_ih_" .. way) or nil)
  given = places(given, {})
  local out = {}
  for i = 1, #given do
    local at = backwards and #given + 1 - i or i
    local moved = state and ops.linear(state[1], hidden, bias or nil) or bias or nil
    state = self.cell(given[at], moved, state)
    out[at] = state[1]
  end
  return joined(out), state
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
    if self.dropout and layer < opt.layers then x = self.dropout(x) end
  end
  if opt.returns == "sequence" then return x end
  if opt.returns == "last" then
    return opt.bidirectional and ops.cat({ last[1][row - 1], last[1][row] }, 2) or last[1][row]
  end
  for i = 1, self.parts do last[i] = ops.stack(last[i], 1) end
  return x, self.parts == 1 and last[1] or last
end

local function with(name, gates, parts, cell)
  local class = module.class(name)
  class.positional = { "inputs", "hidden", "layers" }
  class.aliases = { input_size = "inputs", hidden_size = "hidden", num_layers = "layers" }
  class.options, class.gates, class.parts, class.cell = shared, gates, parts, cell
  for key, method in pairs(Recurrent) do class[key] = method end
  M[name] = class
end

-- x (..., count hidden), the numbers of the gates of a cell beside each other -> one tensor for each. Backward, an op
-- that reads such a slice alone writes its gradient to its place.
local function gates(x, count)
  local shape = x:shape()
  local last = #shape
  shape[last], shape[last + 1] = count, shape[last] / count
  return ops.unbind(ops.reshape(x, shape), last)
end

-- given: the part of x; moved: that of h, or nil; state: { h, c } or nil.
with("LSTM", 4, 2, function(given, moved, state)
  local input, forget, candidate, output = gates(moved and ops.add(given, moved) or given, 4)
  local c = ops.mul(ops.sigmoid(input), ops.tanh(candidate))
  if state then c = ops.add(ops.mul(ops.sigmoid(forget), state[2]), c) end
  return { ops.mul(ops.sigmoid(output), ops.tanh(c)), c }
end)

with("GRU", 3, 1, function(given, moved, state)
  local reset, update, candidate = gates(given, 3)
  if moved then
    local parts = { gates(moved, 3) }
    candidate = ops.add(candidate, ops.mul(ops.sigmoid(ops.add(reset, parts[1])), parts[3]))
    update = ops.add(update, parts[2])
  end
  local z, n = ops.sigmoid(update), ops.tanh(candidate)
  local h = ops.sub(n, ops.mul(z, n))
  return { state and ops.add(h, ops.mul(z, state[1])) or h }
end)

return M
