--- Recomputation: modules that keep their inputs only, and run again in backward (Chen et al. 2016, arXiv:1604.06174;
-- host/autograd/region.h).
--
--     region.run(block, x)                            -- block(x), of which backward will need x alone
--     region.mark(model, "block")                     -- the same for each call of the blocks of a model
--     region.mark(model, { sections = "2-9, 2-4" })   -- sections 2 to 9 as one region, and in it 2 to 4 as another
--
-- The first run of a region holds nothing for backward, so a region inside of one is an ordinary call then; it becomes
-- a region when the outer one runs again.
-- What is computed stays the same to the bit: random numbers are those of the first run, and losses that layers put
-- aside (ganymede.nn.auxiliary) are results of the region. A call that records nothing is an ordinary call.
-- The trap: the function runs twice. What it does beside its results, such as counting calls, happens twice unless it
-- asks `region.is_again()`, and its results must not depend on that.
-- @module ganymede.nn.region
local auxiliary = require "ganymede.nn.auxiliary"
local core = require "ganymede.core"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local section_regions = require "ganymede.nn.section_regions"
local tensor = require "ganymede.tensor"

local region = {}

local first_runs = 0 -- that are going on
local second_runs = 0

local function leave_again(ok, ...)
  second_runs = second_runs - 1
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...) as something that has run before: what layers count of a step has been counted.
function region.as_again(fn, ...)
  second_runs = second_runs + 1
  return leave_again(pcall(fn, ...))
end

--- Whether this is a run for backward of what has run before.
function region.is_again() return second_runs > 0 end

-- The arguments: how many, those that are no tensors by place, and the places of the tensors.
local function sorted(n, ...)
  local given = { n = n, others = {}, places = {}, tensors = {} }
  for i = 1, n do
    local value = select(i, ...)
    if core.is_tensor(value) then
      given.places[#given.places + 1], given.tensors[#given.tensors + 1] = i, value
    else
      given.others[i] = value
    end
  end
  return given
end

-- fn with the tensors in their places -> { auxiliary losses, n = number of results, results... }
local function call(fn, given, tensors)
  local list = {}
  for i = 1, given.n do list[i] = given.others[i] end
  for k, place in ipairs(given.places) do list[place] = tensors[k] end
  local function pack(losses, ...) return { losses = losses, n = select("#", ...), ... } end
  return pack(auxiliary.collect(fn, unpack(list, 1, given.n)))
end

-- Results that have gradients, auxiliary losses behind the others; and their places, 0 for an auxiliary loss.
local function differentiable(results)
  local list, places = {}, {}
  for i = 1, results.n do
    local value = results[i]
    if core.is_tensor(value) and core.requires_grad(value) then
      list[#list + 1], places[#places + 1] = value, i
    elseif type(value) == "table" and not core.is_tensor(value) then
      error(("recompute: result %d is a table; results must be tensors, so that the tape knows them"):format(i), 0)
    end
  end
  for _, loss in ipairs(results.losses) do list[#list + 1], places[#places + 1] = loss, 0 end
  return list, places
end

-- Leaves in place of the inputs.
local function stand_ins(tensors)
  local list = {}
  for i, t in ipairs(tensors) do list[i] = core.detach(t) end
  for i, t in ipairs(tensors) do
    if core.requires_grad(t) then core.requires_grad(list[i], true) end
  end
  return list
end

-- The results, with those that came out of the region in place of what the first run computed.
local function replaced(results, places, ...)
  for k, place in ipairs(places) do
    local value = select(k, ...)
    if place == 0 then auxiliary.add(value) else results[place] = value end
  end
  return results
end

local function first_run(open, fn, given)
  local inner = stand_ins(given.tensors)
  local results = call(fn, given, inner)
  local list, places = differentiable(results)
  local function again(...) return unpack((differentiable(region.as_again(call, fn, given, { ... })))) end
  local inputs = given.tensors
  given.tensors = nil -- `again` must not keep them
  results = replaced(results, places, core.region_end(open, inputs, inner, list, again))
  return unpack(results, 1, results.n)
end

local function finish(open, ok, ...)
  first_runs = first_runs - 1
  if not ok then
    core.region_cancel(open)
    error((...), 0)
  end
  return ...
end

--- Whether a call now can be a region: something is recorded, and for backward.
function region.is_wanted() return core.no_grad(0) == 0 and first_runs == 0 end

local function run_named(name, fn, ...)
  if not region.is_wanted() then return fn(...) end
  local given = sorted(select("#", ...), ...)
  local open = core.region_begin(name, given.tensors)
  first_runs = first_runs + 1
  return finish(open, pcall(tensor.scope, first_run, open, fn, given))
end

--- fn(...) as a region.
function region.run(fn, ...) return run_named("the function", fn, ...) end

local function put_modes(list, modes)
  local before = {}
  for i, m in ipairs(list) do before[i], m._module.training = m._module.training, modes[i] end
  return before
end

local function put_back(list, modes, ok, ...)
  put_modes(list, modes)
  if not ok then error((...), 0) end
  return ...
end

--- forward(...), a call of these modules, as a region that messages name so. Its second run is in their modes
-- (training or not) of the first.
function region.run_modules(name, list, forward, ...)
  local modes = {}
  for i, each in ipairs(list) do modes[i] = each._module.training end
  return run_named(name, function(...)
    local before = put_modes(list, modes)
    return put_back(list, before, pcall(forward, ...))
  end, ...)
end

--- A call of module m as a region: forward(m, ...). A class can say that fewer arguments mean the same to it, which the
-- region then keeps: recompute_join(...) -> arguments.
function region.run_module(m, forward, ...)
  if not region.is_wanted() then return forward(m, ...) end
  local join, name = m.recompute_join, m:path() == "" and "the model" or m:path()
  local function of_module(...) return forward(m, ...) end
  if not join then return region.run_modules(name, m:modules(), of_module, ...) end
  return tensor.scope(function(...) return region.run_modules(name, m:modules(), of_module, join(...)) end, ...)
end

-- ---------------------------------------------------------------- which modules

--- A class says of which kind its modules are: TransformerBlock.recompute_kind = "block".
region.kinds = { "block", "attention" }

local function matches(m, patterns)
  for _, pattern in ipairs(patterns) do
    if m:path():find(pattern) then return true end
  end
  return false
end

-- Of a table that has key `own`: another key beside it.
local function surplus(given, own, words)
  for key in pairs(given) do
    if key ~= own then return ("has %s and %s: %s"):format(own, key, words) end
  end
end

-- { memory = "4G" }: a run asks which sections (ganymede.train.regions).
local function problem_of_memory(given)
  local more = surplus(given, "memory", "the one chooses what runs again, the other names it")
  if more then return more end
  local bytes, why = machine.bytes_of(tostring(given.memory))
  return not bytes and ("= { memory = ... }: " .. why) or nil
end

--- Why a setting cannot be had, or nil.
function region.problem(given)
  if type(given) == "string" and given ~= "block" and given ~= "attention" then
    return ("is \"block\", \"attention\" or a list of patterns over module paths; got %q%s"):format(given,
      options.hint(given, region.kinds))
  end
  if type(given) ~= "table" then return nil end
  if given.memory ~= nil then return problem_of_memory(given) end
  if given.sections ~= nil then
    local list, why = section_regions.parse(given.sections)
    return surplus(given, "sections", "one of them names what runs again") or not list and why or nil
  end
  if #given == 0 then return "is an empty list; name modules by patterns over their paths: { \"blocks.%d+$\" }" end
  for i, pattern in ipairs(given) do
    if type(pattern) ~= "string" or not pcall(string.find, "", pattern) then
      return ("[%d] is no pattern over module paths, such as \"blocks.%%d+$\"; got %s"):format(i,
        options.brief(pattern))
    end
  end
end

--- Marks the modules of the tree whose calls are regions from here on: "block", "attention", or a list of patterns over
-- paths; nil: none -> how many. A module inside of a marked one is marked, too, and then is a region in a region. With
-- { sections = TEXT } the regions are spans of the model's sections (ganymede.nn.section_regions).
function region.mark(model, given)
  local count = 0
  model._module.regions = nil
  if type(given) == "table" and given.sections then return section_regions.mark(model, given.sections) end
  for _, m in ipairs(model:modules()) do
    local chosen = type(given) == "string" and m.recompute_kind == given or type(given) == "table" and matches(m, given)
    m._module.recompute = chosen or nil
    if chosen then count = count + 1 end
  end
  return count
end

return region
