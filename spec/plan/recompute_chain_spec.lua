--- The chain of a model: bytes and operations of each section, against what one counts by hand.
--
-- All tensors have 1000 numbers in f64, one unit. Elementwise ops need no scratch, so bytes are those of tensors.
local gm = require "ganymede"
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local measure = require "ganymede.recompute.chain"
local ops = gm.ops

local UNIT = 8000

local Scale = require("ganymede.nn.module").class("ChainScale", nil, false)
function Scale:build() self:param("weight", { 1000 }, init.ones()({ 1000 })) end
function Scale:forward(x) return ops.mul(x, self.weight) end

local function section(forward, modules, join) return { modules = modules or {}, forward = forward, join = join } end

-- Keeps its two results, of which the first is also its input.
local function twice(x) return ops.tanh(ops.tanh(x)) end
-- The second gives two values that are read as a sum only; it keeps its input.
local function branch(x) return ops.mul(x, 2), ops.square(x) end
local function add(a, b) return b and ops.add(a, b) or a end
local function sum_of(a, b) return ops.add(a, b) end

local function measured(list, criterion)
  return gm.scope(function()
    local x = gm.normal({ 1000 }, { seed = 3, dtype = "f64" })
    core.begin_step()
    return measure(list, x, x, criterion or function(output, y) return ops.mul(output, y):sum() end)
  end)
end

local function units(stage, ...)
  local out = {}
  for i, name in ipairs { ... } do out[i] = stage[name] / UNIT end
  return out
end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("a chain", function()
  local scale = Scale {}
  core.set_default_dtype "f64"
  scale:materialize()
  core.set_default_dtype "f32"
  local list = { section(scale, { scale }), section(twice), section(branch),
    section(function(a, b) return twice(add(a, b)) end, {}, sum_of), section(function(x) return ops.mul(x, 3) end) }
  local chain = measured(list)

  it("has what each section keeps for backward", function()
    -- The product keeps the batch, which somebody else holds; tanh keeps its result, square its input; a product with a
    -- number keeps nothing; the loss keeps the labels, which are there.
    local kept = {}
    for i, stage in ipairs(chain) do kept[i] = stage.kept / UNIT end
    assert.same({ 0, 2, 1, 2, 0 }, kept)
  end)

  it("has what a region keeps that begins there, joined where that is possible", function()
    local input = {}
    for i, stage in ipairs(chain) do input[i] = stage.input / UNIT end
    assert.same({ 0, 1, 1, 1, 1 }, input)
    local apart = measured { list[1], list[2], list[3], section(list[4].forward), list[5] }
    assert.equal(2 * UNIT, apart[4].input)
  end)

  it("has the gradients of results, one where two are those of a sum", function()
    local gradient = {}
    for i = 1, 4 do gradient[i] = chain[i].gradient / UNIT end
    assert.same({ 1, 1, 1, 1 }, gradient)
    local apart = measured { list[1], list[2], list[3], section(function(a, b) return ops.mul(a, ops.tanh(b)) end),
      list[5] }
    assert.equal(2 * UNIT, apart[3].gradient)
  end)

  it("has the peaks of passes", function()
    -- Forward: the input, and both results; backward: beside what is kept and a gradient, the next gradient.
    assert.same({ 3, 3, 1 }, units(chain[2], "passing", "keeping", "backward_extra"))
    -- Forward: the input and two results. Backward begins with one gradient of both.
    assert.same({ 3, 3 }, units(chain[3], "passing", "keeping"))
  end)

  it("has operations forward and backward", function()
    for _, stage in ipairs(chain) do assert.is_true(stage.forward > 0 and stage.backward > 0) end
    assert.equal(1000, chain[1].forward) -- one product a number
    assert.equal(chain[2].forward, chain[4].forward - 1000) -- an addition more
  end)

  it("has the output and the batch beside it", function()
    assert.equal(3 * UNIT + 8, chain.beside) -- what the model gives, x and y; the loss
  end)

  it("fixes the last section, and one that gives a table", function()
    local fixed = {}
    for i, stage in ipairs(chain) do fixed[i] = stage.fixed end
    assert.same({ false, false, false, false, true }, fixed)
    local tables = measured { list[1], section(function(x) return { x } end),
      section(function(t) return ops.mul(t[1], 2) end) }
    assert.is_true(tables[2].fixed)
  end)

  it("leaves nothing behind: bytes, nodes, gradients of others", function()
    local before, nodes = core.memory().live, core.tape_nodes()
    for _ = 1, 2 do
      measured(list)
      collectgarbage()
      collectgarbage()
    end
    assert.equal(before, core.memory().live)
    assert.equal(nodes, core.tape_nodes())
  end)
end)
