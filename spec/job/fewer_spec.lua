--- ganymede.job.fewer: the meshes of a recipe on fewer ranks. Expected sizes are worked out by hand; that the settings
-- make a mesh is asked of parallel.resolve, after they were applied as --set applies them.
-- sanitizers: no, it holds Lua alone
local fewer = require "ganymede.job.fewer"
local parallel = require "ganymede.job.parallel"

-- The table with { "parallel.data.size=2", ... } applied.
local function applied(given, sets)
  local out = {}
  for name, value in pairs(given) do out[name] = value end
  for _, text in ipairs(sets) do
    local name, size = text:match "^parallel%.(%a+)%.size=(%d+)$"
    local part = type(out[name]) == "table" and out[name] or {}
    local copy = {}
    for key, value in pairs(part) do copy[key] = value end
    copy.size = tonumber(size)
    out[name] = copy
  end
  return out
end

-- { ranks = { data, pipeline, sequence, tensor }, ... } of all worlds from `least` on.
local function sizes(given, world, least)
  local out = {}
  for _, entry in ipairs((fewer.worlds(given, world, least))) do
    local plan = assert(parallel.resolve(applied(given or {}, entry.sets), entry.ranks))
    out[entry.ranks] = { plan.data, plan.pipeline, plan.sequence.size, plan.tensor.size }
  end
  return out
end

describe("a recipe on fewer ranks", function()
  it("has fewer data ranks, whether it gives their number or not", function()
    local three = { [3] = { 3, 1, 1, 1 }, [2] = { 2, 1, 1, 1 } }
    for _, given in ipairs { {}, { data = 4 }, { data = { size = 4, bucket_mb = 1 } }, { data = "auto" } } do
      assert.same(three, sizes(given, 4, 2))
    end
    assert.same(three, sizes(nil, 4, 2))
  end)

  it("lists the largest first, and changes nothing of the table", function()
    local given = { data = { size = 4 } }
    local list = fewer.worlds(given, 4, 1)
    assert.same({ 3, 2, 1 }, { list[1].ranks, list[2].ranks, list[3].ranks })
    assert.same({ "parallel.data.size=3" }, list[1].sets)
    assert.same({ data = { size = 4 } }, given)
  end)

  it("keeps the other axes whole", function()
    assert.same({ [4] = { 2, 2, 1, 1 }, [2] = { 1, 2, 1, 1 } }, sizes({ pipeline = 2 }, 6, 1))
    assert.same({ [4] = { 1, 1, 1, 4 } }, sizes({ tensor = { size = 4, mode = "1d" }, data = 2 }, 8, 1))
  end)

  it("takes from the axes of parallel.shrink in their order", function()
    local given = { data = 2, pipeline = 2, shrink = { "data", "pipeline" } }
    assert.same({ [2] = { 1, 2, 1, 1 }, [1] = { 1, 1, 1, 1 } }, sizes(given, 4, 1))
    given.shrink = { "pipeline", "data" }
    assert.same({ [2] = { 2, 1, 1, 1 }, [1] = { 1, 1, 1, 1 } }, sizes(given, 4, 1))
    given.shrink = { "pipeline" }
    assert.same({ [2] = { 2, 1, 1, 1 } }, sizes(given, 4, 1))
  end)

  it("leaves out worlds that the table refuses: shards, experts, squares", function()
    assert.same({ [6] = { 6, 1, 1, 1 }, [4] = { 4, 1, 1, 1 }, [2] = { 2, 1, 1, 1 } },
      sizes({ data = { shard = 2 } }, 8, 1))
    assert.same({ [3] = { 3, 1, 1, 1 } }, sizes({ expert = 3 }, 6, 1))
    assert.same({ [1] = { 1, 1, 1, 1 } }, sizes({ tensor = { size = 4, mode = "2d" }, shrink = { "tensor" } }, 4, 1))
  end)

  it("says why nothing fits", function()
    local list, why = fewer.worlds({ pipeline = 2 }, 2, 1)
    assert.same({}, list)
    assert.equal("1 ranks: data of the mesh cannot give way to that", why)
    local _, refused = fewer.worlds({ data = { shard = 3 } }, 3, 2)
    assert.matches("^2 ranks: parallel.data.shard: 3 does not divide the 2 data ranks", refused)
  end)

  -- { data, pipeline, sequence, tensor } after a change of the number of ranks; or why there is none.
  local function changed(given, world, ranks)
    local sets, why = fewer.sets(given, world, ranks)
    if not sets then return why end
    local plan = assert(parallel.resolve(applied(given or {}, sets), ranks))
    return { plan.data, plan.pipeline, plan.sequence.size, plan.tensor.size }
  end

  it("grows along the first of parallel.shrink, and shrinks as above", function()
    for _, given in ipairs { {}, { data = 4 }, { data = "auto" } } do
      assert.same({ 8, 1, 1, 1 }, changed(given, 4, 8))
      assert.same({ 3, 1, 1, 1 }, changed(given, 4, 3))
    end
    assert.same({ 6, 1, 1, 1 }, changed(nil, 3, 6))
    assert.same({ 3, 2, 1, 1 }, changed({ pipeline = 2 }, 4, 6))
    assert.same({ 2, 6, 1, 1 }, changed({ data = 2, pipeline = 2, shrink = { "pipeline", "data" } }, 4, 12))
    assert.equal("5 ranks: data of the mesh cannot give way to that", changed({ pipeline = 2 }, 4, 5))
    assert.same({}, fewer.sets("auto", 4, 7))
  end)

  it("is planned anew where parallel is auto, on any number", function()
    local list = fewer.worlds("auto", 4, 2)
    assert.same({ { ranks = 3, sets = {} }, { ranks = 2, sets = {} } }, list)
  end)
end)

describe("parallel.shrink", function()
  it("is a list of axes that can give way, each once", function()
    local function message(shrink) return (select(2, parallel.resolve({ shrink = shrink }, 2))) end
    assert.same({ "data" }, parallel.resolve({}, 2).shrink)
    assert.matches("parallel.shrink: must be a list of names", message "data")
    assert.matches("parallel.shrink: must be a list of names", message {})
    assert.matches("parallel.shrink: must be a list of names", message { "data", other = 1 })
    assert.matches("parallel.shrink: %[1%] must be one of data, pipeline, sequence, tensor; got \"expert\"",
      message { "expert" })
    assert.matches("parallel.shrink: names data twice", message { "data", "data" })
  end)
end)
