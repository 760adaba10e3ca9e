--- Graphs of a CPU (kernels/graph_host.h): what is recorded does not run, each replay runs its kernels with the numbers
-- of its moment, and what the host would do in it is refused. The truth of each example is the same op run at once.
-- spec/cuda/graph_spec.lua is about those of a GPU.
local core = require "ganymede.core"
local gm = require "ganymede"
local graphs = require "spec.kernels.graphs"

local ops = gm.ops

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

local function list(t) return t:totable() end

local record = graphs.record

describe("a graph of the CPU", function()
  it("runs when it is replayed, as often, with what its tensors then hold", function()
    local x, y = gm.tensor { 1, 2, 3 }, gm.zeros { 3 }
    local g = record(function() y:copy_(y + x * 2) end)
    assert.same({ 0, 0, 0 }, list(y))
    g:replay()
    x:copy_(gm.tensor { 10, 20, 30 })
    g:replay()
    g:replay()
    assert.same({ 42, 84, 126 }, list(y))
    assert.equal(3, g:about().nodes)
    g:close()
    assert.has_error(function() g:replay() end)
  end)

  it("has memory of its own, in which what is released in it serves again", function()
    local x, y = gm.tensor { 1, 2, 3, 4 }, nil
    local live = core.memory().live
    local g = record(function()
      y = gm.scope(function()
        local t = x
        for _ = 1, 20 do t = gm.scope(function() return t + 1 end) end
        return t
      end):keep()
    end)
    for _ = 1, 3 do
      gm.scope(function() for _ = 1, 8 do gm.zeros { 4 } end end) -- of the sizes that the graph's have
      g:replay()
      assert.same({ 21, 22, 23, 24 }, list(y))
    end
    assert.is_true(g:about().bytes <= 64 * 21)
    g:close()
    assert.same({ 21, 22, 23, 24 }, list(y)) -- a tensor outlives its graph
    y:release()
    assert.equal(live, core.memory().live)
  end)

  it("keeps tensors that it reads, whoever else lets them go", function()
    local x, y = gm.tensor { 1, 2, 3 }, gm.zeros { 3 }
    local g = record(function() y:copy_(x) end)
    x:release()
    gm.scope(function() for _ = 1, 4 do gm.tensor { 9, 9, 9 } end end)
    g:replay()
    assert.same({ 1, 2, 3 }, list(y))
    g:close()
  end)

  it("counts its ops at each replay, and holds those that write into a part of a tensor", function()
    local x, calls = gm.zeros { 2, 3 }, core.counters().calls
    local g = record(function() x:narrow(1, 2, 1):copy_(x:narrow(1, 1, 1) + 1) end)
    assert.equal(calls, core.counters().calls)
    g:replay()
    assert.equal(calls + 2, core.counters().calls)
    assert.same({ { 0, 0, 0 }, { 1, 1, 1 } }, list(x))
    g:close()
  end)

  it("gives the bits of the same ops run at once", function()
    local w, codes = gm.normal { 24, 64 }, ops.quantize(gm.normal { 8, 64 }, { bits = 4 })
    local x = gm.normal { 3, 64 }
    local function compute() return ops.softmax(ops.linear_quantized(x, codes, nil, "silu", { bits = 4 }), 2),
      ops.rms_norm(ops.linear(x, w), gm.zeros({ 24 }) + 2) end
    local a, b
    local g = record(function() a, b = compute() end)
    for seed = 1, 2 do
      x:copy_(gm.normal({ 3, 64 }, { seed = seed }))
      g:replay()
      local at_once, too = compute()
      assert.same(list(at_once), list(a))
      assert.same(list(too), list(b))
    end
    g:close()
  end)

  it("tells what its kernels refuse", function()
    local w, index = gm.normal { 4, 3 }, gm.tensor({ 1, 2 }, { dtype = "i64" })
    local g = record(function() ops.embedding(w, index) end)
    g:replay()
    index:copy_(gm.tensor({ 1, 9 }, { dtype = "i64" }))
    assert.error_matches(function() g:replay() end, "embedding: index 9 at position 1")
    g:close()
  end)

  it("holds no numbers that the host reads or writes, and goes on", function()
    local x = gm.zeros { 2 }
    assert.error_matches(function() record(function() return (x + 1):totable() end) end, "work of the host")
    assert.error_matches(function() record(function() return x + gm.tensor { 1, 2 } end) end, "work of the host")
    assert.error_matches(function() record(function() return x:get(1) end) end, "work of the host")
    graphs.is_usable()
  end)

  it("has no end if somebody swallows that", function()
    local x = gm.zeros { 2 }
    core.graph_begin()
    pcall(list, x)
    assert.error_matches(core.graph_end, "work of the host")
    graphs.is_usable()
  end)

  it("is recorded alone", function()
    assert.error_matches(function() record(function() core.graph_begin() end) end, "being recorded .* already")
    assert.error_matches(core.graph_end, "no graph is being recorded")
    graphs.is_usable()
  end)
end)
