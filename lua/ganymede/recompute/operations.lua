--- What a plan of recomputation does, operation by operation, and what it takes: time and memory.
--
--     local list = operations.of(regions, 3)               -- { { "check", 1 }, { "none", 2 }, { "all", 3 }, ...
--     local took = operations.simulate(chain, list)        -- { time, forward, peak, at }
--
-- A chain is a list of stages. A stage has forward and backward (time, in any unit), and bytes:
--   input      what a region that begins here keeps; of the first stage 0, for somebody else holds it
--   kept       what is held from its forward pass to its backward pass, if everything is
--   gradient   the gradient of its result; default: the input of the next stage
--   passing    at the peak of a forward pass that keeps nothing, its input and its result among them; default: both
--   keeping    at the peak of a forward pass that keeps everything; default: input and kept
--   backward_extra   at the peak of its backward pass, beyond `kept` and the gradient of its result; default 0
-- What a stage gives is there for the next stage only: `kept` of that one counts what it keeps of it. The gradient of
-- the last result (of the loss) is counted from the beginning.
--
-- A region is { first, last, inside = list of regions }: its forward pass keeps its input only; just before its
-- backward pass it runs again, and then keeps what the regions inside say. Operations of a stage:
--   all        forward, and keeps everything of the stage
--   check      forward, and keeps the input
--   none       forward, and keeps nothing
--   backward   needs everything of the stage, and the gradient of its result
-- The input of a forward pass is there if it is kept, or if the operation before was the forward pass of the stage
-- before.
-- The trap: simulate() knows nothing of regions. It is what plans are judged by.
-- @module ganymede.recompute.operations
local operations = {}

-- ---------------------------------------------------------------- regions -> operations

local add_forward, add_backward

-- Stages first to last as this list of regions says; those in no region keep everything.
local function each_item(regions, first, last, stage, region)
  local at = first
  for _, r in ipairs(regions) do
    for i = at, r.first - 1 do stage(i) end
    region(r)
    at = r.last + 1
  end
  for i = at, last do stage(i) end
end

function add_forward(list, regions, first, last)
  each_item(regions, first, last, function(i) list[#list + 1] = { "all", i } end, function(r)
    list[#list + 1] = { "check", r.first }
    for i = r.first + 1, r.last do list[#list + 1] = { "none", i } end
  end)
end

function add_backward(list, regions, first, last)
  local items = {}
  each_item(regions, first, last, function(i) items[#items + 1] = i end, function(r) items[#items + 1] = r end)
  for k = #items, 1, -1 do
    local item = items[k]
    if type(item) == "number" then
      list[#list + 1] = { "backward", item }
    else
      add_forward(list, item.inside or {}, item.first, item.last)
      add_backward(list, item.inside or {}, item.first, item.last)
    end
  end
end

--- The operations of a forward and a backward pass through n stages with these regions, in order.
function operations.of(regions, n)
  local list = {}
  add_forward(list, regions, 1, n)
  add_backward(list, regions, 1, n)
  return list
end

-- ---------------------------------------------------------------- operations -> time and memory

-- What stages say of the bytes, with the defaults: arrays of numbers.
function operations.bytes_of(chain)
  local out = { input = {}, kept = {}, gradient = {}, passing = {}, keeping = {}, backward_extra = {} }
  for i, stage in ipairs(chain) do
    local input, result = i > 1 and stage.input or 0, chain[i + 1] and chain[i + 1].input or 0
    out.input[i], out.kept[i] = input, stage.kept
    out.gradient[i] = stage.gradient or result
    out.passing[i] = stage.passing or input + result
    out.keeping[i] = stage.keeping or input + stage.kept
    out.backward_extra[i] = stage.backward_extra or 0
  end
  return out
end

-- What is held: whole[i], everything of stage i; input[i], its input; fresh: the stage whose result is there; due: the
-- stage whose backward pass is next.
local function begin(chain)
  local state = { n = #chain, of = operations.bytes_of(chain), whole = {}, input = {}, fresh = 0, due = #chain,
    peak = 0, time = 0, forward = 0 }
  state.bytes = state.of.gradient[state.n]
  return state
end

local function reach(state, bytes, at)
  if bytes > state.peak then state.peak, state.at = bytes, at end
end

local function fail(at, op, i, text) error(("operation %d, %s of stage %d: %s"):format(at, op, i, text), 0) end

local function need_input(state, at, op, i)
  if i > 1 and not state.input[i] and state.fresh ~= i - 1 then fail(at, op, i, "its input is not there") end
end

-- The forward pass of stage i is over.
local function passed(state, i)
  state.fresh = i
  if i == state.n and not state.held then state.held = state.bytes - state.of.gradient[i] end
end

-- Bytes of an input that are counted as held already.
local function counted(state, i) return state.input[i] and state.of.input[i] or 0 end

local run = {}

function run.all(state, i, at)
  need_input(state, at, "all", i)
  if state.whole[i] then fail(at, "all", i, "it is kept already") end
  reach(state, state.bytes + state.of.keeping[i] - counted(state, i), at)
  state.whole[i], state.bytes = true, state.bytes + state.of.kept[i]
  passed(state, i)
end

function run.none(state, i, at)
  need_input(state, at, "none", i)
  if state.whole[i] then fail(at, "none", i, "it is kept already") end
  reach(state, state.bytes + state.of.passing[i] - counted(state, i), at)
  passed(state, i)
end

function run.check(state, i, at)
  need_input(state, at, "check", i)
  if not state.input[i] then state.input[i], state.bytes = true, state.bytes + state.of.input[i] end
  run.none(state, i, at)
end

function run.backward(state, i, at)
  local of = state.of
  if state.due ~= i then fail(at, "backward", i, ("the next is of stage %d"):format(state.due)) end
  if not state.whole[i] then fail(at, "backward", i, "it is not kept") end
  reach(state, state.bytes + of.backward_extra[i], at)
  state.bytes = state.bytes - of.kept[i] - of.gradient[i] + (of.gradient[i - 1] or 0) - counted(state, i)
  state.whole[i], state.input[i], state.due, state.fresh = nil, nil, i - 1, nil
end

--- Executes operations one by one -> { time = of all, forward = of the forward passes alone, peak = the most bytes
-- held, at = the operation with that peak, held = the bytes that are held when the first pass forward is over }.
-- Raises where one lacks what it needs, and where something is left undone.
function operations.simulate(chain, list)
  local state = begin(chain)
  for at, op in ipairs(list) do
    local what, i = op[1], op[2]
    run[what](state, i, at)
    local time = what == "backward" and chain[i].backward or chain[i].forward
    state.time = state.time + time
    if what ~= "backward" then state.forward = state.forward + time end
  end
  if state.due ~= 0 then error(("the backward pass of stage %d is missing"):format(state.due), 0) end
  return { time = state.time, forward = state.forward, peak = state.peak, at = state.at, held = state.held }
end

return operations
