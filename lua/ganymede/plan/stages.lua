--- What `check` says about a pipeline: the schedule and what it loses, and what each part and each stage holds and
-- costs.
--
--     local found = stages.report(engine, { batch = { micro_batches = 4 }, costs = of borders.costs })
--
-- It returns nil if the engine runs no pipeline schedule, otherwise plain values:
--   order, stages, chunks, micro_batches, bubble (at equal costs), bubble_of_split (costs as below),
--   bubble_with_barrier (the same if steps end at a barrier), picture (text, equal costs)
--   parts     by part: stage, chunk, sections, first and last section, parameters, flops and product_flops (of the
--             forward pass of a micro-batch on one rank), gives (what crosses to the next part), border_bytes (of one
--             rank's block)
--             also input_flops and weight_flops (of the two halves of its backward pass), saved_bytes (for backward)
--   by_stage  stage, parts, parameters, flops (of all passes of a micro-batch through its parts), held (most micro-
--             batches whose activations are held, in units of all chunks), held_bytes (of these activations)
--   meets     the stages to which this rank's messages go or from which they come
--   busiest   the operations of the stage that has most, divided by the mean; no order of passes can make up for it
-- The costs of a split are operations; transfers cost nothing. In held_bytes a micro-batch is held until the end of its
-- backward pass; a run frees it earlier. The trap: parameters that two parts share count in both.
-- @module ganymede.plan.stages
local draw = require "ganymede.schedules.draw"
local geometry = require "ganymede.job.geometry"
local json = require "ganymede.base.json"
local pipeline = require "ganymede.schedules.pipeline"
local ranks = require "ganymede.job.ranks"
local sections = require "ganymede.nn.sections"

local stages = {}

local function sum(list, first, last)
  local total = 0
  for i = first, last do total = total + list[i] end
  return total
end

-- Returns the sections of which the parts consist; nil if the stages have built their own parts.
local function list_of(stage)
  local list = sections.of(stage.model)
  return list and stage.bounds[stage.n_parts][2] == #list and list or nil
end

local function add_costs(row, cost)
  for _, name in ipairs { "flops", "product_flops", "input_flops", "weight_flops", "saved_bytes" } do
    row[name] = cost[name]
  end
  row.gives, row.border_bytes = json.array(cost.gives), 0
  for _, t in ipairs(cost.gives) do row.border_bytes = row.border_bytes + t.bytes end
end

local function parts_of(stage, built, costs)
  local out, list = json.array(), list_of(stage)
  local weights = list and sections.weights(list)
  for rank, held in ipairs(built.parts) do
    for chunk, part in ipairs(held) do
      local first, last = unpack(stage.bounds[part])
      out[part] = { part = part, stage = rank - 1, chunk = chunk, sections = last - first + 1,
        first = stage.names[first], last = stage.names[last], parameters = weights and sum(weights, first, last) }
      add_costs(out[part], costs[part])
    end
  end
  return out
end

local function owner(entry)
  local tied = entry.tied
  return tied and owner(tied.module._module.parameters[tied.name]) or entry
end

-- Counts the parameters of the modules that one stage reads. Those that it reads twice (tied) count once.
local function parameters_of(stage, list, held)
  local seen, total = {}, 0
  local function add(m)
    for _, p in ipairs(m:declared()) do
      local entry = owner(p.entry)
      total, seen[entry] = total + (seen[entry] and 0 or p.count), true
    end
  end
  for _, part in ipairs(held) do
    for i = stage.bounds[part][1], stage.bounds[part][2] do
      for _, m in ipairs(list[i].modules) do add(m) end
    end
  end
  return total
end

-- Returns the most bytes held for backward at once by all parts of a stage, from a forward pass to the end of its
-- backward pass.
local function held_bytes(built, rank, costs)
  local held, most = 0, 0
  for _, action in ipairs(built.actions[rank]) do
    local part = built.parts[rank][action[3]]
    if action[1] == "forward" then
      held = held + costs[part].saved_bytes
      most = math.max(most, held)
    elseif action[1] == "backward" or action[1] == "backward_weight" then
      held = held - costs[part].saved_bytes
    end
  end
  return most
end

-- Returns the operations of all passes of a part. A half of the backward pass that was not measured counts like the
-- forward pass.
local function all_passes(cost)
  return cost.flops + (cost.input_flops or cost.flops) + (cost.weight_flops or cost.flops)
end

local function by_stage(stage, built, simulation, costs)
  local out, list = json.array(), list_of(stage)
  for rank, held in ipairs(built.parts) do
    local row = { stage = rank - 1, parts = json.array { unpack(held) }, held = simulation.live[rank], flops = 0,
      held_bytes = held_bytes(built, rank, costs), parameters = list and parameters_of(stage, list, held) }
    for _, part in ipairs(held) do row.flops = row.flops + all_passes(costs[part]) end
    out[rank] = row
  end
  return out
end

local function busiest(rows)
  local most, total = 0, 0
  for _, row in ipairs(rows) do most, total = math.max(most, row.flops), total + row.flops end
  return most * #rows / total
end

-- Simulates the schedule with the operations of each pass as its time, in units of the mean forward pass of a part.
local function simulate_split(built, costs)
  local total = 0
  for _, cost in ipairs(costs) do total = total + cost.flops end
  local function times(name)
    local list = {}
    for part, cost in ipairs(costs) do -- what takes no operations takes some time
      list[part] = math.max((cost[name] or cost.flops) * #costs / total, 1e-6)
    end
    return list
  end
  local played = pipeline.simulate(built, { forward = times "flops", backward_input = times "input_flops",
    backward_weight = times "weight_flops" })
  played.unit, played.said, played.time_unit = 1, "operations of this split", "passes"
  for _, name in ipairs { "bubble", "bubble_with_barrier" } do -- sums of fractions leave a remainder
    if math.abs(played[name]) < 1e-9 then played[name] = 0 end
  end
  return played
end

-- Returns the stages to which this rank's messages go or from which they come.
local function met_by(built, rank)
  local seen, out = {}, json.array()
  for _, action in ipairs(built.actions[rank + 1]) do
    local peer = geometry.is_transfer(action) and action[5]
    if peer and not seen[peer] then out[#out + 1], seen[peer] = peer, true end
  end
  table.sort(out)
  return out
end

--- Returns what the head of this file describes, the built schedule, and its simulation at the costs of this split; nil
-- without a pipeline schedule.
function stages.report(engine, notes)
  if not engine.executor or not notes.costs then return nil end
  local rank, count = ranks.stage()
  local built = engine.schedule:order_for(count, notes.batch.micro_batches, false)
  local equal, own = pipeline.simulate(built), simulate_split(built, notes.costs)
  local rows = by_stage(engine.stage, built, equal, notes.costs)
  return {
    order = built.name, stages = built.stages, chunks = built.chunks, micro_batches = built.micro_batches,
    bubble = equal.bubble, bubble_of_split = own.bubble, bubble_with_barrier = own.bubble_with_barrier,
    picture = draw.text(built, equal, 116), parts = parts_of(engine.stage, built, notes.costs),
    by_stage = rows, busiest = busiest(rows), meets = met_by(built, rank),
  }, built, own
end

return stages
