--- Products on cut operands over real messages: the MLP of the Colossal-AI paper in 2D, 2.5D and 3D is the serial one.
-- ranks: 4 8
--
-- spec/unit/sharded_linear_test.c has every size, gradient and byte; here layers, biases and a norm follow one another,
-- and each layout is what the next one takes.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local any = both.source(800)

-- x (rows, steps, 5) -> 11 -> norm -> 6; w as nn.Linear stores it
local function mlp(x, w1, b1, scale, shift, w2, b2)
  return ops.linear(ops.layer_norm(ops.linear(x, w1, b1, "gelu"), scale, shift, 1e-5), w2, b2)
end

local function inputs() return { any(9, 3, 5), any(11, 5), any(11), any(11), any(11), any(6, 11), any(6) } end

local function flat(...)
  local wide, cut = { cuts = { { "col" }, { "row" } } }, { cuts = { { "col" } } }
  return { { cuts = { { ... }, {}, { "col" } } }, wide, cut, cut, cut, wide, cut }
end

local cube = {
  { cuts = { { "weight", "input" }, {}, { "output" } } },
  { cuts = { { "input" }, { "output", "weight" } } }, { cuts = { { "input" } } }, { cuts = { { "input" } } },
  { cuts = { { "input" } } }, { cuts = { { "output" }, { "input", "weight" } } }, { cuts = { { "output" } } },
}

local modes = core.world() == 4 and {
  { name = "2d", mesh = { { "row", 2 }, { "col", 2 } }, cuts = flat "row", expect = "row,-,col" },
} or {
  { name = "2.5d", mesh = { { "depth", 2 }, { "row", 2 }, { "col", 2 } }, cuts = flat("depth", "row"),
    expect = "depth.row,-,col" },
  { name = "3d", mesh = { { "output", 2 }, { "input", 2 }, { "weight", 2 } }, cuts = cube,
    expect = "weight.input,-,output" },
}

for _, mode in ipairs(modes) do
  describe("products in " .. mode.name, function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mode.mesh)) end)

    it("make an MLP that gives the outputs and gradients of a serial one", function()
      both.agree { inputs = inputs(), cuts = mode.cuts, expect = mode.expect, fn = mlp }
    end)
  end)
end
