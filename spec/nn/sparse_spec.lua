--- Tables with sparse = true: gradients are the rows that were touched, and equal dense ones to the bit; optimizers
-- move these rows alone; what cannot work is refused. On two ranks, which share the batch, also the sums over them.
-- spec/golden/sparse_spec.lua compares with PyTorch.
-- ranks: 1 2
local against = require "spec.tensor.against_serial"
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"

local world = core.world()
local function i64(list) return gm.tensor(list, { dtype = "i64" }) end
local function shared(t) return world == 1 and t or core.redistribute(t, { cuts = { { "data" } } }) end

-- Three samples (uneven on two ranks) of two tables of 5 and 4 rows.
local bags = { { { 0, 4 }, { 3, -1 } }, { { 4, 4 }, { -1, -1 } }, { { 1, 4 }, { 3, 3 } } }
local seed = { { { 1, 2 }, { 0.5, -3 } }, { { -1, 1 }, { 7, 1 } }, { { 0.75, 1 }, { -3, 4 } } }
local weights = { { { 0.5, 2 }, { -1, 7 } }, { { 0.25, 1 }, { 5, 5 } }, { { 1, 1.5 }, { 2, 1 } } }
local TOUCHED = { 0, 1, 4, 8 } -- row 5 + 3 of the second table

local function tables(options)
  local all = { counts = { 5, 4 }, width = 2 }
  for key, value in pairs(options) do all[key] = value end
  return nn.EmbeddingBag(all)
end

local function loss_of(layer, weighted)
  local given = weighted and shared(gm.tensor(weights)) or nil
  return (layer(shared(i64(bags)), given) * shared(gm.tensor(seed))):sum():settle()
end

describe("a sparse gradient", function()
  before_each(function()
    gm.context.load_config {}
    core.set_seed(4)
  end)

  for _, case in ipairs { { "sum" }, { "mean" }, { "sum", true }, { "sum", false, "rows" },
                          { "sum", true, "columns" } } do
    it(("of bags of mode %s%s%s has the numbers of a dense one"):format(case[1], case[2] and " with weights" or "",
      case[3] and ", cut by " .. case[3] or ""), numeric.f64(function()
      local dense = tables { mode = case[1], cut = case[3] }
      local sparse = tables { mode = case[1], cut = case[3], sparse = true }
      sparse.weight:detach():copy_(dense.weight:detach())
      for pass = 1, 2 do -- the second adds to the first
        loss_of(dense, case[2]):backward()
        loss_of(sparse, case[2]):backward()
        numeric.agree(core.gather(sparse.weight:grad()), core.gather(dense.weight:grad()):totable(), 1e-15 * pass)
      end
      if world == 1 then assert.same(dense.weight:grad():totable(), sparse.weight:grad():totable()) end
      assert.is_true(core.sparse_gradient(sparse.weight))
      core.zero_grad { sparse.weight }
      assert.is_nil(sparse.weight:grad())
    end))
  end

  it("lists the rows that were touched, each once, and no others", numeric.f64(function()
    local layer = tables { sparse = true }
    loss_of(layer):backward()
    core.sparse_sum { layer.weight }
    local rows, sums = core.sparse_rows(layer.weight)
    local list, dense = rows:totable(), layer.weight:grad():totable()
    for i, row in ipairs(list) do
      assert.equal(TOUCHED[i] or -1, row)
      assert.same(TOUCHED[i] and dense[row + 1] or { 0, 0 }, sums:totable()[i])
    end
    assert.is_true(#list >= #TOUCHED)
  end))

  it("of an embedding leaves the padding row out, and what is behind the end of an uneven batch", numeric.f64(function()
    local options = { count = 7, width = 2, padding_index = 3 }
    local dense = nn.Embedding(options)
    options.sparse = true
    local sparse = nn.Embedding(options)
    local index = shared(i64 { { 1, 3 }, { 6, 1 }, { 3, 6 } })
    sparse.weight:detach():copy_(dense.weight:detach())
    for _, layer in ipairs { dense, sparse } do
      local y = layer(index)
      ;(y * y:detach() + y):sum():settle():backward()
    end
    numeric.agree(core.gather(sparse.weight:grad()), core.gather(dense.weight:grad()):totable(), 1e-15)
    core.sparse_sum { sparse.weight }
    for _, row in ipairs(core.sparse_rows(sparse.weight):totable()) do
      assert.is_true(row == -1 or row == 1 or row == 6)
    end
  end))

  it("counts in the norm by which gradients are clipped", numeric.f64(function()
    local dense, sparse = tables {}, tables { sparse = true }
    for _, layer in ipairs { dense, sparse } do loss_of(layer):backward() end
    core.sparse_sum { sparse.weight }
    assert.near(core.grad_norm { dense.weight }, core.grad_norm { sparse.weight }, 1e-14)
  end))
end)

describe("an update of touched rows", function()
  before_each(function()
    gm.context.load_config {}
    core.set_seed(4)
  end)

  local function steps(layer, optimizer, n)
    for _ = 1, n do
      optimizer:zero_grad()
      loss_of(layer):backward()
      if world > 1 and not core.sparse_gradient(layer.weight) then
        gm.gradient_handlers.sum({ layer.weight }, "DATA")
      end
      core.sparse_sum { layer.weight }
      optimizer:step {}
    end
    return core.gather(layer.weight):totable()
  end

  for _, case in ipairs { { "SGD", { lr = 0.1 } }, { "Adagrad", { lr = 0.1, lr_decay = 0.1 } } } do
    for _, dtype in ipairs { "f32", "bf16" } do
      it(("by %s in %s has the bits of a dense update"):format(case[1], dtype), function()
        local old = gm.default_dtype()
        finally(function() gm.set_default_dtype(old) end)
        gm.set_default_dtype(dtype)
        local dense, sparse = tables {}, tables { sparse = true }
        sparse.weight:detach():copy_(dense.weight:detach())
        local one = steps(dense, gm.optim[case[1]](case[2], dense), 3)
        local other = steps(sparse, gm.optim[case[1]](case[2], sparse), 3)
        if world == 1 then
          assert.same(one, other)
        else -- on each rank the terms of a row are added up first, and rounded, in another order
          numeric.agree(gm.tensor(other), one, dtype == "f32" and 1e-6 or 0.05)
        end
      end)
    end
  end

  it("by SparseAdam moves no other row, and is the same on all ranks", numeric.f64(function()
    local layer = tables { sparse = true }
    local before = core.gather(layer.weight):totable()
    local optimizer = gm.optim.SparseAdam({ lr = 0.1 }, layer)
    local after = steps(layer, optimizer, 3)
    local touched = {}
    for _, row in ipairs(TOUCHED) do touched[row + 1] = true end
    for row = 1, 9 do
      for c = 1, 2 do
        assert.equal(touched[row] or false, before[row][c] ~= after[row][c])
      end
    end
    if world == 1 then return end
    local t = gm.tensor(after)
    numeric.agree(core.comm_all_reduce(gm.tensor(after), gm.context.get_group "DATA", "max"), t:totable(), 0)
  end))
end)

describe("sparse = true is refused", function()
  before_each(function() gm.context.load_config {} end)

  it("by optimizers that change all rows", function()
    local layer = tables { sparse = true }
    for _, case in ipairs {
      { "AdamW", {}, "AdamW: 'weight' has a sparse gradient.*changes all rows; SparseAdam, Adagrad and SGD" },
      { "Adafactor", {}, "changes all rows" }, { "CAME", {}, "changes all rows" },
      { "Lion", {}, "changes all rows" }, { "LARS", {}, "changes all rows" },
      { "SGD", { momentum = 0.9 }, "momentum moves all rows" },
      { "SGD", { weight_decay = 0.1 }, "weight decay changes all rows" },
      { "Adagrad", { weight_decay = 0.1 }, "weight decay changes all rows" },
      { "Adagrad", { state_dtype = "bf16" }, "moments of touched rows are f32" },
    } do
      assert.error_matches(function() gm.optim[case[1]](case[2], layer) end, case[3])
    end
    assert.error_matches(function() gm.optim.SparseAdam({ weight_decay = 1 }, layer) end, "weight decay")
    assert.error_matches(function()
      gm.optim.SGD({ groups = { { match = "weight", momentum = 0.5 } } }, layer)
    end, "momentum moves all rows")
  end)

  it("where another op uses the table", function()
    local layer = nn.Embedding { count = 4, width = 3, sparse = true }
    assert.error_matches(function() (layer.weight * 2):sum():backward() end, "lookups alone can give")
    if world == 1 then return end -- one rank sums nothing
    assert.error_matches(function() gm.gradient_handlers.sum({ layer.weight }, "DATA") end, "touched rows")
  end)

  it("where states of the optimizer rest elsewhere", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    assert.error_matches(function()
      gm.initialize { model = tables { sparse = true }, criterion = { type = "MSELoss" },
        optimizer = { type = "SparseAdam" }, offload = { optimizer = "disk", disk = folder } }
    end, "offload.optimizer cannot move the states of 'weight', which has a sparse gradient .* leave one of the two")
  end)

  it("with ZeRO, which divides no such table", function()
    if world == 1 then return end
    local function engine(options, zero)
      return gm.initialize { model = tables(options), criterion = { type = "MSELoss" }, zero = zero,
        optimizer = { type = "SparseAdam" } }
    end
    assert.error_matches(function() engine({ sparse = true }, 1) end,
      "zero = 1 does not divide a table.*cut = \"rows\"")
    engine({ sparse = true, cut = "rows" }, 2)
    against.install { tensor = { size = world, mode = "1d" } }
    finally(function() gm.context.load_config {} end)
    assert.error_matches(function() engine({ sparse = true, cut = "rows" }, 1) end,
      "there are no data ranks that it could divide anything over; leave zero out", 1, true)
  end)
end)
