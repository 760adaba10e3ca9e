--- What forward keeps for backward in a tier on a disk: which bytes go, that each goes once, and that they come back.
-- The truth is the same graph in memory.
local core = require "ganymede.core"
local device = require "spec.support.device"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local ops = gm.ops

local PAGE = 4096
local ROWS, COLUMNS = 32, 32 -- f64: 8 KiB, two pages
local BYTES = ROWS * COLUMNS * 8

local function number(seed) return gm.normal({ ROWS, COLUMNS }, { seed = seed, dtype = "f64" }) end

describe("what a tape keeps on a disk", function()
  if not device.is_cpu() then return pending "a tier below a GPU: spec/cuda/offload_spec.lua" end
  local folder, tier, x, w
  before_each(function()
    folder = shell.temporary_folder()
    tier = core.tier("disk", folder, 8 * BYTES)
    x, w = number(1):requires_grad(true):keep(), number(2):requires_grad(true):keep()
    tier:rest(false, true, PAGE)
  end)
  after_each(function()
    tier:close()
    shell.remove(folder)
  end)

  -- n + 1 layers: both products of each keep its input, which for the first is a leaf. So n storages are kept.
  local function layers(n)
    local a = x
    for _ = 0, n do
      a = gm.scope(function() return ops.add(ops.matmul(a, w), ops.matmul(a, w)) end)
    end
    return a
  end

  local function saved_bytes()
    local bytes = 0
    for _, entry in ipairs(core.tape_saved()) do bytes = bytes + entry.bytes end
    return bytes
  end

  -- Gradients of x and w from fn().
  local function gradients(fn)
    core.zero_grad { x, w }
    gm.scope(function() fn():backward() end)
    return { x:grad():totable(), w:grad():totable() }
  end

  it("is written once, read once if the ring had no place for it, and gone when backward has run", function()
    gm.scope(function()
      local y = layers(40):sum()
      local s = tier:stats()
      assert.equal(40 * BYTES, saved_bytes())
      assert.equal(40 * BYTES, s.placed_bytes)
      assert.equal(40, s.stored)
      assert.equal(0, s.fetched) -- forward uses what is in the ring
      y:backward()
    end)
    local s = tier:stats()
    assert.equal(0, s.placed_bytes)
    assert.equal(40 * BYTES, s.written_bytes) -- each storage once, though two nodes keep it
    assert.equal(s.fetched * BYTES, s.read_bytes)
    assert.is_true(s.fetched >= 32 and s.fetched <= 40, s.fetched) -- the ring holds 8 of them
  end)

  it("takes memory for the ring alone, however much there is", function()
    local most = {}
    for i, n in ipairs { 20, 20, 60 } do -- the first makes the buffers of gradients
      collectgarbage()
      core.memory_reset_peak()
      gradients(function() return layers(n):sum() end)
      most[i] = core.memory().peak
    end
    assert.equal(most[2], most[3]) -- in memory: 40 times BYTES more
  end)

  it("gives the gradients that it gives in memory", function()
    local drop = gm.nn.Dropout(0.5)
    local function graph()
      core.set_seed(7)
      core.begin_step()
      local a, sum = x, nil
      for _ = 1, 12 do
        a = drop(ops.tanh(ops.matmul(a, w)))
        sum = sum and ops.add(sum, ops.square(a:transpose(1, 2)):sum()) or a:sum()
      end
      return sum
    end
    local on_disk = gradients(graph)
    assert.is_true(tier:stats().fetched > 0)
    tier:rest(false, false, PAGE)
    assert.same(gradients(graph), on_disk)
  end)

  it("is what was computed: parameters, frozen ones, and data stay in memory", function()
    gm.scope(function()
      local frozen, computed = number(3):keep(), ops.tanh(x)
      local y = ops.matmul(ops.matmul(computed, frozen), w)
      assert.is_false(core.rests(frozen))
      assert.is_false(core.rests(w))
      assert.is_false(core.rests(x))
      assert.is_true(core.rests(computed))
      y:sum():backward()
    end)
  end)

  it("is no view of a parameter or of data, whatever it passed through", function()
    local function same(a, b) return a, b end
    local views = {
      function(t) return t:transpose(1, 2) end, function(t) return t:reshape(ROWS * COLUMNS):reshape(ROWS, COLUMNS) end,
      function(t) return t:narrow(1, 1, ROWS) end, function(t) return (gm.recompute(same, t, x)) end,
      function(t) return gm.recompute(function(a) return a:transpose(1, 2) end, t):reshape(ROWS, COLUMNS) end,
      function(t) return t:reshape(1, ROWS, COLUMNS):select(1, 1) end,
      function(t) return t:reshape(1, ROWS, COLUMNS):unbind(1) end,
    }
    for _, view in ipairs(views) do
      gm.scope(function()
        local frozen, computed, other = number(3):keep(), ops.tanh(x), ops.tanh(w)
        local y = ops.matmul(ops.mul(ops.matmul(view(computed), view(frozen)), view(x)), view(w))
        local z = gm.recompute(function(a, b) return ops.matmul(a, b) end, y, view(w))
        ops.matmul(z, view(other))
        assert.same({ false, false, false }, { core.rests(frozen), core.rests(w), core.rests(x) })
        assert.same({ true, true, true }, { core.rests(computed), core.rests(y), core.rests(other) })
        z:sum():backward()
      end)
    end
  end)

  it("is not what is smaller than `least`", function()
    tier:rest(false, true, BYTES + 1)
    gm.scope(function() layers(3):sum():backward() end)
    assert.equal(0, tier:stats().stored)
  end)

  it("takes no space when it is freed in forward", function()
    gm.scope(function()
      gm.scope(function() layers(5) end)
      assert.equal(0, tier:stats().placed_bytes)
      assert.equal(0, tier:stats().read_bytes)
    end)
  end)

  it("is refused after a write in place", function()
    local ok, why = pcall(gm.scope, function()
      local a = ops.tanh(x)
      local y = ops.tanh(ops.matmul(a, w)):sum()
      gm.no_grad(function() a:fill_(0) end)
      y:backward()
    end)
    assert.is_false(ok)
    assert.truthy(tostring(why):find("changed in place", 1, true), why)
  end)
end)
