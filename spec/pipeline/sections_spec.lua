--- Sections of models: run in pieces they are the model, gradients too; and what cannot be cut.
--
-- Bit for bit, with two exceptions that change the order of a sum. A border inside a pre-norm stack adds branch and
-- stream, where the whole stack leaves that to the kernel of the next norm, whose mean may add a row in another order;
-- the gradient of a tied table is added up from its stages. Both are held to 1e-13 in f64.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local geometry = require "ganymede.job.geometry"
local gm = require "ganymede"
local models = require "ganymede.models"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"
local options = require "ganymede.base.options"
local sections = require "ganymede.nn.sections"
local stage = require "ganymede.pipeline.stage"
local tables = require "spec.support.tables"

local f64, with = numeric.f64, tables.with

local function ids(shape, below) return numeric.integers(shape, function(i) return 7 * (i + 1) % below end) end

local function blocks(post_norm)
  local list = {}
  for i = 1, 3 do list[i] = nn.TransformerBlock { width = 8, heads = 2, dropout = 0.1, post_norm = post_norm } end
  return list
end

local gpt = { vocabulary = 11, sequence_length = 6, width = 8, depth = 3, heads = 2, dropout = 0.1,
              attention_dropout = 0.1 }
local vit = { image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 8, depth = 3, heads = 2,
              dropout = 0.1, drop_path = 0.2 }

-- name -> { sections, make model, make input, tensors that cross a border, same bits?, tensors that cross the border
-- before the last section where that is another number }
local cases = {
  ["GPT, tied"] = { 5, function() return models.GPT(gpt) end, function() return ids({ 2, 5 }, 11) end, 1 },
  ["GPT, not tied"] = { 5, function() return models.GPT(with(gpt, { tied = false })) end,
    function() return ids({ 2, 5 }, 11) end, 1 },
  ["GPT with experts"] = { 5, function()
    return models.GPT(with(gpt, { moe = { experts = 4, every = 2, capacity = 1.2, shared = 1 } }))
  end, function() return ids({ 2, 5 }, 11) end, 1 },
  ["ViT, class token"] = { 5, function() return models.VisionTransformer(vit) end,
    function() return gm.normal({ 2, 1, 8, 8 }, { seed = 3 }) end, 1 },
  ["ViT, mean"] = { 5, function() return models.VisionTransformer(with(vit, { pool = "mean" })) end,
    function() return gm.normal({ 2, 1, 8, 8 }, { seed = 3 }) end, 1 },
  ["BERT"] = { 5, function()
    return models.BERT { vocabulary = 11, sequence_length = 6, width = 8, depth = 3, heads = 2 }
  end, function() return ids({ 2, 3, 5 }, 2) end, 2, true, 1 },
  ["RoBERTa"] = { 5, function()
    return models.RoBERTa { vocabulary = 11, sequence_length = 6, width = 8, depth = 3, heads = 2 }
  end, function() return ids({ 2, 5 }, 11) end, 2, true, 1 },
  ["RoBERTa with classes"] = { 5, function()
    return models.RoBERTa { vocabulary = 11, sequence_length = 6, width = 8, depth = 3, heads = 2, classes = 3 }
  end, function() return ids({ 2, 5 }, 11) end, 2, true, 1 },
  ["MLP"] = { 4, function()
    return models.MLP { inputs = 6, hidden = { 5, 4, 5 }, classes = 3, dropout = 0.2 }
  end, function() return gm.normal({ 4, 2, 3 }, { seed = 4 }) end, 1, true },
  ["Sequential, with another inside"] = { 6, function()
    return nn.Sequential { nn.Linear(4, 6), nn.Sequential { nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 6) },
                           function(x) return x * 2 end, nn.Linear(6, 3) }
  end, function() return gm.normal({ 4, 4 }, { seed = 5 }) end, 1, true },
  ["Sequential of pre-norm blocks"] = { 3, function() return nn.Sequential(blocks(false)) end,
    function() return gm.normal({ 2, 5, 8 }, { seed = 5 }) end, 1, true },
}

local function floats(values)
  local list = {}
  for _, value in ipairs(values) do
    if type(value) == "table" then
      for _, inner in ipairs(floats(value)) do list[#list + 1] = inner end
    elseif value:dtype() == "f64" then
      list[#list + 1] = value
    end
  end
  return list
end

-- A scalar that depends on every output element in its own way, with what layers add.
local function loss_of(outputs)
  local total
  for i, y in ipairs(floats(outputs)) do
    local term = (y * gm.normal(y:shape(), { seed = 50 + i })):sum()
    total = total and total + term or term
  end
  return auxiliary.add_to(total)
end

-- Random numbers of one forward pass, as the engine sets them before each.
local function begin(x)
  core.set_rng_step(3)
  core.begin_step()
  core.set_batch(0, x:size(1))
end

local function run_whole(case)
  local model, x = case[2](), case[3]()
  model:materialize()
  auxiliary.clear()
  begin(x)
  local loss = loss_of { model(x) }
  core.backward(loss)
  local gradients = {}
  for _, p in ipairs(model:named_parameters()) do gradients[p.name] = p.tensor:grad() end
  return loss, gradients
end

-- The same over models of which each holds one stage -> loss, gradients by name (summed over the stages that hold a
-- parameter), numbers of tensors that crossed borders, by the section before.
local function run_in_parts(case, stages, chunks, split)
  local x, parts, ranks = case[3](), geometry.looped(stages, chunks), {}
  for rank = 0, stages - 1 do
    ranks[rank + 1] = stage.split(case[2](), { stages = stages, rank = rank, parts = parts, split = split })
  end
  auxiliary.clear()
  local crossed, values, n = {}, { x }, 1
  local function keep(...) values, n = { ... }, select("#", ...) end
  for part, owner in ipairs(geometry.owners { parts = parts }) do
    begin(x)
    local held = ranks[owner.rank + 1]
    local list, text = held:pack(held:forward(owner.chunk, unpack(values, 1, n)))
    crossed[held.bounds[part][2]] = part < stages * chunks and #list or nil
    keep(stage.unpack(list, text))
  end
  local loss, gradients = loss_of(values), {}
  core.backward(loss)
  for _, held in ipairs(ranks) do
    for _, p in ipairs(held.model:named_parameters()) do
      local gradient, before = p.tensor:grad(), gradients[p.name]
      gradients[p.name] = before and before + gradient or gradient
    end
  end
  return loss, gradients, crossed
end

local function check_equal(case, stages, chunks, split)
  local want_loss, want = run_whole(case)
  local loss, gradients, crossed = run_in_parts(case, stages, chunks, split)
  if case[5] then assert.equal(want_loss:item(), loss:item()) end
  numeric.agree(loss, want_loss, 1e-13)
  local largest = 0
  for name, gradient in pairs(want) do
    assert.is_not_nil(gradients[name], name)
    if case[5] and name ~= "tokens.weight" then
      assert.same(gradient:totable(), gradients[name]:totable(), name)
    end
    numeric.agree(gradients[name], gradient, 1e-13, 1e-2) -- some are zero but for rounding: biases of keys
    largest = math.max(largest, gradient:abs():sum():item())
    gradients[name] = nil
  end
  assert.is_nil(next(gradients))
  assert.is_true(largest > 0.1)
  for section, n in pairs(crossed) do assert.equal(section == case[1] - 1 and case[6] or case[4], n) end
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("sections of", function()
  for _, name in ipairs(options.sorted_keys(cases)) do
    local case = cases[name]

    it(name .. " are as many as are said", function()
      local list = assert(sections.of(case[2]()))
      assert.equal(case[1], #list)
    end)

    for _, cut in ipairs { { 2, 1 }, { 3, 1 }, { 1, 2 } } do
      it(("%s run in %d stages of %d chunks as the model does"):format(name, cut[1], cut[2]),
        f64(function()
          check_equal(case, cut[1], cut[2], "uniform")
        end))
    end

    it(name .. " run one by one as the model does", f64(function() check_equal(case, case[1], 1, "uniform") end))
  end

  it("a model are named after what they read", function()
    local names = {}
    local list = sections.of(models.GPT(gpt))
    for i = 1, #list do names[i] = sections.name(list, i) end
    assert.same({ "tokens, positions, dropout", "blocks.1", "blocks.2", "blocks.3", "norm, head" }, names)
  end)

  it("a model weigh what they read, a tied table twice", function()
    local list = sections.of(models.GPT(gpt))
    local block = models.GPT(gpt).blocks[1]:count()
    assert.same({ 11 * 8 + 6 * 8, block, block, block, 2 * 8 + 11 * 8 }, sections.weights(list))
  end)

  it("a model follow its tree when it grows", f64(function()
    local model = nn.Sequential { nn.Linear(2, 2) }
    local x = gm.normal({ 3, 2 }, { seed = 1 })
    local before = model(x)
    model:append(function(y) return y * 3 end)
    assert.equal(2, #sections.of(model))
    assert.same((before * 3):totable(), model(x):totable())
    local gpt_model = models.GPT(gpt)
    gpt_model(ids({ 1, 4 }, 11))
    gpt_model.blocks:append(nn.TransformerBlock { width = 8, heads = 2 })
    assert.equal(6, #sections.of(gpt_model))
  end))
end)

-- ---------------------------------------------------------------- what users write

-- A class of models with the sections that make(self) returns.
local function class_of(build, make)
  local class = nn.class("SpecSections", nil, false)
  class.build = build
  class.sections = make
  return class {}
end

local function two_linears(self)
  self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
end

describe("sections.run", function()
  it("releases what a section gave when the next has run, but for what is handed on or kept", function()
    local size, live, first, handed, kept = 80000, {}, nil, nil, nil
    local function note(...)
      live[#live + 1] = core.memory().live
      return ...
    end
    local function big(x) return gm.full({ 10000 }, x, { dtype = "f64" }) end
    local list = {
      { modules = {}, forward = function(x)
        big(x) -- goes with the section
        handed, kept = big(1), big(2):keep()
        return big(3), handed
      end },
      { modules = {}, forward = function(a, b)
        first = a
        return note(a * 2, b)
      end },
      { modules = {}, forward = function(a, b) return note(a * 2, b) end },
      { modules = {}, forward = function(a, b) return note(a * 2, b) end },
    }
    gm.scope(function(x)
      local before = core.memory().live
      sections.run(list, 1, 4, false, x)
      -- What is handed on, what is kept, what the section is given, and what it makes.
      for i, bytes in ipairs(live) do assert.equal(4 * size, bytes - before, "section " .. i + 1) end
      assert.error_matches(function() return first[1] end, "was released")
      assert.same({ 1, 2 }, { handed[1]:item(), kept[1]:item() })
      kept:release()
    end, 5)
  end)

  it("closes where a part ends and nowhere else", function()
    local seen = {}
    local function section(name, close)
      return { modules = {}, close = close, forward = function(...)
        seen[#seen + 1] = name .. select("#", ...)
        return ...
      end }
    end
    local list = {
      section("a", function(x, y, z) return x + y + (z or 0) end), section "b", section("c", function(x) return -x end),
    }
    assert.same({ 1, 2, nil, n = 3 }, { n = select("#", sections.run(list, 1, 3, false, 1, 2, nil)),
                                        sections.run(list, 1, 3, false, 1, 2, nil) })
    assert.equal(3, (sections.run(list, 1, 1, true, 1, 2, nil)))
    assert.equal(-1, (sections.run(list, 2, 3, true, 1)))
    assert.equal(1, (sections.run(list, 2, 2, true, 1)))
    assert.same({ "a3", "b3", "c3", "a3", "b3", "c3", "a3", "b1", "c1", "b1" }, seen)
  end)
end)

describe("a model cannot be cut", function()
  local function refused(model, pattern)
    local list, reason = sections.of(model)
    assert.is_nil(list)
    assert.matches(pattern, reason)
    assert.error_matches(function()
      stage.split(model, { stages = 1, rank = 0, parts = { { 1, 2 } } })
    end, "cannot be cut into parts: .*" .. pattern)
  end

  it("that names no sections", function() refused(nn.Linear(2, 2), "Linear names no sections") end)

  it("whose class has a forward of its own besides", function()
    local class = nn.class("SpecOwnForward", models.GPT, false)
    function class.forward() return 1 end
    refused(class(gpt), "SpecOwnForward has both sections and a forward of its own")
    local reversed = nn.class("SpecReversed", nn.Sequential, false)
    function reversed:forward(x) return self[1](self[2](x)) end
    local model = reversed {}
    model:append(nn.ReLU()):append(nn.Tanh())
    refused(model, "SpecReversed has both sections and a forward of its own")
  end)

  it("where two sections read one module", function()
    refused(class_of(two_linears, function(self)
      return { { modules = { self.first }, forward = self.first }, { modules = { self.second }, forward = self.second },
               { modules = { self.first }, forward = self.first } }
    end), "first is read by two sections, 'first' and 'first'; give each a module of its own, and tie")
  end)

  it("where one section reads a part of what another reads", function()
    local block = nn.TransformerBlock { width = 4, heads = 1 }
    refused(class_of(function(self) self.block = block end, function(self)
      return { { modules = { self.block }, forward = self.block },
               { modules = { self.block.mlp.up }, forward = self.block.mlp.up, name = "again" } }
    end), "block.mlp.up is read by two sections, 'block' and 'again'")
  end)

  it("where no section reads a parameter", function()
    refused(class_of(two_linears, function(self) return { { modules = { self.first }, forward = self.first } } end),
      "no section reads weight of second")
  end)

  it("whose section lists nothing where a module was meant", function()
    refused(class_of(two_linears, function(self)
      return { { modules = { self.third, self.first, self.second }, forward = print } }
    end), "the modules of its section 1 have nothing at place 1")
    local denoiser = models.DiT { image_size = 4, channels = 1, width = 8, depth = 1, heads = 2 } -- without classes
    assert.truthy(sections.of(denoiser))
  end)

  it("whose sections are no sections", function()
    refused(class_of(two_linears, function() return {} end), "not an empty one")
    refused(class_of(two_linears, function() return { { forward = print } } end), "section 1 must be a table")
    refused(class_of(two_linears, function() end), "returned nothing")
  end)
end)
