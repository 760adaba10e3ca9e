--- What a plan of recomputation does, operation by operation, and what it takes: time and memory.
--
--     local list = operations.of(regions, 3)               -- { { "check", 1 }, { "none", 2 }, { "all", 3 }, ...
--     local took = operations.simulate(chain, list)        -- { time, forward, peak, at }
--
-- A chain is a list of stages, each { forward, backward (time, in any unit), output (bytes of what the next stage
-- reads), kept (bytes held from its forward pass to its backward pass where everything is kept, the output included),
-- gradient (bytes of the gradient of its output; default output), forward_extra, kept_extra, backward_extra (bytes at
-- the peak of a forward pass that keeps nothing, of one that keeps everything, and of the backward pass, beyond what
-- these names count; default 0) }. Bytes of the first stage's input are not counted: somebody else holds it.
-- The gradient of the last output (of the loss) is counted from the beginning.
--
-- A region is { first, last, inside = list of regions }: its forward pass keeps its input only; just before its
-- backward pass it runs again, and then keeps what the regions inside say. Operations of a stage:
--   all        forward, and keeps the input and everything of the stage
--   check      forward, and keeps the input
--   none       forward, and keeps nothing: the input is gone if nobody else keeps it
--   backward   needs the input, everything of the stage, and the gradient of its output
-- The trap: simulate() knows nothing of regions. It is what plans are judged by.
-- @module ganymede.plan.recompute.operations
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

-- Bytes of the gradient of what stage i gives.
local function gradient_of(state, i)
  local stage = state.chain[i]
  return stage and (stage.gradient or stage.output) or 0
end

-- What is held: whole[i], everything of stage i; output[i], its output alone; due: the stage whose backward pass is
-- next.
local function begin(chain)
  local state = { chain = chain, whole = {}, output = { [0] = true }, due = #chain, peak = 0, time = 0, forward = 0 }
  state.bytes = gradient_of(state, #chain)
  return state
end

local function drop_output(state, i)
  if i == 0 or not state.output[i] then return end
  state.output[i], state.bytes = nil, state.bytes - state.chain[i].output
end

local function reach(state, bytes, at)
  if bytes > state.peak then state.peak, state.at = bytes, at end
end

local function fail(at, op, i, text) error(("operation %d, %s of stage %d: %s"):format(at, op, i, text), 0) end

local function need_input(state, at, op, i)
  if not state.whole[i - 1] and not state.output[i - 1] then fail(at, op, i, "its input is not there") end
end

local run = {}

function run.all(state, i, at)
  local stage = state.chain[i]
  if state.whole[i] then fail(at, "all", i, "it is kept already") end
  reach(state, state.bytes + stage.kept + (stage.kept_extra or 0), at)
  state.whole[i], state.bytes = true, state.bytes + stage.kept
end

function run.check(state, i, at)
  local stage = state.chain[i]
  if state.whole[i] then fail(at, "check", i, "it is kept already") end
  reach(state, state.bytes + stage.output + (stage.forward_extra or 0), at)
  if state.output[i] then return end -- nobody waits for another
  state.output[i], state.bytes = true, state.bytes + stage.output
end

function run.none(state, i, at)
  run.check(state, i, at)
  drop_output(state, i - 1)
end

function run.backward(state, i, at)
  local stage = state.chain[i]
  if state.due ~= i then fail(at, "backward", i, ("the next is of stage %d"):format(state.due)) end
  if not state.whole[i] then fail(at, "backward", i, "it is not kept") end
  reach(state, state.bytes + (stage.backward_extra or 0), at)
  state.bytes = state.bytes - stage.kept - gradient_of(state, i) + gradient_of(state, i - 1)
  state.whole[i], state.due = nil, i - 1
  drop_output(state, i)
  drop_output(state, i - 1)
end

--- Executes operations one by one -> { time = of all, forward = of the forward passes alone, peak = the most bytes
-- held, at = the operation with that peak }. Raises where one lacks what it needs, and where something is left undone.
function operations.simulate(chain, list)
  local state = begin(chain)
  for at, op in ipairs(list) do
    local what, i = op[1], op[2]
    need_input(state, at, what, i)
    run[what](state, i, at)
    local time = what == "backward" and chain[i].backward or chain[i].forward
    state.time = state.time + time
    if what ~= "backward" then state.forward = state.forward + time end
  end
  if state.due ~= 0 then error(("the backward pass of stage %d is missing"):format(state.due), 0) end
  return { time = state.time, forward = state.forward, peak = state.peak, at = state.at }
end

return operations
