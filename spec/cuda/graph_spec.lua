--- Graphs of the CUDA device (kernels/graph.h): what is recorded does not run, each replay does all of it with the
-- numbers of its moment, memory stays in its place, and what cannot be recorded says so and breaks nothing.
--
-- It runs itself again with --device cuda, under the emulation where there is no GPU. The truth of each example is the
-- same op run at once.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local gm = require "ganymede"
local graphs = require "spec.kernels.graphs"
local run_host = require "spec.support.run_host"

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

if core.device().name ~= "cuda" then
  describe("graphs", function()
    if emulation.lacks(pending) then return end
    it("of a GPU", function()
      local result = run_host({ "spec", "spec/cuda/graph_spec.lua", "--device", "cuda" },
        { cwd = GANYMEDE_ROOT, env = emulation.environment() })
      assert.equal(0, result.code, result.out .. result.err)
      assert.is_truthy(result.out:find "\n[1-9]%d* passed, 0 failed\n", result.out)
    end)
  end)
  return
end

local counted = core.device().description:find "emulated GPU" and emulation.counts

local function list(t) return t:totable() end

local record = graphs.record

describe("a graph", function()
  it("runs when it is replayed, as often, with what its tensors then hold", function()
    local x, y = gm.tensor { 1, 2, 3 }, gm.zeros { 3 }
    local g = record(function() y:copy_(y + x * 2) end)
    assert.same({ 0, 0, 0 }, list(y))
    g:replay()
    assert.same({ 2, 4, 6 }, list(y))
    x:copy_(gm.tensor { 10, 20, 30 })
    g:replay()
    g:replay()
    assert.same({ 42, 84, 126 }, list(y))
    assert.is_true(g:about().nodes >= 2)
    g:close()
    assert.has_error(function() g:replay() end)
  end)

  it("writes the bytes of the host that it was recorded with", function()
    local y = gm.zeros { 3 }
    local g = record(function() y:copy_(y + gm.tensor { 5, 6, 7 }) end)
    gm.tensor { 1, 1, 1 } -- goes through the same staging memory
    g:replay()
    g:replay()
    assert.same({ 10, 12, 14 }, list(y))
    g:close()
  end)

  it("has memory of its own, which nothing else gets, and gives it back", function()
    local x = gm.tensor { 1, 2, 3, 4 }
    local reserved, live = core.memory().reserved, core.memory().live
    local y
    local g = record(function()
      local t = gm.scope(function() return x * 3 end)
      y = (t + 1):keep()
      t:release()
    end)
    local held = g:about().bytes
    assert.is_true(held >= 32)
    for _ = 1, 3 do
      gm.scope(function() for _ = 1, 8 do gm.zeros { 4 } end end) -- of the sizes that the graph's have
      g:replay()
      assert.same({ 4, 7, 10, 13 }, list(y))
    end
    g:close()
    assert.same({ 4, 7, 10, 13 }, list(y)) -- a tensor outlives its graph
    y:release()
    assert.equal(live, core.memory().live)
    local after = core.memory().reserved
    gm.scope(function() for _ = 1, 2 do gm.zeros { 4 } end end)
    assert.equal(after, core.memory().reserved) -- what it had serves others
    assert.is_true(after >= reserved)
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

  it("counts its ops at each replay and its memory in the peak", function()
    local x = gm.zeros { 256 }
    local calls = core.counters().calls
    local g = record(function() gm.scope(function() return (x + 1) * 2 end):release() end)
    assert.equal(calls, core.counters().calls)
    core.memory_reset_peak()
    local live = core.memory().peak
    for _ = 1, 3 do g:replay() end
    assert.equal(calls + 6, core.counters().calls)
    assert.equal(live + 2 * 1024, core.memory().peak)
    g:close()
  end)

  it("reads the step block of its replay: dropout", function()
    local x, function_of = gm.zeros { 64 } + 1, function(x) return gm.ops.dropout(x, 0.5) end
    local want = {}
    for step = 1, 3 do
      core.set_rng_step(step)
      core.begin_step()
      want[step] = list(function_of(x))
    end
    core.begin_step()
    local y
    local g = record(function() y = function_of(x) end)
    for step = 1, 3 do
      core.set_rng_step(step)
      g:replay()
      assert.same(want[step], list(y))
    end
    assert.is_not.same(want[1], want[2])
    g:close()
  end)

  it("refuses a step block that changes in between", function()
    local x = gm.zeros { 8 } + 1
    assert.error_matches(function()
      record(function()
        gm.ops.dropout(x, 0.5)
        core.set_rng_step(77)
        gm.ops.dropout(x, 0.5)
      end)
    end, "a step block .* cannot be part of a graph")
  end)

  it("holds products and attention, of libraries too", function()
    local a, b = gm.normal { 9, 16 }, gm.normal { 16, 5 }
    local q, k, v = gm.normal { 2, 6, 2, 8 }, gm.normal { 2, 6, 2, 8 }, gm.normal { 2, 6, 2, 8 }
    local y, o
    local g = record(function() y, o = a:matmul(b), gm.ops.attention(q, k, v, { causal = true }) end)
    for _ = 1, 2 do
      a:copy_(gm.normal { 9, 16 })
      q:copy_(gm.normal { 2, 6, 2, 8 })
      local products = counted and counted().products
      g:replay()
      if counted then assert.equal(products, counted().products) end
      assert.same(list(a:matmul(b)), list(y))
      assert.same(list(gm.ops.attention(q, k, v, { causal = true })), list(o))
    end
    g:close()
  end)

  -- The list of tensors lies on the device, too; before it is asked for, ops have had memory of every size near its.
  it("keeps what its kernels read beside tensors", function()
    local x, y, sum = gm.zeros { 3 } + 2, gm.zeros { 3 } + 1, gm.zeros({}, { dtype = "f64" })
    local g = record(function()
      for n = 128, 512, 16 do gm.scope(function() y:copy_(y + gm.zeros { n }:narrow(1, 1, 3)) end) end
      core.run_op("cuda", "sum_squares", { x, y, n = 2 }, { sum, n = 1 }, {})
    end)
    for _ = 1, 3 do
      g:replay()
      assert.equal(15, sum:item())
    end
    g:close()
  end)

  it("tells at the next read what its kernels refused", function()
    local w, index = gm.normal { 4, 3 }, gm.tensor({ 1, 2 }, { dtype = "i64" })
    local g = record(function() gm.ops.embedding(w, index) end)
    g:replay()
    index:copy_(gm.tensor({ 1, 9 }, { dtype = "i64" }))
    g:replay()
    assert.error_matches(function() list(w) end, "embedding: index 9 at position 1")
    g:close()
    list(w)
  end)

  describe("cannot hold", function()
    it("a read: it says so, and where, and the device goes on", function()
      local x, reserved = gm.zeros { 2 }, core.memory().live
      assert.error_matches(function()
        record(function()
          gm.scope(function()
            core.set_path "blocks.3.mlp"
            local y = x + 1
            core.set_path ""
            return y:totable()
          end)
        end)
      end, "reading 8 bytes cannot be part of a graph.*blocks.3.mlp: add")
      assert.same({ 0, 0 }, list(x))
      assert.equal(reserved, core.memory().live)
      graphs.is_usable()
    end)

    it("a read that somebody swallows: the recording has no end", function()
      local x = gm.zeros { 2 }
      core.graph_begin()
      pcall(list, x)
      assert.error_matches(core.graph_end, "reading 8 bytes cannot be part of a graph")
      graphs.is_usable()
    end)

    it("another recording", function()
      assert.error_matches(function() record(function() core.graph_begin() end) end, "being recorded .* already")
      assert.error_matches(core.graph_end, "no graph is being recorded")
      graphs.is_usable()
    end)

    it("more memory than there is", function()
      local x, limit = gm.zeros { 1024 }, core.memory().limit
      core.memory_limit(core.memory().reserved + 2 ^ 16)
      finally(function() core.memory_limit(limit) end)
      assert.error_matches(function()
        record(function()
          local kept = {}
          for i = 1, 32 do kept[i] = x + i end
          return kept
        end)
      end, "out of memory")
      core.memory_limit(limit)
      graphs.is_usable()
    end)
  end)

  if not counted then return end

  it("is one launch for the driver, and nothing else", function()
    local x, y = gm.tensor { 1, 2, 3 }, gm.zeros { 3 }
    local g = record(function() y:copy_(gm.ops.gelu(y + x) * 2) end)
    g:replay()
    local before = counted()
    for _ = 1, 5 do g:replay() end
    local after = counted()
    assert.equal(5, after.graphs - before.graphs)
    assert.equal(5 * g:about().nodes, after.nodes - before.nodes)
    for _, name in ipairs {
      "launches", "to_device", "to_host", "on_device", "sets", "allocations", "frees", "waits",
    } do
      assert.equal(before[name], after[name], name)
    end
    g:close()
  end)
end)
