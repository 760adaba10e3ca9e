-- Whose graph a backward runs and releases: what its loss depends on, and nothing else. Two losses, inner scopes,
-- retain_graph, gradients of computed tensors, leaves that are losses, and when memory is free again.
local core = require "ganymede.core"
local gm = require "ganymede"
local ops = gm.ops

local function leaf(values) return gm.tensor(values, { dtype = "f64" }):requires_grad(true) end
local function f64(values) return gm.tensor(values, { dtype = "f64" }) end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("a backward", function()
  local function example(name, fn) it(name, function() gm.scope(fn) end) end

  example("leaves the graphs of other losses alone", function()
    local a, b = leaf { 2 }, leaf { 5 }
    local one, two, three = (a * a):sum(), (a * 3):sum(), (b * b):sum()
    one:backward()
    three:backward()
    two:backward()
    assert.same({ 7 }, a:grad():totable())
    assert.same({ 10 }, b:grad():totable())
  end)

  example("releases its own graph at once, and no node of another", function()
    local a = leaf { 2 }
    local one, two = (a * a):sum(), ops.exp(a * 3):sum()
    assert.equal(5, core.tape_nodes())
    one:backward()
    assert.equal(3, core.tape_nodes())
    two:backward()
    assert.equal(0, core.tape_nodes())
  end)

  example("over a released trunk is refused, says what to do, and harms nothing", function()
    local a = leaf { 2 }
    local trunk = a * a
    local head = trunk * 3
    local one, two, apart = (trunk * 2):sum(), head:sum(), (a * 10):sum()
    one:backward()
    for _ = 1, 2 do -- what was refused is still there
      assert.error_matches(function() two:backward() end, "graph of 'mul', .*retain_graph = true")
    end
    assert.error_matches(function() one:backward() end, "graph of 'sum', .*retain_graph = true")
    assert.same({ 8 }, a:grad():totable())
    apart:backward()
    assert.same({ 18 }, a:grad():totable())
  end)

  example("with retain_graph keeps the trunk for the second loss, and itself", function()
    local a = leaf { 2 }
    local trunk = ops.exp(a * a)
    local one, two = (trunk * 2):sum(), (trunk * trunk):sum()
    local slope = 4 * math.exp(4) -- d exp(a^2) / da
    one:backward { retain_graph = true }
    assert.near(2 * slope, a:grad():item(), 1e-9)
    one:backward(nil, { retain_graph = true })
    assert.near(4 * slope, a:grad():item(), 1e-9)
    two:backward()
    assert.near(4 * slope + 2 * math.exp(4) * slope, a:grad():item(), 1e-9)
    assert.error_matches(function() one:backward() end, "retain_graph")
  end)

  example("with retain_graph gives dense layers with activations the same gradients twice", function()
    local x, v, w = leaf { { 1, -2 }, { 3, 0.5 } }, leaf { { 0.3, 0.1 }, { -0.2, 0.4 } }, leaf { { 0.7, -1 } }
    local loss = ops.linear(ops.linear(x, v, nil, "gelu"), w):sum()
    loss:backward { retain_graph = true }
    local once = { x:grad():clone(), v:grad():clone(), w:grad():clone() }
    core.zero_grad { x, v, w }
    loss:backward()
    for i, t in ipairs { x, v, w } do
      assert.near(0, (t:grad() - once[i]):abs():sum():item(), 1e-14)
    end
  end)

  -- twice, the second time when steps have been made since; each gradient before and after
  local function across_steps(leaves, loss)
    loss:backward { retain_graph = true }
    local once = {}
    for i, t in ipairs(leaves) do once[i] = t:grad():totable() end
    core.zero_grad(leaves)
    core.set_rng_step(3)
    loss:backward()
    core.set_rng_step(0)
    for i, t in ipairs(leaves) do assert.same(once[i], t:grad():totable()) end
    return unpack(once)
  end

  example("of a graph that is kept past its step drops what its forward dropped", function()
    local x = gm.ones { 64 }:requires_grad(true)
    local y = ops.dropout(x, 0.5)
    assert.same(y:totable(), (across_steps({ x }, y:sum())))
  end)

  example("of attention that is kept past its step drops what its forward dropped", function()
    local function some(seed) return gm.normal({ 1, 8, 2, 4 }, { seed = seed }):requires_grad(true) end
    local q, k, v = some(1), some(2), some(3)
    across_steps({ q, k, v }, (ops.attention(q, k, v, { dropout = 0.5 }) * some(4):detach()):sum())
    local qkv = gm.normal({ 1, 8, 2, 3, 4 }, { seed = 5 }):requires_grad(true)
    across_steps({ qkv }, ops.attention_packed(qkv, { dropout = 0.5 }):square():sum())
  end)

  example("of an inner scope does not end what was recorded outside", function()
    local a = leaf { 2 }
    local outer = (a * a):sum()
    gm.scope(function() (a * 3):sum():backward() end)
    outer:backward()
    assert.same({ 7 }, a:grad():totable())
  end)

  example("goes through what inner scopes have returned", function()
    local a, h = leaf { 0.5 }, f64 { 1 }
    for _ = 1, 5 do h = gm.scope(function() return ops.tanh(h * a) end) end
    h:sum():backward()
    local function value(at)
      local y = 1
      for _ = 1, 5 do
        local e = math.exp(2 * y * at)
        y = (e - 1) / (e + 1)
      end
      return y
    end
    assert.near((value(0.5 + 1e-6) - value(0.5 - 1e-6)) / 2e-6, a:grad():item(), 1e-9)
  end)

  example("of a leaf is the gradient itself", function()
    local a, b = leaf { 4 }, leaf { 1, 2 }
    a:backward()
    assert.same({ 1 }, a:grad():totable())
    b:backward(f64 { 3, 5 })
    assert.same({ 3, 5 }, b:grad():totable())
  end)

  example("allows computing on with its loss afterwards, and records nothing for that", function()
    local a, total = leaf { 2 }, f64 { 0 }
    for _ = 1, 3 do
      local loss = a * a
      loss:backward()
      total = total + loss
    end
    assert.same({ 12 }, total:totable())
    assert.equal(0, core.tape_nodes())
    assert.error_matches(function() total:backward() end, "retain_graph")
  end)

  example("takes its options only by their names", function()
    local loss = (leaf { 2 } * 3):sum()
    assert.error_matches(function() loss:backward { retain = true } end, "no option 'retain'; it takes retain_graph")
    assert.error_matches(function() loss:backward { create_graph = true } end, "no gradients of gradients")
    assert.error_matches(function() loss:backward { retain_graph = 1 } end, "true or false, not a number")
    assert.error_matches(function() loss:backward(nil, true) end, "options must be a table; got true")
    loss:backward()
  end)

  example("says of a seed of another dtype that the dtype is at fault", function()
    local y = leaf { 1, 2 } * 2
    assert.error_matches(function() y:backward(gm.ones({ 2 }, { dtype = "bf16" })) end,
      "the seed is of bf16, the loss of f64; cast the seed")
  end)
end)

describe("the gradient of a computed tensor", function()
  it("is kept on request", function()
    gm.scope(function()
      local a = leaf { 2 }
      local h = (a * 3):retain_grad()
      local z = h * h + h
      z:sum():backward()
      assert.same({ 13 }, h:grad():totable())
      assert.same({ 39 }, a:grad():totable())
    end)
  end)

  it("of what only an activation reads is that of the activation's result", function()
    gm.scope(function()
      local x, v, w = leaf { { 1, -2 } }, leaf { { 0.3, 0.1 }, { -0.2, 0.4 } }, leaf { { 0.7, -1 } }
      local h = ops.linear(x, v, nil, "gelu"):retain_grad()
      ops.linear(h, w):sum():backward()
      assert.same({ { 0.7, -1 } }, h:grad():totable())
    end)
  end)

  it("is counted once where the backward comes in two halves", function()
    gm.scope(function()
      local x, v, w = leaf { { 1, -2 } }, leaf { { 0.3, 0.1 }, { -0.2, 0.4 } }, leaf { { 0.7, -1 } }
      local h = ops.linear(x, v):retain_grad()
      local loss = ops.linear(h, w):sum()
      local tape = core.tape_take()
      core.tape_run(tape, { pass = "input", outputs = { loss }, inputs = { x } })
      core.tape_run(tape, { pass = "weight" })
      core.tape_free(tape)
      assert.same({ { 0.7, -1 } }, h:grad():totable())
      assert.same({ { 0.7, -1.4 }, { -1, 2 } }, v:grad():totable())
    end)
  end)

  it("says what to call where nobody asked", function()
    gm.scope(function()
      local h = leaf { 2 } * 3
      h:sum():backward()
      assert.error_matches(function() return h:grad() end, "computed by 'mul'.* call t:retain_grad%(%) before backward")
      assert.error_matches(function() h:retain_grad() end, "call it before")
      assert.error_matches(function() gm.ones({ 1 }):retain_grad() end, "nothing that requires a gradient")
    end)
  end)

  it("changes nothing for leaves, and survives the value's own end", function()
    gm.scope(function()
      local a = leaf { 2 }:retain_grad()
      local loss = gm.scope(function() return (a * 3):retain_grad():sum() end)
      loss:backward()
      assert.same({ 3 }, a:grad():totable())
    end)
  end)
end)

describe("what was recorded", function()
  it("is free as soon as nothing leads to it, backward or not", function()
    local a = leaf({ 1, 2 }):keep()
    local live = gm.memory().live
    gm.scope(function()
      for _ = 1, 3 do
        gm.scope(function()
          local y = a
          for _ = 1, 20 do y = ops.gelu(y * y) end
          return y:sum():item()
        end)
        assert.equal(0, core.tape_nodes())
        assert.equal(live, gm.memory().live)
      end
    end)
    a:release()
  end)

  it("may be a chain longer than the stack of C", function()
    local a = leaf({ 1 }):keep()
    local h = gm.scope(function()
      local y = a
      for _ = 1, 200 do
        y = gm.scope(function(z)
          for _ = 1, 1000 do z = z + 1 end
          return z
        end, y)
      end
      return y
    end)
    assert.equal(200000, core.tape_nodes())
    h:release()
    assert.equal(0, core.tape_nodes())
    a:release()
  end)
end)
