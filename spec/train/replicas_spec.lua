--- Ranks that would begin with different weights: a model's function that asks for the rank, or draws by a seed of its
--- own. gm.initialize refuses them by the name of the parameter; what ranks hold of one tensor may differ.
-- ranks: 2 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"

local rank, world = core.rank(), core.world()

-- A model whose change(model) makes rank 1 differ.
local function build(parallel, change, zero)
  gm.context.load_config { parallel = parallel }
  core.set_seed(5)
  local model = gm.nn.TransformerBlock { width = 8, heads = 2 }
  if rank == 1 then gm.no_grad(change, model) end
  return gm.initialize { model = model, criterion = { type = "CrossEntropyLoss" }, zero = zero,
    optimizer = { type = "SGD", lr = 0.5 } }
end

local function nothing() end

-- The first number of a weight, of those that this rank has, differs by the smallest step.
local function one_bit(model)
  local w = model.norm1.weight:detach():local_tensor()
  w:set(1, w:get(1) * (1 + 2 ^ -23))
end

local function refused(parallel, change, zero)
  local ok, err = pcall(build, parallel, change, zero)
  assert.is_false(ok, "it was taken")
  assert.is_true(failure.is(err), tostring(err))
  assert.equal(2, err.exit_code)
  assert.is_true(err.agreed)
  return failure.text(err)
end

local meshes = { { "data", {} }, { "1d", { tensor = { mode = "1d", size = 2 } } },
  { "sequence", { sequence = 2 } }, { "1d and data", world == 4 and { data = 2, tensor = { mode = "1d", size = 2 } } } }

describe("ranks that begin with other weights", function()
  for _, mesh in ipairs(meshes) do
    if mesh[2] then
      it("are refused: " .. mesh[1], function()
        local text = refused(mesh[2], one_bit)
        assert.matches("the ranks begin with different weights, and would train different models:\n  norm1.weight has "
          .. "the checksum %x+ on ranks? 0", text)
        assert.matches("; %x+ on rank 1\n", text)
        assert.not_matches("norm2", text)
      end)

      it("are taken where they hold the same: " .. mesh[1], function()
        assert.is_table(build(mesh[2], nothing))
        assert.is_table(build(mesh[2], nothing, 3))
      end)
    end
  end

  it("are named by the first six parameters", function()
    local text = refused({}, function(model)
      for _, t in ipairs(model:parameters()) do t:detach():fill_(3) end
    end)
    assert.matches("attention.output.bias has", text)
    assert.matches("\n  and 6 more\n", text)
  end)
end)
