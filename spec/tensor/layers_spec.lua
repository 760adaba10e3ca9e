-- Every layer in every tensor mode against the same layer uncut: results, all gradients, initial weights, masks.
-- ranks: 2 3 4 8 9 12
-- sanitizers: at most 2 ranks, more of them run the same lines of C
--
-- On request, a cube of 3: ganymede spec -n 27 spec/tensor/layers_spec.lua (20 seconds on two cores).
local against = require "spec.tensor.against_serial"
local all_cases = require "spec.tensor.cases"
local core = require "ganymede.core"
local gm = require "ganymede"

local tensor = against.tensor

-- By the number of ranks: name, the table `parallel`, ranks that share the heads, length of sequences, is it f64 alone,
-- and a pattern of the layers it matters to.
local meshes = ({
  [2] = {
    { "1d", { tensor = tensor("1d", 2) }, 2, 5 },
    { "1d with sequence", { tensor = tensor("1d", 2, { sequence = true }) }, 2, 5 },
    { "1d with sequence, what is gathered is kept",
      { tensor = tensor("1d", 2, { sequence = true, keep_gathered = true }) }, 2, 5, true, "^Linear" },
  },
  [3] = { { "1d", { tensor = tensor("1d", 3) }, 3, 4 } },
  [4] = {
    { "1d", { tensor = tensor("1d", 4) }, 4, 4 },
    { "1d with sequence", { tensor = tensor("1d", 4, { sequence = true }) }, 4, 7 },
    { "1d and data", { data = 2, tensor = tensor("1d", 2) }, 2, 4, true },
    { "1d and a ring", { sequence = 2, tensor = tensor("1d", 2) }, 2, 8, true },
    { "1d with sequence and Ulysses",
      { sequence = { size = 2, mode = "ulysses" }, tensor = tensor("1d", 2, { sequence = true }) }, 4, 7, true },
    { "2d", { tensor = tensor("2d", 4) }, 2, 5 },
  },
  [8] = {
    { "2d and a ring", { sequence = 2, tensor = tensor("2d", 4) }, 2, 8, true },
    { "2d and data", { data = 2, tensor = tensor("2d", 4) }, 2, 4, true },
    { "2.5d", { tensor = tensor("2.5d", 8, { depth = 2 }) }, 2, 5 },
    { "3d", { tensor = tensor("3d", 8) }, 2, 5 },
    { "3d, what is gathered is kept", { tensor = tensor("3d", 8, { keep_gathered = true }) }, 2, 5, true, "^Linear" },
  },
  [9] = { { "2d", { tensor = tensor("2d", 9) }, 3, 4, true } },
  [12] = { { "2.5d", { tensor = tensor("2.5d", 12, { depth = 3 }) }, 2, 4, true } },
  [27] = { { "3d", { tensor = tensor("3d", 27) }, 3, 4 } },
})[core.world()]

local before

for _, mesh in ipairs(meshes) do
  local name, given, parts, length, f64_alone, layers = unpack(mesh)
  for _, dtype in ipairs(f64_alone and { "f64" } or { "f64", "f32" }) do
    describe(("layers in mode %s, %s:"):format(name, dtype), function()
      setup(function()
        before = gm.default_dtype()
        gm.set_default_dtype(dtype)
      end)
      teardown(function() gm.set_default_dtype(before) end)
      for _, case in ipairs(all_cases(parts, length)) do
        if case.name:find(layers or "") then it(case.name, function() against.agree(given, case) end) end
      end
    end)
  end
end
