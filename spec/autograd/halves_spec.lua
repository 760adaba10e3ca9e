--- A backward pass in two halves gives what the whole pass gives: GPT, BERT and ViT, and what is behind their first
-- section, whose input is asked about; on one rank and in every tensor and sequence mode. After the first half the
-- input has its gradient, and no weight of a linear layer. Dropout is on, tables are tied.
-- ranks: 1 2 4 8
-- sanitizers: at most 1 rank, more of them run the same lines of C
local core = require "ganymede.core"
local gm = require "ganymede"
local models = require "ganymede.models"
local numeric = require "spec.support.numeric"
local sections = require "ganymede.nn.sections"
local tables = require "spec.support.tables"

local integers = numeric.integers

local function gpt(vocabulary)
  return models.GPT { vocabulary = vocabulary, sequence_length = 9, width = 16, depth = 2, heads = 4, std = 0.3,
                      dropout = 0.1, attention_dropout = 0.2 },
    integers({ 3, 7 }, function(i) return 7 * i * i % 37 end), integers({ 3, 7 }, function(i) return 5 * i % 37 end),
    gm.nn.CrossEntropyLoss {}
end

local cases = {
  { name = "GPT", build = function() return gpt(37) end },
  { name = "GPT whose table tensor ranks cut", only = "1d", build = function() return gpt(2051) end },
  { name = "BERT", build = function()
    return models.BERT { vocabulary = 37, sequence_length = 9, width = 16, depth = 2, heads = 4, std = 0.3,
                         dropout = 0.1, attention_dropout = 0.2 },
      integers({ 3, 3, 7 }, function(i) -- tokens, segments, key mask
        local row, k = math.floor(i / 7) % 3, i % 7
        return ({ (5 * k * k + i) % 37, k >= 4 and 1 or 0, (i < 21 or k < 5) and 1 or 0 })[row + 1]
      end),
      integers({ 3, 8 }, function(i) return i % 8 == 7 and i % 2 or i % 3 == 0 and 13 * i % 37 or -100 end),
      gm.nn.BERTLoss {}
  end },
  { name = "ViT", build = function()
    return models.VisionTransformer { image_size = 8, patch_size = 4, channels = 2, classes = 6, width = 16, depth = 2,
                                      heads = 4, dropout = 0.1, drop_path = 0.3 },
      gm.normal({ 3, 2, 8, 8 }, { seed = 4 }), integers({ 3 }, function(i) return 2 * i end),
      gm.nn.CrossEntropyLoss {}
  end },
}

local modes = ({
  [1] = { { name = "one rank" } },
  [2] = { { name = "1d", tensor = { size = 2, mode = "1d" } },
          { name = "1d with sequences", tensor = { size = 2, mode = "1d", sequence = true } },
          { name = "1d that keeps what it gathers",
            tensor = { size = 2, mode = "1d", sequence = true, keep_gathered = true } },
          { name = "ring", sequence = { size = 2, mode = "ring" } }, { name = "data", data = 2 } },
  [4] = { { name = "2d", tensor = { size = 4, mode = "2d" } },
          { name = "ring and 1d", sequence = 2, tensor = { size = 2, mode = "1d" } } },
  [8] = { { name = "3d", tensor = { size = 8, mode = "3d" } } },
})[core.world()]

-- Floats among the results of a first section become inputs that are asked about.
local function as_inputs(inputs, n, ...)
  local list = { ... }
  for i = 1, n do
    if core.is_tensor(list[i]) and list[i]:dtype() == "f64" then
      list[i] = list[i]:detach():requires_grad(true)
      inputs[#inputs + 1] = list[i]
    end
  end
  return unpack(list, 1, n)
end

-- The model, or what is behind its first section: loss, inputs
local function forward(model, x, y, criterion, cut)
  local inputs = {}
  if not cut then return criterion(model(x), y), inputs end
  local list = assert(sections.of(model))
  local function first(...) return as_inputs(inputs, select("#", ...), ...) end
  return criterion(sections.run(list, 2, #list, false, first(gm.no_grad(sections.run, list, 1, 1, true, x))), y), inputs
end

local function expect_half(model, inputs)
  for _, input in ipairs(inputs) do assert.is_not_nil(input:grad()) end
  local layers = 0
  for _, m in ipairs(model:modules()) do
    if m.name:match "^Linear" then
      layers = layers + 1
      assert.is_nil(core.grad_part(m.weight))
    end
  end
  assert.is_true(layers >= 8)
end

local function go_backward(model, loss, inputs, halves)
  local tape = core.tape_take()
  if halves then
    core.tape_run(tape, { pass = "input", outputs = { loss }, inputs = inputs })
    expect_half(model, inputs)
    core.tape_run(tape, { pass = "weight" })
  else
    core.tape_run(tape, { outputs = { loss } })
  end
  core.tape_free(tape)
end

-- List of { name, gradient as numbers }
local function measure(case, mode, cut, halves)
  gm.context.load_config { parallel = tables.without(mode, "name") }
  core.set_seed(7)
  core.begin_step()
  return gm.scope(function()
    local model, x, y, criterion = case.build()
    core.set_batch(0, x:size(1))
    local loss, inputs = forward(model, x, y, criterion, cut)
    assert.equal(cut, #inputs > 0)
    go_backward(model, loss, inputs, halves)
    local gradients = {}
    for i, input in ipairs(inputs) do
      gradients[i] = { "input " .. i, numeric.flat(core.gather(input:grad())) }
    end
    for _, p in ipairs(model:named_parameters()) do
      local g = p.tensor:grad()
      if g then gradients[#gradients + 1] = { p.name, numeric.flat(core.gather(g)) } end
    end
    return gradients
  end)
end

describe("in two halves", function()
  local before
  before_each(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  after_each(function()
    gm.set_default_dtype(before)
    gm.context.load_config {}
  end)

  for _, mode in ipairs(modes) do
    it("models have the gradients of the whole pass: " .. mode.name, function()
      for _, case in ipairs(cases) do
        for _, cut in ipairs((case.only or mode.name) == mode.name and { false, true } or {}) do
          local whole, halves = measure(case, mode, cut, false), measure(case, mode, cut, true)
          assert.is_true(#whole > 20)
          assert.equal(#whole, #halves)
          for i, want in ipairs(whole) do
            assert.equal(want[1], halves[i][1])
            assert.same(want[2], halves[i][2])
          end
        end
      end
    end)
  end
end)
