-- Writes in place that no gradient would know of are refused where they are made, and say what to do instead.
local core = require "ganymede.core"
local gm = require "ganymede"
local ops = gm.ops

local function leaf(values) return gm.tensor(values, { dtype = "f64" }):requires_grad(true) end

-- Every method that writes: fn(t), of two elements.
local writes = {
  fill_ = function(t) t:fill_(7) end,
  copy_ = function(t) t:copy_(gm.ones({ 2 }, { dtype = "f64" })) end,
  set = function(t) t:set(1, 7) end,
  all_reduce = function(t) core.comm_all_reduce(t, core.comm_group(), "sum") end,
  broadcast = function(t) core.comm_broadcast(t, core.comm_group(), 0) end,
}

describe("a write in place", function()
  for name, write in pairs(writes) do
    it(name .. " into a computed tensor that requires a gradient is refused", function()
      gm.scope(function()
        local a = leaf { 1, 2 }
        local z = a * 3
        assert.error_matches(function() write(z) end, name .. ": this tensor was computed by 'mul' .* gm.no_grad")
        assert.error_matches(function() write(z:narrow(1, 1, 2)) end, name .. ": .* computed by 'narrow'")
        assert.same({ 3, 6 }, z:totable())
        ;(z * z):sum():backward()
        assert.same({ 18, 36 }, a:grad():totable())
      end)
    end)

    it(name .. " into the block of one is refused, and into a view of that", function()
      gm.scope(function()
        local block = (leaf { 1, 2 } * 3):local_tensor()
        assert.error_matches(function() write(block) end, name .. ": these bytes are those of a computed tensor")
        assert.error_matches(function() write(block:reshape(2)) end, "these bytes")
      end)
    end)

    it(name .. " into a leaf that requires a gradient needs no_grad", function()
      gm.scope(function()
        local a = leaf { 1, 2 }
        assert.error_matches(function() write(a) end, name .. ": this tensor is a leaf .* under gm.no_grad")
        gm.no_grad(write, a)
        write(a:detach())
        write(gm.zeros({ 2 }, { dtype = "f64" }))
      end)
    end)
  end

  it("copy_ from a tensor that requires a gradient is refused", function()
    gm.scope(function()
      local a, z = leaf { 3 }, gm.zeros({ 1 }, { dtype = "f64" })
      assert.error_matches(function() z:copy_(a * 2) end, "copy_: the tensor that is copied requires a gradient")
      z:copy_((a * 2):detach())
      assert.same({ 6 }, z:totable())
    end)
  end)

  it("under no_grad into what a node has kept is found by backward", function()
    gm.scope(function()
      local a = leaf { 2 }
      local h = a * 1
      local z = ops.exp(h)
      gm.no_grad(h.fill_, h, 5)
      assert.error_matches(function() z:sum():backward() end, "exp: .* changed in place")
    end)
  end)
end)
