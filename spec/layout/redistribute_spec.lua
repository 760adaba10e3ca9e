-- Layouts as Lua sees them: what a tensor says of its own, redistribution and gathering, norms of gradients, and the
-- gradient reducer under a real backward. The arithmetic is tested in C on random meshes (spec/unit).
-- ranks: 1 2 4
--
-- On 4 ranks the mesh is data 2 x row 2; on fewer it is one axis of data, and `row` is an axis of size 1 that the mesh
-- lacks, which cuts nothing.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local world, rank = core.world(), core.rank()
local n_data = world == 4 and 2 or world
local data_at = world == 4 and math.floor(rank / 2) or rank

local function numbers(...)
  local list, n = {}, 1
  for _, size in ipairs { ... } do n = n * size end
  for i = 1, n do list[i] = (i * 37) % 101 - 50 end
  return gm.tensor(list, { dtype = "f64", shape = { ... } })
end

local function largest(t) return (t:abs():reshape(t:numel()):max(1)):item() end
local function names(axes) return table.concat(axes, ".") end
local by_rows, whole = { cuts = { "data" } }, {}

describe("layouts in Lua", function()
  both.in_f64(setup, teardown, function()
    if world == 4 then core.set_mesh { { "data", 2 }, { "row", 2 } } else core.set_mesh { { "data", world } } end
  end)

  it("a tensor is whole until it is laid out otherwise", function()
    local layout = core.layout(numbers(3, 4))
    assert.same({ {}, {} }, layout.cuts)
    assert.same({}, layout.partial)
  end)

  it("blocks are cut, shapes stay global, gathering restores", function()
    local x = numbers(5, 6)
    local y = core.redistribute(x, { cuts = { "data", { "row" } } })
    assert.same({ 5, 6 }, y:shape())
    local rows, columns = math.ceil(5 / n_data), world == 4 and 3 or 6
    assert.same({ rows, columns }, y:local_tensor():shape())
    if world == 4 then assert.equal("row", names(core.layout(y).cuts[2])) end
    local first = data_at * rows + 1
    local have = math.min(rows, 5 - data_at * rows)
    local column = world == 4 and rank % 2 * 3 + 1 or 1
    assert.same(x:narrow(1, first, have):narrow(2, column, columns):totable(),
      y:local_tensor():narrow(1, 1, have):totable())
    local z = core.gather(y)
    assert.same({ {}, {} }, core.layout(z).cuts)
    assert.same(x:totable(), z:local_tensor():totable())
  end)

  it("axes nest in the order given, as a list or between dots", function()
    local x = numbers(8)
    local a = core.redistribute(x, { cuts = { "row.data" } })
    local b = core.redistribute(x, { cuts = { { "row", "data" } } })
    assert.same(core.layout(a), core.layout(b))
    assert.same(a:local_tensor():totable(), b:local_tensor():totable())
    if world == 4 then assert.equal("row.data", names(core.layout(a).cuts[1])) end
  end)

  it("merged rows stay cut between their units, where a layout says so", function()
    local x = core.redistribute(numbers(2 * n_data - 1, 4, 3), by_rows):reshape(-1, 3)
    local layout = core.layout(x)
    if n_data == 1 then return assert.is_nil(layout.units) end
    assert.same({ 4, 0 }, layout.units)
    assert.equal(8, x:local_tensor():size(1))
    local again = core.redistribute(core.redistribute(x, whole), layout)
    assert.same(layout, core.layout(again))
    assert.same(x:local_tensor():totable(), again:local_tensor():totable())
    assert.equal(x:size(1) / 4, again:reshape(-1, 4, 3):size(1))
    layout.units = nil
    assert.is_true(core.redistribute(x, layout):local_tensor():size(1) < 8)
    assert.is_nil(core.layout(numbers(4)).units)
  end)

  it("partial sums add up", function()
    local x = numbers(4)
    local y = x:redistribute { partial = { "data" } }
    assert.equal(data_at == 0 and largest(x) or 0, largest(y:local_tensor()))
    assert.same(x:totable(), core.gather(y):totable())
    assert.same(x:totable(), y:redistribute(by_rows):gather():totable())
    if n_data > 1 then
      assert.equal("data", names(y:layout().partial))
      y:local_tensor():fill_(7) -- memory of its own on every rank
      assert.same(numbers(4):totable(), x:totable())
    end
  end)

  it("gradients pass through", function()
    local x = numbers(6, 2)
    x:requires_grad(true)
    local y = core.gather(core.redistribute(x * 2, by_rows))
    y:backward(numbers(6, 2))
    assert.same((numbers(6, 2) * 2):totable(), core.gather(x:grad()):totable())
  end)

  it("says what is wrong with units", function()
    local function fails(units, pattern)
      assert.error_matches(function() core.redistribute(numbers(8), { cuts = { "data" }, units = units }) end, pattern)
    end
    fails({ -1 }, "units%[1%] must be a whole number of elements")
    fails({ 0.5 }, "units%[1%] must be a whole number of elements")
    fails(3, "units is a list with a number for each dimension")
    if n_data > 1 then fails({ 3 }, "units%[1%] = 3 does not divide the 8 elements") end
  end)

  it("says what is wrong with a layout", function()
    local x = numbers(4)
    local function refused(text, layout)
      local ok, err = pcall(core.redistribute, x, layout)
      assert.is_false(ok)
      assert.truthy(tostring(err):find(text, 1, true), tostring(err))
    end
    refused("there is no axis 'rows'", { cuts = { "rows" } })
    refused("there is no field 'cut'", { cut = { "data" } })
    refused("cuts is a list", { cuts = "data" })
    refused("an axis is named by a string", { cuts = { { 1 } } })
    refused("cuts dimension 2 of a tensor with 1", { cuts = { {}, "data" } })
    refused("'data' is used twice", { cuts = { "data" }, partial = { "data" } })
    refused("'data' is used twice", { cuts = { "data.data" } })
  end)

  -- A model of two weights and one that is not used; the loss is a sum over rows that the data axis cuts.
  local function model()
    local list = { numbers(3, 2), numbers(7), numbers(2, 3) }
    for _, weight in ipairs(list) do weight:requires_grad(true) end
    return list
  end
  local function loss_of(x, list)
    return ops.tanh(ops.linear(ops.tanh(ops.linear(x, list[1]) * 0.01), list[3]) * 0.01):sum()
  end
  local function serial(x)
    local list = model()
    loss_of(x, list):backward()
    return list[1]:grad(), list[3]:grad()
  end
  local function near(want, got) -- sums of 5 numbers in another order
    assert.is_true(largest(want - got) <= 1e-13 * largest(want))
  end

  for _, overlap in ipairs { true, false } do
    it("a reducer sums gradients over data, " .. (overlap and "while backward runs" or "at the end"), function()
      local x, list = numbers(5, 2), model()
      local want, want_too = serial(x)
      local reducer = core.reducer_new(list, { bucket_bytes = 8, overlap = overlap })
      assert.same({ buckets = 3, bytes = 19 * 8 }, core.reducer_info(reducer))
      for _ = 1, 2 do
        core.zero_grad(list)
        core.reducer_arm(reducer, true)
        loss_of(core.redistribute(x, by_rows), list):backward()
        core.reducer_finish(reducer)
        near(want, core.gather(list[1]:grad()))
        near(want_too, core.gather(list[3]:grad()))
        assert.same({}, core.layout(list[1]:grad()).partial)
        assert.same({ 2 }, core.reducer_unused(reducer))
        assert.is_nil(list[2]:grad())
      end
      core.reducer_free(reducer)
      core.reducer_free(reducer)
      assert.error_matches(function() core.reducer_finish(reducer) end, "this reducer was freed")
    end)
  end

  it("norms of gradients are those of the whole, reduced or not", function()
    local x, list = numbers(5, 2), model()
    local sums, top = { 0, 0, 0 }, 0
    for _, gradient in ipairs { serial(x) } do
      for _, v in ipairs(gradient:reshape(6):totable()) do
        for p = 1, 3 do sums[p] = sums[p] + math.abs(v) ^ p end
        top = math.max(top, math.abs(v))
      end
    end
    loss_of(core.redistribute(x, by_rows), list):backward()
    for p = 1, 3 do -- a few roundings of sums of 12 numbers, and of the root
      assert.near(sums[p] ^ (1 / p), core.grad_norm(list, p), 1e-13 * sums[p] ^ (1 / p))
    end
    assert.near(top, core.grad_norm(list, math.huge), 1e-13 * top)
    assert.equal(core.grad_norm(list, 2), core.grad_norm(list))
    assert.equal(0, core.grad_norm { list[2] })
    assert.error_matches(function() core.grad_norm(list, 0) end, "should be above 0")
  end)

  it("an optimizer refuses gradients that are still terms of a sum", function()
    if n_data == 1 then return end
    local x, list = numbers(5, 2), model()
    local optimizer = core.optimizer("sgd", list, {})
    loss_of(core.redistribute(x, by_rows), list):backward()
    assert.error_matches(function() optimizer:step { lr = 0.1 } end, "parameter 1 is still to be summed over data")
  end)

  it("whole tensors need no mesh", function() assert.equal(24, core.redistribute(numbers(24), whole):numel()) end)
end)
