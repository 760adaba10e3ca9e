-- Gradients that one op hands to several holders: what is added to one must not show in the others.
local gm = require "ganymede"
local core = require "ganymede.core"

local function parameter(...) return gm.tensor({ ... }, { dtype = "f64" }):requires_grad(true) end

describe("a gradient handed to two parameters", function()
  it("is a tensor of its own in each", function()
    local a, b, c = parameter(1, 2), parameter(3, 4), gm.tensor({ 5, 7 }, { dtype = "f64" })
    core.zero_grad { a, b }
    ;((a + b) * c):sum():backward() -- d/d(a + b) is c, written once, and passed to a and to b
    assert.same({ 5, 7 }, a:grad():totable())
    assert.same({ 5, 7 }, b:grad():totable())
    ;(a * c):sum():backward() -- adds to the gradient of a alone
    assert.same({ 10, 14 }, a:grad():totable())
    assert.same({ 5, 7 }, b:grad():totable())
  end)

  it("stays whole when one of them passes on and is added to", function()
    local a, b, c = parameter(1, 2), parameter(3, 4), gm.tensor({ 5, 7 }, { dtype = "f64" })
    core.zero_grad { a, b }
    local inner = a * 1 -- has a gradient of its own: first 2 c from its later use, then c from the sum
    local later = inner * 2
    ;((inner + b + later) * c):sum():backward()
    assert.same({ 15, 21 }, a:grad():totable())
    assert.same({ 5, 7 }, b:grad():totable())
  end)
end)
