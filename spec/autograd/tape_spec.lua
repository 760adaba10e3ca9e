-- What the tape promises beside right slopes: set and add, one use, no silent wrong gradient.
local gm = require "ganymede"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local ops = gm.ops

local function leaf(values) return gm.tensor(values, { dtype = "f64" }):requires_grad(true) end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("the tape", function()
  it("alone keeps what only a gradient reads", function()
    gm.scope(function()
      local q, w = gm.ones { 1, 256, 8, 64 }, gm.ones { 64, 64 }
      local function grows(numbers, fn) -- bytes of f32 and no statistics beside them
        local live, _ = gm.memory().live, fn()
        assert.near(4 * numbers, gm.memory().live - live, 512)
      end
      grows(256 * 8 * 64, function() return ops.attention(q, q, q) end)
      grows(256 * 8 * 64, function() return ops.layer_norm(q) end)
      grows(256 * 8 * 64, function() return ops.linear(q, w, nil, "gelu") end)
      local grown = gm.memory().live
      local y = ops.linear(q:requires_grad(true), w, nil, "gelu") -- with what the activation was given
      assert.near(8 * 256 * 8 * 64, gm.memory().live - grown, 512)
      y:sum():backward()
    end)
  end)

  it("sets a gradient after zero_grad and adds to it after", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      ;(x * x):sum():backward()
      assert.same({ 2, 4 }, x:grad():totable())
      ;(x * 3):sum():backward()
      assert.same({ 5, 7 }, x:grad():totable())
      core.zero_grad { x }
      assert.is_nil(x:grad())
      ;(x * 3):sum():backward()
      assert.same({ 3, 3 }, x:grad():totable())
    end)
  end)

  it("adds what several ops pass to one parameter, whichever way they write", function()
    gm.scope(function()
      local w, x = leaf { { 1, 2 }, { 3, 4 } }, gm.tensor({ { 1, 1 } }, { dtype = "f64" })
      local y = ops.linear(x, w):sum() + ops.matmul(x, w):sum() + (w * 2):sum()
      y:backward()
      assert.same({ { 4, 4 }, { 4, 4 } }, w:grad():totable())
    end)
  end)

  it("does not let a shared gradient be changed through one of its holders", function()
    gm.scope(function()
      local a, b = leaf { 1, 2 }, leaf { 3, 4 }
      local s = a + b                 -- both receive the same tensor
      ;(s + a * 10 + s):sum():backward()
      assert.same({ 12, 12 }, a:grad():totable())
      assert.same({ 2, 2 }, b:grad():totable())
    end)
  end)

  it("accepts a seed gradient, and asks for one when the loss has several elements", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      local y = x * x
      assert.error_matches(function() y:backward() end, "a loss has one element")
    end)
    gm.scope(function()
      local x = leaf { 1, 2 }
      local y = x * x
      y:backward(gm.tensor({ 10, 1 }, { dtype = "f64" }))
      assert.same({ 20, 4 }, x:grad():totable())
    end)
  end)

  it("runs once", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      local y = (x * x):sum()
      y:backward()
      assert.error_matches(function() y:backward() end, "retain_graph")
      assert.error_matches(function() (y * x):sum():backward() end, "retain_graph")
    end)
  end)

  it("records nothing under no_grad, and says so when asked to go back", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      local y = gm.no_grad(function() return (x * x):sum() end)
      assert.is_false(y:requires_grad())
      assert.error_matches(function() y:backward() end, "does not depend on anything that requires a gradient")
      assert.equal(0, core.tape_nodes())
    end)
  end)

  it("leaves no_grad when the function fails", function()
    pcall(gm.no_grad, function() error "boom" end)
    gm.scope(function() assert.is_true((leaf { 1 } * 2):requires_grad()) end)
  end)

  it("notices that a saved activation was changed in place", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      local h = x * 2
      local y = (h * h):sum()
      gm.no_grad(h.fill_, h, 0)
      assert.error_matches(function() y:backward() end, "changed in place")
    end)
  end)

  it("lets go of everything when backward has run", function()
    local x = leaf({ 1, 2 }):keep()
    ;(x * x):sum():backward()
    core.zero_grad { x }
    local live = gm.memory().live
    gm.scope(function()
      local y = x
      for _ = 1, 20 do y = ops.gelu(y * y) end
      y:sum():backward()
      assert.equal(0, core.tape_nodes())
    end)
    assert.equal(live, gm.memory().live)
    x:release()
  end)

  it("ends with the last tensor that leads to it", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      gm.scope(function() return (x * x):sum():item() end)
      assert.equal(0, core.tape_nodes())
    end)
  end)

  it("refuses a gradient for integers", function()
    gm.scope(function()
      local index = gm.tensor({ 1 }, { dtype = "i64" })
      assert.error_matches(function() index:requires_grad(true) end, "i64 has no gradients")
    end)
  end)

  it("names the module path and op when a backward fails", function()
    gm.scope(function()
      core.set_path "blocks.2.mlp"
      local x = leaf { 1, 2 }
      local h = x * 2
      local y = (h * h):sum()
      core.set_path ""
      gm.no_grad(h.fill_, h, 1)
      assert.error_matches(function() y:backward() end, "backward of mul in blocks%.2%.mlp")
    end)
  end)
end)

describe("a custom function", function()
  local square = gm.custom {
    forward = function(x) return x * x end,
    backward = function(g) return 3 * g end, -- on purpose not the true slope
  }

  it("passes its own gradient", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      square(x * 2):sum():backward()
      assert.same({ 6, 6 }, x:grad():totable())
    end)
  end)

  it("may have several inputs and outputs and pass nil", function()
    gm.scope(function()
      local a, b = leaf { 1, 2 }, leaf { 3, 4 }
      local f = gm.custom {
        forward = function(x, y) return x + y, x - y end,
        backward = function(g, h) assert.is_nil(h) return 5 * g, nil end,
      }
      local sum = f(a, b)
      sum:sum():backward()
      assert.same({ 5, 5 }, a:grad():totable())
      assert.is_nil(b:grad())
    end)
  end)

  it("reports an error of its backward and a gradient of the wrong shape", function()
    gm.scope(function()
      local function forward(x) return x * x end
      local f = gm.custom { forward = forward, backward = function() error "no way back" end }
      assert.error_matches(function() f(leaf { 1, 2 }):sum():backward() end, "no way back")
    end)
    gm.scope(function()
      local f = gm.custom { forward = function(x) return x * x end, backward = function(g) return g:sum() end }
      assert.error_matches(function() f(leaf { 1, 2 }):sum():backward() end,
        "its gradient 1 is f64 %(%), the input f64 %(2%)")
    end)
  end)

  it("refuses what is no tensor, and a gradient without an input", function()
    local function twice(x) return x * 2 end
    local function result(forward, backward)
      gm.scope(function() gm.custom({ forward = forward, backward = backward })(leaf { 1, 2 }):sum():backward() end)
    end
    local wrong = {
      ["forward must return a tensor or several; it returned nothing"] = { function() end, twice },
      ["forward must return tensors; output 1 is 3"] = { function() return 3 end, twice },
      ["forward must return tensors; output 2 is nil"] = { function(x) return twice(x), nil end, twice },
      ["must return a tensor or nil for each input; gradient 1 is 3"] = { twice, function() return 3 end },
      ["backward returned 2 gradients for 1 input"] = { twice, function(g) return g, g end },
      ["backward returned nothing for 1 input; it returns one for each"] = { twice, function() end },
    }
    for said, functions in pairs(wrong) do
      assert.error_matches(function() result(unpack(functions)) end, said)
    end
    result(twice, function(g) return g, nil end)
    result(twice, function() return nil end)
  end)

  it("refuses fewer gradients than inputs, which a forgotten return gives", function()
    gm.scope(function()
      local f = gm.custom { forward = function(x, y) return x * y end, backward = function(g) return g end }
      assert.error_matches(function() f(leaf { 1, 2 }, leaf { 3, 4 }):sum():backward() end,
        "backward returned 1 gradient for 2 inputs; it returns one for each, and nil for an input that needs none")
    end)
  end)

  it("whose forward returns its input leaves that what it was", function()
    gm.scope(function()
      local f = gm.custom { forward = function(x) return x end, backward = function(g) return g * 2 end }
      local x = leaf { 1, 2 }
      local y = f(x)
      assert.same({ 1, 2 }, y:totable())
      ;(y * 3 + x):sum():backward()
      assert.same({ 7, 7 }, x:grad():totable())
    end)
  end)

  it("cannot be put behind what has a graph already", function()
    gm.scope(function()
      local x = leaf { 1, 2 }
      assert.error_matches(function() core.record_custom({ x }, { x * 2 }, function(g) return g end) end,
        "output 1 requires a gradient already; detach%(%) it")
    end)
  end)

  -- what a backward raises -> what the caller of backward catches
  local function caught(raised)
    local f = gm.custom {
      forward = function(x) return x * x end,
      backward = function()
        core.scope_open() -- left open, as by a stop between two lines of Lua
        error(raised, 0)
      end,
    }
    local depth = core.scope_depth()
    local _, err = pcall(gm.scope, function() f(leaf { 1, 2 }):sum():backward() end)
    assert.equal(depth, core.scope_depth())
    return err
  end

  it("hands on what its backward raises as it is: objects, stops of the run among them, and long texts", function()
    local stop, own = failure.new(130, "stopped by Ctrl-C"), setmetatable({}, { __tostring = error })
    local long = ("x"):rep(5000)
    for _, raised in ipairs { stop, own, long, 17, "short" } do assert.is_true(rawequal(raised, caught(raised))) end
  end)

  it("that raises nothing at all says so, and not what another one raised before", function()
    caught {}
    assert.matches("not a string", caught(nil))
    assert.equal("a second one", caught "a second one")
  end)
end)
