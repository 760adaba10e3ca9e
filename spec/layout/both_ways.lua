--- Runs a function of tensors on whole copies and on blocks, and compares values and gradients.
--
--     both.agree { inputs = { x, w }, cuts = { both.rows, nil }, fn = function(x, w) return ops.linear(x, w) end,
--                  expect = "data,-" }
--
-- The whole run is what one rank does: every rank has all inputs, nothing is cut, nothing is sent. For the other run
-- inputs are laid out as `cuts` says. Padding of inputs cut along dimension 0 is overwritten with POISON, so that a sum
-- that takes it in is wrong; a gradient that reaches padding is an error. Everything is f64: blocks only change the
-- order of sums, so TOLERANCE is a few hundred roundings of the largest value.
local gm = require "ganymede"
local core = require "ganymede.core"
local assert = require "luassert"
local numeric = require "spec.support.numeric"

local both = { TOLERANCE = 1e-12, POISON = 3.5 }

--- Sets the mesh from { name, size } pairs whose sizes multiply to the number of ranks.
function both.mesh(...) core.set_mesh { ... } end

--- The examples of a describe run in f64, after prepare() where it is given. setup and teardown: busted's.
function both.in_f64(setup, teardown, prepare)
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
    if prepare then prepare() end
  end)
  teardown(function() gm.set_default_dtype(before) end)
end

--- A function (sizes...) -> another f64 tensor in [low, high) (default [-1, 1)) at each call, the same on every rank.
function both.source(seed, low, high)
  return function(...)
    seed = seed + 1
    return gm.uniform({ ... }, { low = low or -1, high = high or 1, dtype = "f64", seed = seed })
  end
end

--- "data,-,col.row" -> a layout; "-" is whole.
function both.laid(text)
  local cuts = {}
  for word in text:gmatch "[^,]+" do cuts[#cuts + 1] = word == "-" and {} or { word } end
  return { cuts = cuts }
end

--- Dimension 0 cut by the axes of batches.
both.rows = { cuts = { { "data" } } }

--- "data,-,row.col partial depth" of a tensor.
function both.describe(t)
  local layout, parts = core.layout(t), {}
  for d = 1, t:dim() do
    local cut = layout.cuts[d] or {}
    parts[d] = #cut > 0 and table.concat(cut, ".") or "-"
  end
  local partial = #layout.partial > 0 and " partial " .. table.concat(layout.partial, ".") or ""
  return table.concat(parts, ",") .. partial
end

local function is_float(t) return t:dtype():sub(1, 1) == "f" end

-- Rows of this rank's block that hold padding, if any: first and number, from 1.
local function padding_rows(t)
  local cut = core.layout(t).cuts[1] or {}
  if #cut ~= 1 or cut[1] ~= "data" then return nil end
  local _, own, rows = core.batch_rows(t:size(1))
  if own == rows then return nil end
  return own + 1, rows - own
end

--- A copy of t laid out so, its padding of rows poisoned.
function both.place(t, layout)
  local block = core.redistribute(t:detach(), layout or { cuts = {} }):detach()
  local first, n = padding_rows(block)
  if first then block:local_tensor():narrow(1, first, n):fill_(is_float(t) and both.POISON or 1) end
  return block
end

-- Each output times fixed weights, summed: one number that depends on every element differently.
local function weighed(outputs)
  local total
  for i, y in ipairs(outputs) do
    if is_float(y) then
      local w = gm.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = "f64", seed = 900 + i })
      local term = (y * w):sum()
      total = total and total + term or term
    end
  end
  return total
end

-- Outputs, and the gradients of the inputs that have one, of fn on these leaves.
local function run(fn, leaves, backward)
  core.begin_step() -- the same dropout masks in both runs
  for _, t in ipairs(leaves) do
    if is_float(t) and backward then t:requires_grad(true) end
  end
  local outputs = { fn(unpack(leaves)) }
  if not backward then return outputs, {} end
  weighed(outputs):backward()
  local gradients = {}
  for i, t in ipairs(leaves) do gradients[i] = is_float(t) and t:grad() or nil end
  return outputs, gradients
end

local function whole_copies(inputs)
  local copies = {}
  for i, t in ipairs(inputs) do copies[i] = t:detach():clone() end
  return copies
end

local function blocks(inputs, cuts)
  local list = {}
  for i, t in ipairs(inputs) do list[i] = both.place(t:detach():clone(), cuts[i] or nil) end
  return list
end

-- A gradient is cut as its input and is nothing where there is only padding.
local function check_gradient(i, gradient, leaf)
  assert(gradient, ("input %d has no gradient"):format(i))
  assert.same(core.layout(leaf).cuts, core.layout(gradient).cuts)
  local first, n = padding_rows(gradient)
  if not first then return end
  local worst = gradient:local_tensor():narrow(1, first, n):abs():reshape(-1):sum():item()
  assert(worst == 0, ("the gradient of input %d reaches padding: %g"):format(i, worst))
end

--- inputs: list of whole tensors; cuts: list of layouts (nil or false: replicated); fn; expect: layout of the first
-- output (both.describe) or nil; gradients: false for functions without any; exact: bits of the outputs are equal.
function both.agree(case)
  gm.scope(function()
    local backward = case.gradients ~= false
    local want, want_gradients = run(case.fn, whole_copies(case.inputs), backward)
    local leaves = blocks(case.inputs, case.cuts)
    local got, gradients = run(case.fn, leaves, backward)
    if case.expect then assert.equal(case.expect, both.describe(got[1])) end
    for i, y in ipairs(got) do
      assert.same(want[i]:shape(), y:shape())
      numeric.agree(y, want[i], case.exact and 0 or both.TOLERANCE, 1e-3)
    end
    for i, gradient in pairs(want_gradients) do
      check_gradient(i, gradients[i], leaves[i])
      numeric.agree(gradients[i], gradient, both.TOLERANCE, 1e-3)
    end
  end)
end

--- What this rank sends in fn, in bytes, and the result of fn.
function both.sent(fn)
  core.comm_reset_traffic()
  local result, sum = fn(), 0
  for _, entry in ipairs(core.comm_traffic()) do sum = sum + entry.bytes end
  return sum, result
end

return both
