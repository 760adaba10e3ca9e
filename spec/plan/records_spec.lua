-- Records that settings share which differ in the order of the axes: a simulation from those of another order against
-- one that rehearses all ranks itself.
local bounds = require "ganymede.plan.search.bounds"
local records = require "ganymede.plan.records"
local relatives = require "ganymede.plan.search.relatives"
local simulate = require "ganymede.plan.simulate"
local support = require "spec.cli.support"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 3, clip_grad_norm = 1,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 4, heads = 2 },
  data = { train = { type = "Text", path = HOME .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 }, num_microbatches = 4, zero = 1,
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })
shell.write(home .. "/recipe.lua", (shell.read(home .. "/recipe.lua"):gsub("HOME", ("%q"):format(home))))

local orders = { { "data", "pipeline", "tensor" }, { "tensor", "data", "pipeline" }, { "pipeline", "tensor", "data" } }

local function mesh_of(order)
  return bounds.mesh({ data = 2, expert = 1, tensor = { size = 2, mode = "1d" }, sequence = { size = 1, mode = "ring" },
    pipeline = { size = 2, chunks = 1, split = "parameters" }, order = order }, 8)
end

local function simulated(order, store)
  local set = { ("parallel={data=2,tensor={size=2,mode='1d'},pipeline=2,order={'%s'}}"):format(table.concat(order,
    "','")) }
  return (simulate { recipe = home .. "/recipe.lua", ranks = 8, machine = "dgx_a100_80g", set = set, store = store,
    mesh = store and mesh_of(order) })
end

describe("records of another order of the axes", function()
  it("give the simulation that its own give, and are not made again", function()
    local store, made = records.new(), nil
    for i, order in ipairs(orders) do
      local found = simulated(order, store)
      made = made or store.count
      assert.equal(made, store.count)
      local own = i > 1 and simulated(order) or found
      assert.equal(own.seconds, found.seconds)
      assert.same(own.exposed, found.exposed)
      assert.same(own.memory, found.memory)
      assert.same(own.mesh, found.mesh)
    end
    assert.is_true(made > 2)
    local path = next(store.files)
    assert.truthy(shell.read(path))
    store:close()
    assert.is_nil(io.open(path))
    assert.is_nil(store:take(mesh_of(orders[1]), 0))
  end)

  it("need no comparison of ranks where it is known which of them do the same", function()
    local first, again = records.new(), records.new()
    local own = simulated(orders[1], first)
    again.kinds = first.kinds
    assert.equal(own.seconds, simulated(orders[1], again).seconds)
    assert.is_true(again.count < first.count, again.count .. " rehearsals, not fewer than " .. first.count)
    first:close()
    again:close()
  end)
end)

describe("which ranks do the same", function()
  local function key(fields, samples)
    local s = { data = 4, expert = 1, tensor = { size = 1 }, sequence = { size = 1, mode = "ring" }, micro = 1,
      pipeline = { size = 1, schedule = "none", chunks = 1, split = "parameters" }, zero = 1, accumulation = 2,
      recompute = "none" }
    for name, value in pairs(fields) do s[name] = value end
    return relatives.kinds(s, samples)
  end

  it("is asked once for settings of other pieces, and for each where ranks have unequal samples", function()
    assert.equal(key({}, 32), key({ accumulation = 8, recompute = "block" }, 32))
    assert.equal(key({ accumulation = 1 }, 32), key({ accumulation = 1, micro = 4 }, 32))
    local others = { { zero = 3 }, { data = 8 }, { accumulation = 1 }, { tensor = { size = 2, mode = "1d" } } }
    for _, other in ipairs(others) do
      assert.not_equal(key({}, 32), key(other, 32))
    end
    assert.is_nil(key({ accumulation = 16 }, 32)) -- 2 samples of a piece for 4 ranks
    assert.is_nil(key({}, 20)) -- 10 samples
  end)
end)
