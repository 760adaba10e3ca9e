--- Scales of floats of 8 bits that are kept from step to step ("delayed" scaling): a layer rounds with the scale that
-- the last steps needed, so each tensor is read once, and the ranks exchange all maxima of a step in one message.
--
--     float8 = { scaling = "delayed", history = 16 }          -- in a recipe; the engine calls update after each step
--     gm.float8(model, { scaling = "delayed" })               -- in a program of your own,
--     gm.float8_update(model)                                 -- and this after each update of the parameters
--
-- A layer has three tensors: x, w and the gradient of y. For each of them there are here, in one tensor for all layers:
--     scale    (layers, 3)             what codes are made with until the next update; 0: the layer has never run
--     needed   (layers, 3)             the largest scale that the tensor has needed since the last update, on this rank
--     history  (history, layers, 3)    what it needed in the last steps, the newest first; 0: nothing to learn from
-- A scale is the largest of its history times 2^margin (as amax_compute_algo "max" of NVIDIA's Transformer Engine). A
-- scale grows with the magnitude, so the largest scale is that of the largest magnitude. A step in which a tensor was
-- zero or not finite leaves no entry. Without any entry the scale stays as it is; it is 1 in the beginning.
-- All ranks hold the rows of all layers, also of those on other stages, and know the same numbers after an update.
-- So these tensors are the same in every layout.
-- Until a layer has been through an update, it finds its scales as without a history. Evaluation reads scales and
-- leaves the rest alone. What the host knows (has a layer run?) follows from the scales, so a checkpoint needs no more.
-- The trap: scales may change only when all backward passes of a step are over. Backward refuses to run after that.
-- @module ganymede.nn.float8_history
local core = require "ganymede.core"
local held = require "ganymede.tensor.held"
local ops = require "ganymede.tensor.ops"
local tensors = require "ganymede.tensor"

local TENSORS = 3 -- of a layer: x, w, the gradient of y
local NAMES = { "x", "w", "dy" }
local NOTHING = 2 ^ -126 -- the scale of a tensor of zeros (kernels/float8.h)

local History = {}
History.__index = History

local Layer = {} -- what a layer holds: its views of scale and needed
Layer.__index = Layer

local M = {}

--- Returns the state of the layers with these paths, of all stages. opt: history, margin.
function M.new(paths, opt)
  local self = setmetatable({ paths = paths, steps = opt.history or 16, margin = opt.margin or 0, layers = {} },
    History)
  for i = 1, #paths do self.layers[i] = setmetatable({ state = self, called = false, ready = false }, Layer) end
  return self
end

-- Lists of three numbers of row i as tensors without dimensions.
local function views(t, i)
  local list = {}
  for k = 1, TENSORS do list[k] = t:select(1, i):select(1, k):keep() end
  return list
end

--- Makes the tensors, if they are not there. dtype: that of the numbers that layers multiply.
function History:open(dtype)
  if self.scale then return end
  local wide, n = dtype == "f64" and "f64" or "f32", #self.paths
  tensors.scope(tensors.no_grad, function()
    self.history = tensors.zeros({ self.steps, n, TENSORS }, { dtype = wide }):keep()
    self.needed = tensors.zeros({ n, TENSORS }, { dtype = wide }):keep()
    self.scale = tensors.zeros({ n, TENSORS }, { dtype = wide }):keep()
    for i, layer in ipairs(self.layers) do
      layer.scale, layer.needed = views(self.scale, i), views(self.needed, i)
    end
  end)
end

-- What ops.linear_float8 is given in a call.
function Layer:given(training, dtype)
  self.state:open(dtype)
  self.called = self.called or training
  return { scale = self.ready and self.scale or nil, needed = training and self.needed or nil }
end

local OF_BLOCKS = { blocks = true }

--- Returns the options of ops.linear_float8 for a call of module m, which gm.float8 has marked, with x.
function M.given(m, x)
  if m.float8 == true then return nil end
  if m.float8 == "blocks" then return OF_BLOCKS end
  return m.float8:given(m.training, x:dtype())
end

-- needed, and 0 where there is nothing to learn from it.
local function entry_of(needed)
  return ops.where(ops.gt(needed, NOTHING), ops.where(ops.lt(needed, math.huge), needed, 0), 0)
end

-- The scale of a tensor without any entry: what it was, or 1 where the layer has run for the first time.
local function without_entry(scale, needed)
  local ran = ops.cast(ops.gt(needed:narrow(2, 1, 1), 0), scale:dtype()) -- x needs some scale in each step
  return ops.where(ops.gt(scale, 0), scale, ran)
end

-- Counts the tensors whose scale was smaller than needed; one without a scale found its own.
local function count(watched, scale, needed)
  local has = ops.gt(scale, 0)
  local over = ops.where(has, ops.div(entry_of(needed), ops.where(has, scale, 1)), 0) -- how many times as large
  local clipped = ops.gt(over, 1)
  watched.steps:copy_(ops.add(watched.steps, ops.cast(clipped, scale:dtype())))
  watched.times:copy_(ops.maximum(watched.times, ops.where(clipped, over, 0)))
end

local function move(self)
  local scale, needed, history = self.scale, self.needed, self.history
  if core.world() > 1 then core.comm_all_reduce(needed, core.comm_group(), "max") end
  if self.watched then count(self.watched, scale, needed) end
  local rows = { ops.reshape(entry_of(needed), { 1, #self.paths, TENSORS }) }
  if self.steps > 1 then rows[2] = history:narrow(1, 1, self.steps - 1) end
  history:copy_(ops.cat(rows, 1))
  local largest = ops.max(history, 1) -- and the places, which nobody wants
  scale:copy_(ops.where(ops.gt(largest, 0), ops.mul(largest, 2 ^ self.margin), without_entry(scale, needed)))
  needed:fill_(0)
end

--- The tensors that stay from step to step, a list; empty until they are made.
function History:kept() return self.scale and { self.scale, self.needed, self.history } or {} end

--- Bytes of these tensors, which every rank holds for all layers.
function History:bytes()
  local sum = 0
  for _, t in ipairs(self:kept()) do sum = sum + held.bytes(t) end
  return sum
end

--- Takes what a step has needed into the histories, on all ranks together, and finds the scales of the next step.
-- Collective; queues work on the device and reads nothing.
function History:update()
  self:open(core.default_dtype())
  tensors.scope(tensors.no_grad, move, self)
  for _, layer in ipairs(self.layers) do layer.ready = layer.ready or layer.called end
end

--- Forgets what training passes have needed since the last update: their step was given up.
function History:drop_passes()
  if self.needed then tensors.no_grad(function() self.needed:fill_(0) end) end
  for _, layer in ipairs(self.layers) do layer.called = layer.ready end
end

-- The scales were loaded: layers that have one have been through an update.
local function loaded(self)
  if not core.device().has_data then return end
  for i, row in ipairs(self.scale:totable()) do self.layers[i].ready = row[1] > 0 end
end

--- Has updates count from now on which tensors had numbers beyond the range of their scale, or no longer.
function History:watch(wanted)
  self.watched = nil
  if not wanted then return end
  tensors.scope(tensors.no_grad, function()
    local function zeros() return tensors.zeros({ #self.paths, TENSORS }, { dtype = self.scale:dtype() }):keep() end
    self.watched = { steps = zeros(), times = zeros() }
  end)
end

local function more_steps(a, b)
  if a.steps ~= b.steps then return a.steps > b.steps end
  if a.times ~= b.times then return a.times > b.times end
  return a.place < b.place
end

--- Returns what was counted since the last call, and how many tensors there are. A list of the tensors that were
-- clipped, those first that were in most steps: path (of the layer), tensor ("x", "w" or "dy"), steps, times (the
-- largest scale that was needed, over the scale that there was). It waits for the device.
function History:clipped()
  local list, all = {}, #self.paths * TENSORS
  if not core.device().has_data then return list, all end
  local steps, times = self.watched.steps:totable(), self.watched.times:totable()
  for i, path in ipairs(self.paths) do
    for k = 1, TENSORS do
      if steps[i][k] > 0 then
        list[#list + 1] = { path = path, tensor = NAMES[k], steps = steps[i][k], times = times[i][k],
          place = TENSORS * i + k }
      end
    end
  end
  table.sort(list, more_steps)
  self.watched.steps:fill_(0)
  self.watched.times:fill_(0)
  return list, all
end

--- What a checkpoint holds: list of { name, tensor, store }.
function History:tensors()
  self:open(core.default_dtype())
  return {
    { name = "optimizer/float8/history", tensor = self.history },
    { name = "optimizer/float8/scale", tensor = self.scale, store = function() loaded(self) end },
  }
end

--- Returns the state of a model's layers; nil if none of them keeps scales.
function M.of(model)
  local found
  for _, m in ipairs(model:modules()) do
    local state = type(m.float8) == "table" and m.float8.state
    if state and found and state ~= found then
      error("float8: parts of the model have scales of their own: call gm.float8 once, for the whole model", 0)
    end
    found = found or state or nil
  end
  return found
end

return M
