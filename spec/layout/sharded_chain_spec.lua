--- A chain of layers along one axis, column, row, norm, column, row: outputs and gradients of a serial one, and no
-- gradient of a copied parameter left as a sum over the ranks of a tensor.
-- ranks: 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local any = both.source(860)

-- A column layer and a row layer; how: the layout of what comes out, nil for the sum on every rank.
local function pair(x, up, b, down, c, how)
  return ops.linear(ops.linear(x, up, b, "gelu"), down, c):redistribute(how or { cuts = {} })
end

local column, cut, row = { cuts = { { "tensor" } } }, { cuts = { { "tensor" } } }, { cuts = { {}, { "tensor" } } }
local n = core.world()

-- x (rows, steps, 6), scaled by a vector, so that what comes into the first layer is computed
local inputs = { any(5, 7, 6), any(6), any(9, 6), any(9), any(6, 9), any(6), any(6), any(6), any(11, 6), any(11),
  any(5, 11), any(5) }
local weights = { false, column, cut, row, false, false, false, column, cut, row, false }

local function chain(how)
  return function(x, scale, a, b, c, d, gamma, beta, e, f, g, h)
    local y = pair(x * scale, a, b, c, d, how)
    return pair(ops.layer_norm(y, gamma, beta, 1e-5), e, f, g, h, how)
  end
end

local cases = {
  { name = "whole rows", mesh = { { "tensor", n } }, x = false },
  { name = "rows gathered and scattered", mesh = { { "tensor", n } }, x = { cuts = { {}, { "tensor" } } } },
}
if n == 4 then
  cases[3] = { name = "batches besides", mesh = { { "data", 2 }, { "tensor", 2 } }, x = { cuts = { { "data" } } } }
  cases[4] = { name = "sequences besides", mesh = { { "sequence", 2 }, { "tensor", 2 } },
    x = { cuts = { {}, { "sequence", "tensor" } } } }
end

for _, case in ipairs(cases) do
  describe("a chain along one axis, " .. case.name, function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(case.mesh)) end)

    it("is the serial one", function()
      both.agree { inputs = inputs, cuts = { case.x, unpack(weights) }, fn = chain(case.x or nil) }
    end)

    -- Copies of x differ where its rows are cut: there, and only there, gradients of copied parameters are sums.
    it("leaves no gradient for others to sum that it could give whole", function()
      gm.scope(function()
        local leaves, cuts = {}, { case.x, unpack(weights) }
        for i, t in ipairs(inputs) do
          leaves[i] = both.place(t:clone(), cuts[i] or nil)
          leaves[i]:requires_grad(true)
        end
        (chain(case.x or nil)(unpack(leaves)) ^ 2):sum():backward()
        core.comm_reset_traffic()
        for _, t in ipairs(leaves) do t:grad() end
        local sent = 0
        for _, entry in ipairs(core.comm_traffic()) do sent = sent + entry.bytes end
        assert.equal(case.x == false, sent == 0)
      end)
    end)
  end)
end
