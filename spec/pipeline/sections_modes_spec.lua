--- Models in pieces on meshes that cut their layers: what crosses a border is laid out as the next part takes it.
-- ranks: 4
--
-- Both stages lie on the same ranks here; pipelines across ranks are in execute_spec.lua.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local geometry = require "ganymede.job.geometry"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local options = require "ganymede.base.options"
local stage = require "ganymede.pipeline.stage"

local function make_gpt()
  return models.GPT { vocabulary = 12, sequence_length = 8, width = 16, depth = 2, heads = 4, dropout = 0.1 }
end

local function tokens() return numeric.integers({ 4, 8 }, function(i) return 5 * (i + 1) % 12 end) end

local function begin()
  core.begin_step()
  core.set_batch(0, 4)
end

local function gradients(held, into)
  for _, p in ipairs(held:named_parameters()) do
    local gradient = p.tensor:grad():settle()
    into[p.name] = into[p.name] and into[p.name] + gradient or gradient
  end
  return into
end

local function loss_of(y) return (y * gm.normal(y:shape(), { seed = 9 })):sum() end

local function whole()
  local model = make_gpt()
  begin()
  local loss = loss_of(model(tokens()))
  core.backward(loss)
  return loss:item(), gradients(model, {})
end

-- In four parts of two stages, packed and unpacked between them.
local function in_parts()
  local parts, ranks, values = geometry.looped(2, 2), {}, { tokens() }
  for rank = 0, 1 do
    ranks[rank + 1] = stage.split(make_gpt(), { stages = 2, rank = rank, parts = parts, split = "uniform" })
  end
  for _, owner in ipairs(geometry.owners { parts = parts }) do
    begin()
    local held = ranks[owner.rank + 1]
    values = { stage.unpack(held:pack(held:forward(owner.chunk, unpack(values)))) }
    assert.equal(1, #values)
  end
  local loss = loss_of(values[1])
  core.backward(loss)
  return loss:item(), gradients(ranks[2].model, gradients(ranks[1].model, {}))
end

describe("models in pieces", function()
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  teardown(function()
    gm.set_default_dtype(before)
    context.load_config { parallel = {} }
  end)

  for _, case in ipairs {
    { "1d", { tensor = { size = 4, mode = "1d" } } },
    { "1d with sequences", { tensor = { size = 2, mode = "1d", sequence = true } } },
    { "2d", { tensor = { size = 4, mode = "2d" } } },
    { "a ring, over data", { data = 2, sequence = 2 } },
  } do
    it("are the models on a mesh with " .. case[1], function()
      context.load_config { parallel = case[2] }
      gm.scope(function()
        local want_loss, want = whole()
        local loss, got = in_parts()
        numeric.agree({ loss }, { want_loss }, 1e-13)
        for _, parameter in ipairs(options.sorted_keys(want)) do
          numeric.agree(got[parameter], want[parameter], 1e-12, 1e-3)
        end
      end)
    end)
  end
end)
