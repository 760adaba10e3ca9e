--- A model's output that is not computed yet: x (..., width), the weight and bias of the head, and the number of rows
-- that losses and metrics compute at a time. So the logits (..., classes) never exist as a whole.
--
--     local model = models.GPT { vocabulary = 50257, head_chunk = 1024 }
--     criterion(model(tokens), targets)      CrossEntropyLoss, BERTLoss and gm.metrics.hits take it
--     model(tokens):logits()                 all logits, as a tensor
--
-- It is not a tensor; using it as one is an error that says what it is. The trap: it uses the weights as they are when
-- it is read. After an update :logits() is an error, and metrics.hits returns what the loss has found.
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

--- Makes a Projection of x (..., width), weight (classes, width) and bias (classes) or nil, which computes `rows` rows
-- of a rank at a time, under the path of its head. Its field places is the indices of the largest logits, valid if
-- `found` is true; it is false if nobody wants them.
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

-- Runs fn(...) under the path of the head, so that its work and memory count for that module.
local function under_path(self, fn, ...) return finish(core.set_path(self.path), pcall(fn, ...)) end

local function check_version(self)
  if core.version(self.weight) == self.version then return end
  error(("the weights of %s have been updated since it was made; use it before the update"):format(meta.__name), 0)
end

local function bias_of(self) return self.bias or nil end

--- Returns all logits, (..., classes), differentiable.
function Projection:logits()
  check_version(self)
  return under_path(self, function() return ops.linear(self.x, self.weight, bias_of(self)):settle() end)
end

--- Returns the sum of the cross entropies with target (...), a scalar. options: ignore_index, label_smoothing, scale.
function Projection:cross_entropy(target, options)
  check_version(self)
  local sum, places = under_path(self, ops.linear_cross_entropy, self.x, self.weight, bias_of(self), target, {
    rows = self.rows, places = self.places and true, ignore_index = options.ignore_index,
    label_smoothing = options.label_smoothing, scale = options.scale,
  })
  if places then
    core.become(self.places, places) -- so they outlive the scope of the loss
    self.found = true
  end
  return sum
end

local NOTHING = -100 -- a target that adds nothing to the loss

--- Returns the indices of the largest logits, (...) i64: those that the last loss found, if it was told to find them;
-- otherwise it computes them.
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

-- Returns the output with fn(projection) in place of each Projection, which is the output itself or an entry of a
-- table. fn may return the projection.
local function mapped(output, fn)
  if projection.is(output) then return fn(output) end
  if type(output) ~= "table" or getmetatable(output) then return output end
  local out = {}
  for key, value in pairs(output) do out[key] = mapped(value, fn) end
  return out
end

--- Tells losses to keep the places of the largest logits, for hooks that use the output after the update. Returns the
-- output.
function projection.keep_places(output)
  return mapped(output, function(p)
    p.places = p.places or tensors.full({}, 0, { dtype = "i64" })
    return p
  end)
end

--- Returns the output with logits in place of Projections.
function projection.whole(output)
  return mapped(output, function(p) return p:logits() end)
end

local PLAIN = "a Projection" -- marks the table that stands for one

--- Returns the output with plain tables, which can be packed, in place of Projections; from_plain turns them back.
function projection.to_plain(output)
  return mapped(output, function(p)
    local out = { [PLAIN] = true }
    for key, value in pairs(p) do out[key] = value end
    return out
  end)
end

--- Returns the output with Projections in place of the plain tables that to_plain made.
function projection.from_plain(output)
  if type(output) ~= "table" or getmetatable(output) then return output end
  local out = {}
  for key, value in pairs(output) do out[key] = projection.from_plain(value) end
  if not out[PLAIN] then return out end
  out[PLAIN] = nil
  return setmetatable(out, meta)
end

--- Makes one Projection of those of the pieces of a batch. join(list of tensors) joins their tensors.
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
