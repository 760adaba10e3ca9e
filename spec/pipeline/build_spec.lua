--- gm.build_pipeline_model and its kind, and models from lists of layers, on one rank and on a pipeline of two.
-- ranks: 1 2
-- sanitizers: at most 1 rank, more of them run the same lines of C
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local gm = require "ganymede"
local nn = require "ganymede.nn"
local registry = require "ganymede.base.registry"
local stage = require "ganymede.pipeline.stage"

local ranks = core.world()

local function layers() return { nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3) } end

local cfg = { type = "ModelFromConfig", layers_cfg = {
  { type = "Linear", in_features = 6, out_features = 5 }, { type = "ReLU" },
  { type = "Linear", inputs = 5, outputs = 4 }, { type = "Tanh" }, { type = "Classifier", inputs = 4, classes = 3 },
} }

local function names(model)
  local list = {}
  for i, p in ipairs(model:named_parameters()) do list[i] = p.name end
  return list
end

-- What the ranks of a pipeline expect, by rank; one rank: all.
local function of_rank(first, second)
  if ranks == 1 then
    for _, value in ipairs(second) do first[#first + 1] = value end
    return first
  end
  return core.rank() == 0 and first or second
end

describe("a model for a pipeline of " .. ranks, function()
  setup(function() context.load_config { parallel = { pipeline = ranks } } end)
  teardown(function() context.load_config { parallel = {} } end)

  it("is made of a list of layers", function()
    local model = gm.build_pipeline_model(layers(), { split = "uniform" })
    local held = stage.of(model)
    assert.same({ "Sequential", ranks, core.rank() }, { model.name, held.n_parts, held.rank })
    assert.same(of_rank({ "1.weight", "1.bias", "3.weight", "3.bias" }, { "5.weight", "5.bias" }), names(model))
    assert.equal(6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3, model:count())
  end)

  it("is made of a model, and balanced by its parameters", function()
    local model = gm.build_pipeline_model(gm.models.GPT {
      vocabulary = 500, sequence_length = 8, width = 8, depth = 2, heads = 2, tied = false })
    local bounds = stage.of(model).bounds
    assert.same(ranks == 1 and { { 1, 4 } } or { { 1, 2 }, { 3, 4 } }, bounds)
  end)

  it("is made of a config, in chunks", function()
    local model = gm.build_pipeline_model_from_cfg(cfg, 2, { first = ranks == 1 and { 1, 3 } or { 1, 2, 3, 5 } })
    local held = stage.of(model)
    assert.same({ 2, 2 * ranks }, { held.chunks, held.n_parts })
    assert.same(ranks == 1 and { 1, 2 } or { core.rank() + 1, core.rank() + 3 }, held.parts)
    assert.same(of_rank({ "1.weight", "1.bias", "3.weight", "3.bias" }, { "5.weight", "5.bias" }), names(model))
  end)

  it("is made of what the mesh says", function()
    context.load_config { parallel = { pipeline = { size = ranks, chunks = 2, split = "uniform" } } }
    local held = stage.of(gm.build_pipeline_model(cfg))
    context.load_config { parallel = { pipeline = ranks } }
    assert.same(ranks == 1 and { { 1, 3 }, { 4, 5 } } or { { 1, 2 }, { 3, 3 }, { 4, 4 }, { 5, 5 } }, held.bounds)
  end)

  it("has the parts of its schedule", function()
    local schedule = require("ganymede.schedules").PipelineSchedule { num_microbatches = 4, order = "zb-v" }
    local held = stage.of(gm.build_pipeline_model(layers(), { schedule = schedule, split = "uniform" }))
    assert.same(ranks == 1 and { 1, 2 } or of_rank({ 1, 4 }, { 2, 3 }), held.parts)
    assert.error_matches(function() gm.build_pipeline_model(layers(), { schedule = schedule, num_chunks = 3 }) end,
      "num_chunks = 3, and the schedule has 2")
  end)

  it("is refused where it cannot be", function()
    assert.error_matches(function() gm.build_pipeline_model(3) end, "a model or a list of layers; got 3")
    assert.error_matches(function() gm.build_pipeline_model(layers(), { chunks = 2 }) end, "no option 'chunks'")
    assert.error_matches(function() gm.build_pipeline_model(nn.Linear(2, 2), { num_chunks = 2 }) end,
      "Linear cannot be cut into parts: Linear names no sections")
    assert.error_matches(function() gm.build_pipeline_model(layers(), { num_chunks = 6 }) end,
      ("%d parts of 5 sections"):format(6 * ranks))
    if ranks > 1 then
      assert.error_matches(function()
        gm.build_pipeline_model(layers(), { schedule = { type = "NonPipelineSchedule" } })
      end, "NonPipelineSchedule has no parts for 2 stages")
    end
  end)
end)

if ranks > 1 then return end

describe("ModelFromConfig", function()
  it("is a Sequential written in a config", function()
    gm.scope(function()
      local model, same = registry.models:build(cfg), nn.Sequential(layers())
      assert.same({ "1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias" }, names(model))
      for i, p in ipairs(model:parameters()) do p:detach():copy_(same:parameters()[i]:detach()) end
      local x = gm.normal({ 2, 6 }, { seed = 1 })
      assert.same(same(x):totable(), model(x):totable())
      assert.equal("ModelFromConfig", model.name)
      assert.equal(gm.ModelFromConfig, nn.ModelFromConfig)
    end)
  end)

  it("takes modules, functions and whole models too", function()
    local model = gm.ModelFromConfig { layers_cfg = {
      nn.Linear(4, 4), function(x) return x end, { type = "VisionTransformer", image_size = 8, patch_size = 4 },
    } }
    assert.same({ "Linear", "Lambda", "VisionTransformer" }, { model[1].name, model[2].name, model[3].name })
  end)

  it("names what it does not know", function()
    local function made(list) return function() gm.ModelFromConfig { layers_cfg = list } end end
    assert.error_matches(made { { type = "Linaer" } }, "did you mean 'Linear'")
    assert.error_matches(made { nn.ReLU(), 3 }, "ModelFromConfig: element 2 must be a module.*got 3")
    assert.error_matches(made {}, "layers_cfg must be a list of layers; it is empty")
    assert.error_matches(function() gm.ModelFromConfig {} end, "option 'layers_cfg' is missing")
  end)
end)
