--- Tensor modes are the ways in which a group of ranks shares each layer. Users may register their own:
--
--     registry.tensor_modes:register("rings", {
--       axes   = function(t) return { { "tensor", t.size } } end,   -- t: parallel.tensor
--       stream = { rows = "", width = "tensor" },                   -- how activations lie between layers
--       layers = { Linear = LinearOfMine },                         -- classes that stand for those of nn
--     })
--
-- A recipe then says parallel = { tensor = { size = 4, mode = "rings" } }. `axes` returns the mesh axes, slowest first,
-- whose sizes multiply to t.size. If it raises an error, or returns a string in place of the list, the recipe is
-- refused. `axis_names` lists the axes that no other mode has. `stream` has the axes that cut the batch (inside of
-- data) and the width of an activation; it is a list of two if activations lie differently inside a pair of Linears
-- (ganymede.nn.stream). A class of nn that `layers` does not name is used as it is. The layers of the built-in modes
-- are in nn/tensor_parallel.
-- @module ganymede.job.tensor_modes
local registry = require "ganymede.base.registry"

local modes = registry.tensor_modes

local function root(size, power)
  local q = math.floor(size ^ (1 / power) + 0.5)
  return q ^ power == size and q or nil
end

-- The sizes near `size` that are possible for a mode.
local function legal(size, power, times)
  local said, q = {}, math.max(1, math.floor((size / times) ^ (1 / power)) - 1)
  for i = q, q + 3 do said[#said + 1] = tostring(times * i ^ power) end
  return table.concat(said, ", ")
end

-- "2 (q = 2), 8 (q = 1)"
local function legal_depths(size)
  local said = {}
  for depth = 1, size do
    local q = size % depth == 0 and root(size / depth, 2)
    if q then said[#said + 1] = ("%d (q = %d)"):format(depth, q) end
  end
  return table.concat(said, ", ")
end

-- arXiv:1909.08053; with parallel.tensor.sequence the stream between layers is cut too: arXiv:2205.05198
modes:register("1d", {
  axes = function(t) return { { "tensor", t.size } } end,
  stream = { { rows = "", width = "" }, { rows = "", width = "tensor" } }, takes_sequence = true,
})

-- arXiv:2104.05343
modes:register("2d", {
  axes = function(t)
    local q = root(t.size, 2)
    if q then return { { "row", q }, { "col", q } } end
    return ("mode 2d needs a square size (q * q), got %d; legal sizes: %s"):format(t.size, legal(t.size, 2, 1))
  end,
  stream = { rows = "row", width = "col" },
})

-- arXiv:2105.14500
modes:register("2.5d", {
  axes = function(t)
    if t.depth == nil then
      return ("mode 2.5d needs a depth: size = depth * q * q; legal depths for size %d: %s"):format(t.size,
        legal_depths(t.size))
    end
    if type(t.depth) ~= "number" or t.depth < 1 or t.depth % 1 ~= 0 then
      return ("must be an integer, at least 1; got %s"):format(tostring(t.depth)), "parallel.tensor.depth"
    end
    local q = root(t.size / t.depth, 2)
    if q then return { { "depth", t.depth }, { "row", q }, { "col", q } } end
    return ("mode 2.5d needs size = depth * q * q; %d with depth %d is not; legal sizes with this depth: %s"):format(
      t.size, t.depth, legal(t.size, 2, t.depth))
  end,
  stream = { rows = "depth.row", width = "col" }, takes_depth = true,
})

-- arXiv:2105.14450
modes:register("3d", {
  axes = function(t)
    local q = root(t.size, 3)
    if q then return { { "output", q }, { "input", q }, { "weight", q } } end
    return ("mode 3d needs a cubic size (q * q * q), got %d; legal sizes: %s"):format(t.size, legal(t.size, 3, 1))
  end,
  stream = { { rows = "weight.input", width = "output" }, { rows = "weight.output", width = "input" } },
})

-- Colossal-AI's name of a ring over sequences; ganymede.job.parallel turns it into parallel.sequence.
modes:register("sequence", { axes = function() return {} end })

local M = { built_in = { "tensor", "depth", "row", "col", "output", "input", "weight" } }

--- Returns the names of all axes that modes may have, those of registered modes at the end.
function M.axis_names()
  local names, seen = {}, {}
  local function add(list)
    for _, name in ipairs(list or {}) do
      if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
  end
  add(M.built_in)
  for _, name in ipairs(modes.order) do add(modes:get(name).axis_names) end
  return names
end

return M
