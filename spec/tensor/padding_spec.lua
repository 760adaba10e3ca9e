-- Every layer in every tensor mode with garbage in all padding: not a bit of results and gradients changes.
-- ranks: 2 3 4 8
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local against = require "spec.tensor.against_serial"
local all_cases = require "spec.tensor.cases"
local core = require "ganymede.core"
local gm = require "ganymede"

local auxiliary = require "ganymede.nn.auxiliary"
local nn = require "ganymede.nn"

local tensor = against.tensor

-- Of experts, which spec.tensor.cases leaves to spec/experts: on a mesh with data ranks.
local mixture = {
  name = "a mixture of experts", inputs = { against.values(5, 3, 6) },
  build = function()
    return nn.MoE { width = 6, hidden = 7, experts = 4, router = { type = "TopKRouter", k = 2, balance = 0.1 } }
  end,
  forward = function(layer, x)
    auxiliary.clear()
    return layer(x), auxiliary.take()
  end,
}

-- By the number of ranks: name, the table `parallel`, ranks that share the heads, length of sequences.
local meshes = ({
  [2] = {
    { "data", { data = 2 }, 2, 5 },
    { "experts", { data = 2, expert = 2 }, 2, 5 },
    { "1d", { tensor = tensor("1d", 2) }, 2, 5 },
    { "1d with sequence", { tensor = tensor("1d", 2, { sequence = true }) }, 2, 5 },
    { "a ring", { sequence = 2 }, 2, 5 },
  },
  [3] = { { "1d", { tensor = tensor("1d", 3) }, 3, 4 }, { "data", { data = 3 }, 3, 4 } },
  [4] = {
    { "1d and data", { data = 2, tensor = tensor("1d", 2) }, 2, 4 },
    { "1d with sequence and Ulysses",
      { sequence = { size = 2, mode = "ulysses" }, tensor = tensor("1d", 2, { sequence = true }) }, 4, 7 },
    { "2d", { tensor = tensor("2d", 4) }, 2, 5 },
    { "data", { data = 4 }, 2, 5 },
    { "experts", { data = 4, expert = 2 }, 2, 5 },
    { "experts and 1d", { data = 2, expert = 2, tensor = tensor("1d", 2) }, 2, 5 },
  },
  [8] = {
    { "2d and data", { data = 2, tensor = tensor("2d", 4) }, 2, 4 },
    { "2.5d", { tensor = tensor("2.5d", 8, { depth = 2 }) }, 2, 5 },
    { "3d", { tensor = tensor("3d", 8) }, 2, 5 },
  },
})[core.world()]

local before

for _, mesh in ipairs(meshes) do
  local name, given, parts, length = unpack(mesh)
  describe(("padding of layers in mode %s:"):format(name), function()
    setup(function()
      before = gm.default_dtype()
      gm.set_default_dtype "f64"
    end)
    teardown(function()
      gm.set_default_dtype(before)
      against.install { data = core.world() }
    end)
    local cases = all_cases(parts, length)
    if given.expert then cases = { mixture } end
    for _, case in ipairs(cases) do
      it(case.name, function() against.padding_counts_nowhere(given, case) end)
    end
  end)
end
