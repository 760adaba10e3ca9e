--- A model's output that has not been made: x (..., width), the weight and bias of its head, and in pieces of how many
-- rows losses and metrics shall look at it, so that the logits (..., classes) never exist whole.
--
--     local model = models.GPT { vocabulary = 50257, head_chunk = 1024 }
--     criterion(model(tokens), targets)      CrossEntropyLoss and BERTLoss take it; so does gm.metrics.hits
--     model(tokens):logits()                 all logits, for who needs them
--
-- It is no tensor, and says so to who takes it for one. The trap: it is made of the weights as they are when it is
-- used; after an update :logits() refuses, and what hits tells was found when the loss was computed.
-- @module ganymede.nn.projection
local tensors = require "ganymede.tensor"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"

local projection = {}

local Projection = {}
local meta = { __name = "a Projection, the output of a head in pieces (head_chunk); its :logits() are a tensor" }

function meta.__index(_, key)
  local method = Projection[key]
  if method ~= nil then return method end
  error(("'%s' of %s"):format(tostring(key), meta.__name), 2)
end

local function refuse() error("arithmetic with " .. meta.__name, 2) end
for _, event in ipairs { "__add", "__sub", "__mul", "__div", "__unm", "__pow" } do meta[event] = refuse end

--- Of x (..., width), weight (classes, width) and bias (classes) or nil, `rows` rows of a rank at a time; computed
-- under the path of its head. places: where the largest logits are, once `found`, or false where nobody wants them.
function projection.new(x, weight, bias, rows, path)
  return setmetatable({ x = x, weight = weight, bias = bias or false, rows = rows, path = path,
                        version = core.version(weight), places = false, found = false }, meta)
end

function projection.is(x) return type(x) == "table" and getmetatable(x) == meta end

local function finish(before, ok, ...)
  core.set_path(before)
  if not ok then error((...), 0) end
  return ...
end

-- fn(...) under the path of the head: its work and memory are that module's.
local function under_path(self, fn, ...) return finish(core.set_path(self.path), pcall(fn, ...)) end

local function check_version(self)
  if core.version(self.weight) == self.version then return end
  error(("the weights of %s have been updated since; look at it before the update"):format(meta.__name), 0)
end

local function bias_of(self) return self.bias or nil end

--- All of it: (..., classes), differentiable.
function Projection:logits()
  check_version(self)
  return under_path(self, function() return ops.linear(self.x, self.weight, bias_of(self)):settle() end)
end

--- Sum of the cross entropies with target (...), a scalar; options: ignore_index, label_smoothing.
function Projection:cross_entropy(target, options)
  check_version(self)
  local sum, places = under_path(self, ops.linear_cross_entropy, self.x, self.weight, bias_of(self), target, {
    rows = self.rows, places = self.places and true, ignore_index = options.ignore_index,
    label_smoothing = options.label_smoothing,
  })
  if places then
    core.become(self.places, places) -- which so outlives the scope of the loss
    self.found = true
  end
  return sum
end

local NOTHING = -100 -- a target that costs nothing

--- Where the largest logits are, (...) i64: from the last loss if it was told to find them, else found now.
function Projection:argmax()
  if self.found then return self.places end
  check_version(self)
  local shape = self.x:shape()
  shape[#shape] = nil
  local target = tensors.full(shape, NOTHING, { dtype = "i64" })
  local _, places = tensors.no_grad(under_path, self, ops.linear_cross_entropy, self.x, self.weight, bias_of(self),
    target, { rows = self.rows, places = true, ignore_index = NOTHING })
  return places
end

-- ---------------------------------------------------------------- outputs that may hold some

-- The output with fn(projection) in place of each Projection: itself, or an entry of a table. fn may return it.
local function mapped(output, fn)
  if projection.is(output) then return fn(output) end
  if type(output) ~= "table" or getmetatable(output) then return output end
  local out = {}
  for key, value in pairs(output) do out[key] = mapped(value, fn) end
  return out
end

--- Says that losses shall find places, for who looks at the output after the update. Returns the output.
function projection.keep_places(output)
  return mapped(output, function(p)
    p.places = p.places or tensors.full({}, 0, { dtype = "i64" })
    return p
  end)
end

--- The output with logits in place of Projections.
function projection.whole(output)
  return mapped(output, function(p) return p:logits() end)
end

local PLAIN = "a Projection" -- marks the table that stands for one

--- The output with plain tables in place of Projections, which packing can take, and back.
function projection.to_plain(output)
  return mapped(output, function(p)
    local out = { [PLAIN] = true }
    for key, value in pairs(p) do out[key] = value end
    return out
  end)
end

--- See to_plain.
function projection.from_plain(output)
  if type(output) ~= "table" or getmetatable(output) then return output end
  local out = {}
  for key, value in pairs(output) do out[key] = projection.from_plain(value) end
  if not out[PLAIN] then return out end
  out[PLAIN] = nil
  return setmetatable(out, meta)
end

--- Pieces of a batch as one; join(list of tensors) joins theirs.
function projection.join(pieces, join)
  local xs, places, out = {}, {}, {}
  for key, value in pairs(pieces[1]) do out[key] = value end
  for i, p in ipairs(pieces) do
    xs[i], places[i] = p.x, p.places
    out.found = out.found and p.found
  end
  out.x, out.places = join(xs), out.found and join(places)
  return setmetatable(out, meta)
end

return projection
