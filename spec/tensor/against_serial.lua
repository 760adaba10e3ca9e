--- Runs a layer on a mesh that cuts it and compares everything with the same layer uncut.
--
--     against.agree({ tensor = { size = 4, mode = "2d" } }, {
--       build = function() return nn.Linear(10, 14) end, inputs = { against.values(5, 6, 10) },
--     })
--
-- The uncut run happens on every rank of the job by itself: a plan of data ranks only, on which inputs and parameters
-- are whole copies, so that every op is the plain one and nothing is sent (spec/nn holds those to PyTorch and to
-- differences). Parameters start from the same seed and paths; they must be the same bits in both runs. The results are
-- multiplied by fixed weights and summed; results, gradients of the inputs that are floating, and gradients of all
-- parameters must agree. Blocks change the order of sums only, so the tolerances are design section 5's; a gradient
-- whose largest entry is below 1e-3 is an error unless the case says which are zero in theory.
local gm = require "ganymede"
local assert = require "luassert"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local padding = require "spec.support.padding"
local parallel = require "ganymede.job.parallel"
local tables = require "spec.support.tables"

local against = { tolerance = { f32 = 1e-5, f64 = 1e-12 }, worst = {} }

local LEAST_GRADIENT = 1e-3
local SEED = 77

local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- A function that makes a tensor of this shape: different numbers in [-1, 1) everywhere, in the dtype of the run.
function against.values(...)
  local shape = { ... }
  return function(seed) return gm.uniform(shape, { low = -1, high = 1, seed = 4000 + seed }) end
end

--- A function that makes integers of this shape, from 0 to below `below`, spread out; every hole-th is `other`.
function against.places(shape, below, hole, other)
  return function(seed)
    local list = {}
    for i = 1, product(shape) do
      list[i] = hole and i % hole == 0 and other or (7 * i + 3 * seed + math.floor(i / 5)) % below
    end
    return gm.tensor(list, { dtype = "i64", shape = shape })
  end
end

--- Makes the mesh of this table `parallel` that of the job, as a run does.
function against.install(given)
  local plan, message = parallel.resolve(given, core.world())
  assert(plan, message)
  context.install(plan)
  core.keep_gathered(plan.tensor.keep_gathered == true)
end

--- For a `describe`, given its setup and teardown: examples in f64 on the mesh of this table, whose `name` is not part
-- of it. Afterwards all ranks are data.
function against.throughout(mesh, setup, teardown)
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
    against.install(tables.without(mesh, "name"))
  end)
  teardown(function()
    gm.set_default_dtype(before)
    against.install { data = core.world() }
  end)
end

local function is_float(t) return t:dtype():sub(1, 1) == "f" end

-- Each result times fixed weights, summed: one number that depends on every element differently.
local function weighed(results)
  local total
  for i, y in ipairs(results) do
    if is_float(y) and y:requires_grad() then
      local term = (y * gm.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = y:dtype(), seed = 900 + i })):sum()
      total = total and total + term or term
    end
  end
  return total
end

-- One forward and backward -> { results, parameters and gradients by name, gradients of inputs }, gathered lists.
-- layout: of the inputs as a loader gives them, or nil: whole. poison: with garbage in the padding of inputs and
-- parameters; what can be seen of that of results and gradients must be zero.
local function run(case, layout, poison)
  core.set_seed(SEED)
  core.begin_step()
  local model = case.build()
  if case.evaluate then model:eval() end
  local out = { parameters = {}, gradients = {}, names = {}, results = {}, inputs = {}, exact = {} }
  for _, p in ipairs(model:named_parameters()) do
    out.names[#out.names + 1] = p.name
    out.parameters[p.name] = core.gather(p.tensor):totable()
  end
  local inputs = {}
  for i, make in ipairs(case.inputs) do
    inputs[i] = layout and make(i):redistribute(layout):detach() or make(i)
    if is_float(inputs[i]) then inputs[i]:requires_grad(true) end
    if poison then padding.poison(inputs[i]) end
  end
  for _, p in ipairs(poison and model:named_parameters() or {}) do padding.poison(p.tensor) end
  local forward = case.forward or function(m, ...) return m(...) end
  local results = { forward(model, unpack(inputs)) }
  for i, y in ipairs(results) do
    out.exact[i] = not is_float(y)
    assert(not poison or padding.is_zero(y), "the padding of a result is not zero")
    out.results[i] = core.gather(y:detach()):totable()
  end
  local total = weighed(results)
  if total then
    total:backward()
    for _, p in ipairs(model:named_parameters()) do
      local gradient = p.tensor:grad()
      assert(not poison or not gradient or padding.is_zero(gradient), "the padding of a gradient is not zero")
      out.gradients[p.name] = gradient and core.gather(gradient):totable()
    end
    for i, x in ipairs(inputs) do
      local gradient = is_float(x) and x:grad()
      out.inputs[i] = gradient and core.gather(gradient):totable() or false
    end
  end
  return out
end

-- Raises unless got and want agree; names what it is about.
local function compare(case, what, got, want, tolerance, least)
  if not want then
    assert(not got, ("%s: there is a gradient, the uncut layer gives none"):format(what))
    return
  end
  assert(got, ("%s: none, the uncut layer gives one"):format(what))
  local is_zero = least and (case.zero or {})[what]
  if least and not is_zero and numeric.size(want) < least then
    error(("%s: the largest entry is %g: the comparison would say little"):format(what, numeric.size(want)), 0)
  end
  local floor = is_zero and 1 or nil
  local error_seen = numeric.relative_error(got, want, floor)
  local key = case.name or "?"
  against.worst[key] = math.max(against.worst[key] or 0, error_seen)
  local ok, message = pcall(numeric.agree, got, want, tolerance, floor)
  if not ok then error(("%s: %s"):format(what, message), 0) end
end

local function judge(case, got, want)
  local tolerance = (case.tolerance or against.tolerance)[gm.default_dtype()]
  assert.same(want.names, got.names)
  for _, name in ipairs(want.names) do assert.same(want.parameters[name], got.parameters[name]) end
  assert.equal(#want.results, #got.results)
  for i, y in ipairs(want.results) do
    compare(case, "result " .. i, got.results[i], y, (case.exact or want.exact[i]) and 0 or tolerance)
  end
  for _, name in ipairs(want.names) do
    compare(case, name, got.gradients[name], want.gradients[name], tolerance, LEAST_GRADIENT)
  end
  for i, gradient in ipairs(want.inputs) do
    compare(case, "input " .. i, got.inputs[i], gradient, tolerance, LEAST_GRADIENT)
  end
end

--- given: a table `parallel`. case: build() -> layer; inputs: list of against.values and against.places;
-- forward(layer, inputs...) -> results (default: calls it); evaluate, exact (results are equal bits), zero (set of
-- "input 1" and names of parameters whose gradient is zero in theory), tolerance (by dtype).
function against.agree(given, case)
  gm.scope(function()
    against.install {} -- every rank has all of everything
    local want = run(case)
    against.install(given)
    judge(case, run(case, given.data and { cuts = { "data.expert" } }), want)
  end)
end

--- On this mesh garbage in all padding, of inputs, parameters, results that are not computed yet and gradients on their
-- way, must not change a bit of any number.
function against.padding_counts_nowhere(given, case)
  gm.scope(function()
    against.install(given)
    local layout = given.data and { cuts = { "data.expert" } }
    local clean = run(case, layout)
    assert.same(clean, padding.poisoned(function() return run(case, layout, true) end))
  end)
end

--- All numbers of a case on this mesh, as lists: results, gradients, inputs.
function against.numbers(given, case)
  return gm.scope(function()
    against.install(given)
    return run(case)
  end)
end

--- The table parallel.tensor; more: further keys.
function against.tensor(mode, size, more)
  local t = { size = size, mode = mode }
  for key, value in pairs(more or {}) do t[key] = value end
  return t
end

return against
