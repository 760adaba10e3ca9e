-- Layers with experts cut over every kind of mesh against the same layer uncut: results, losses, every gradient.
-- ranks: 2 4
--
-- spec/tensor/against_serial.lua compares; the layer's own losses are a second result, so that their gradients count.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local against = require "spec.tensor.against_serial"
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local tables = require "spec.support.tables"
local nn = gm.nn

local ranks = core.world()

local function tensor(size, mode, more)
  local t = { size = size, mode = mode }
  for key, value in pairs(more or {}) do t[key] = value end
  return t
end

local meshes = {
  [2] = { { name = "expert 2", data = 2, expert = 2 }, { name = "1d", data = 1, tensor = tensor(2, "1d") } },
  [4] = {
    { name = "expert 4", data = 4, expert = 4 }, { name = "data 2, expert 2", data = 4, expert = 2 },
    { name = "expert 2, 1d", data = 2, expert = 2, tensor = tensor(2, "1d") },
    { name = "expert 2, 1d with sequences", data = 2, expert = 2, tensor = tensor(2, "1d", { sequence = true }) },
    { name = "expert 2, ring", data = 2, expert = 2, sequence = 2 },
    { name = "2d", data = 1, tensor = tensor(4, "2d") },
  },
}

-- y and the sum of what waits beside it
local function with_losses(layer, x)
  auxiliary.clear()
  local y = layer(x)
  return y, auxiliary.add_to(gm.zeros({}, { dtype = x:dtype() }))
end

local cases = {
  { name = "top 2 of 4", options = { experts = 4, router = { type = "TopKRouter", balance = 5, z = 3 } } },
  { name = "Switch of 8 with a capacity",
    options = { experts = 8, router = { type = "SwitchRouter", balance = 5 }, capacity = 1, min_capacity = 1 } },
  { name = "sigmoid, 3 of 5, shared experts",
    options = { experts = 5, router = { type = "SigmoidRouter", k = 3, balance = 5 }, shared = 2, bias = false } },
}

describe("mixtures of experts:", function()
  local before
  setup(function() before = gm.default_dtype() gm.set_default_dtype "f64" end)
  teardown(function()
    gm.set_default_dtype(before)
    against.install { data = ranks }
  end)

  for _, mesh in ipairs(meshes[ranks]) do
    local given = tables.without(mesh, "name")
    for _, case in ipairs(cases) do
      it(case.name .. " on " .. mesh.name, function()
        against.agree(given, {
          name = case.name, inputs = { against.values(6, 5, 12) }, forward = with_losses,
          build = function()
            local options = { width = 12, hidden = 10, activation = "gelu_tanh" }
            for key, value in pairs(case.options) do options[key] = value end
            local layer = nn.MoE(options)
            layer.router:materialize()
            local drawn = gm.normal({ options.experts, 12 }, { dtype = "f64", seed = 3, std = 0.5 })
            layer.router.weight:detach():copy_(drawn)
            return layer
          end,
        })
      end)
    end

    it("a block with experts on " .. mesh.name, function()
      against.agree(given, {
        name = "block", inputs = { against.values(6, 5, 12) }, forward = with_losses,
        build = function()
          return nn.TransformerBlock {
            width = 12, heads = 2, causal = true, dropout = 0.2, mlp_ratio = 2,
            moe = { experts = 4, k = 2, capacity = 1, router = { type = "TopKRouter", balance = 5, noise = "normal" } },
          }
        end,
      })
    end)
  end
end)
