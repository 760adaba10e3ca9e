-- Scopes own tensors; the collector is only the back-up.
local gm = require "ganymede"

describe("gm.scope", function()
  local live
  before_each(function() collectgarbage() collectgarbage() live = gm.memory().live end)

  it("releases what it made, without the collector", function()
    collectgarbage "stop"
    finally(function() collectgarbage "restart" end)
    gm.scope(function() for _ = 1, 100 do gm.zeros { 1024 } end end)
    assert.equal(live, gm.memory().live)
  end)

  it("hands over what it returns, also inside tables", function()
    local t = gm.scope(function()
      gm.zeros { 8 }
      local out = { deep = { gm.full({ 4 }, 2) } }
      out.self = out
      return out
    end)
    assert.equal(2, t.deep[1]:get(4))
    assert.equal(live + 16, gm.memory().live)
    t.deep[1]:release()
    assert.equal(live, gm.memory().live)
  end)

  it("spares what was kept, however deep it is stored", function()
    local box = {}
    gm.scope(function() gm.scope(function() box.state = gm.full({ 4 }, 5):keep() end) end)
    assert.equal(5, box.state:get(1))
    box.state:release()
  end)

  it("releases when the function fails, and keeps the error", function()
    assert.error_matches(function() gm.scope(function() gm.zeros { 8 } error "boom" end) end, "boom")
    assert.equal(live, gm.memory().live)
  end)

  it("explains a tensor used after its scope", function()
    local leaked
    gm.scope(function() leaked = gm.zeros { 8 } end)
    assert.error_matches(function() leaked:get(1) end, "made by 'empty'%) was released when its scope closed")
  end)

  it("keeps a view alive without its base", function()
    local part = gm.scope(function() return gm.full({ 4, 4 }, 7)[2] end)
    assert.same({ 7, 7, 7, 7 }, part:totable())
    part:release()
    assert.equal(live, gm.memory().live)
  end)

  it("refuses to be closed by another coroutine, and can be unwound then", function()
    local core = require "ganymede.core"
    local depth = core.scope_depth()
    local inner = coroutine.wrap(function() gm.scope(coroutine.yield) end)
    inner()
    local ok, err = pcall(gm.scope, function() inner() end)
    assert.is_false(ok)
    assert.matches("opened by another coroutine", tostring(err))
    assert.equal(depth + 1, core.scope_depth()) -- that of the coroutine that died
    core.scope_unwind(depth)
    assert.equal(depth, core.scope_depth())
  end)

  it("collects garbage when the limit is near, then succeeds", function()
    gm.memory_limit(gm.memory().reserved + 40 * 4096)
    finally(function() gm.memory_limit(0) end)
    for _ = 1, 1000 do gm.zeros { 1024 } end -- no scope: only the collector can help
  end)

  it("fails with wanted, in use, limit and the largest holders when the limit is really reached", function()
    local held = gm.zeros { 10 }
    gm.memory_limit(1)
    finally(function() gm.memory_limit(0) end)
    local ok, err = pcall(gm.zeros, { 3000000 })
    assert.is_false(ok)
    assert.matches("wanted 11%.4 MiB %(12000000 bytes%) for 'empty'", err)
    assert.matches("in use, limit 1 bytes; largest holders", err)
    assert.equal(10, held:numel())
  end)

  it("charges bytes to module path and op", function()
    local core = require "ganymede.core"
    core.set_path "spec.holder"
    local t = gm.ops.relu(gm.zeros { 250000 })
    core.set_path ""
    local found
    for _, h in ipairs(gm.memory_holders(200)) do if h.place == "spec.holder: relu" then found = h end end
    assert.equal(1000000, found.live)
    assert.equal(1, found.blocks)
    t:release()
  end)
end)
