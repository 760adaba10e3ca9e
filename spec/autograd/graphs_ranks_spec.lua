-- Two losses that share a trunk, whose rows two ranks share: kept graphs and gradients of computed tensors, against the
-- same on whole tensors.
-- ranks: 2
local core = require "ganymede.core"
local gm = require "ganymede"
local ops = gm.ops

local function leaf(values) return gm.tensor(values, { dtype = "f64" }):requires_grad(true) end
local function f64(values) return gm.tensor(values, { dtype = "f64" }) end

describe("two losses on two ranks", function()
  it("have the gradients of one rank, in either order", function()
    for _, first in ipairs { 1, 2 } do
      gm.scope(function()
        local rows = f64 { { 1, 2 }, { 3, -1 }, { 0.5, 4 } }
        local w = leaf { { 0.3, -0.2 }, { 0.1, 0.7 } }
        local x = core.redistribute(rows, { cuts = { { "data" }, {} } })
        local trunk = ops.linear(x, w, nil, "gelu"):retain_grad()
        local losses = { (trunk * trunk):sum(), ops.exp(trunk):sum() }
        losses[first]:backward { retain_graph = true }
        losses[3 - first]:backward()
        local alone, v = trunk:grad():totable(), leaf { { 0.3, -0.2 }, { 0.1, 0.7 } }
        local same = ops.linear(rows, v, nil, "gelu"):retain_grad()
        ;((same * same):sum() + ops.exp(same):sum()):backward()
        assert.near(0, (w:grad() - v:grad()):abs():sum():item(), 1e-12)
        for i, row in ipairs(same:grad():totable()) do
          for k, g in ipairs(row) do assert.near(g, alone[i][k], 1e-12) end
        end
      end)
    end
  end)
end)
