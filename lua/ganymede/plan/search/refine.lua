--- What rehearsals of single pieces and played schedules say of a family of settings: bounds near to a simulation.
--
--     local seconds = refine.of_bunch(search, bunch)          -- of a bunch of families; nil: nothing is known
--     local seconds = refine.by_cell(search, family, known)   -- of a family of it
--     local seconds, why = refine.by_order(search, family)    -- its order of passes, played; why: there is no order
--     local seconds, bytes = refine.of_setting(search, s)     -- of a setting of a family that both have looked at
--     local seconds = refine.play(search, s)                  -- with what its own order of the axes makes slower
--
-- search: { given, facts, machine, cells } of ganymede.plan.search. What passes take depends on where the axes of a
-- setting lie, so a family has the least of all orders of the axes. Sums of gradients over data ranks begin in the last
-- pass that adds to them: not with stages 2 and 3 of ZeRO, which sum in each batch. Of memory: beside the parameters
-- and states of a stage, before its first backward pass a rank holds what all forward passes before that have kept.
-- @module ganymede.plan.search.refine
local bounds = require "ganymede.plan.search.bounds"
local cells = require "ganymede.plan.search.cells"
local passes = require "ganymede.plan.search.passes"
local rates = require "ganymede.plan.search.rates"
local record = require "ganymede.plan.search.record"
local relatives = require "ganymede.plan.search.relatives"
local setting = require "ganymede.plan.search.setting"
local space = require "ganymede.plan.search.space"

local refine = {}

local function mesh_of(search, s, order)
  return bounds.mesh({ data = s.data, expert = s.expert, tensor = s.tensor, sequence = s.sequence,
    pipeline = s.pipeline, home = s.home, order = order or nil }, search.given.ranks)
end

--- Returns the seconds in which data ranks send at least, however the axes lie. family.zero: the stage of ZeRO.
function refine.sent(search, family)
  local known, least = family.home.sent or {}, nil
  local key = ("%s %d %d"):format(tostring(family.zero), family.accumulation, family.micro)
  family.home.sent = known
  if known[key] then return known[key] end
  local usual = family.order
  for _, order in ipairs(family.orders) do
    family.order = order or nil
    local seconds = bounds.data_sent(family, search.facts, search.machine, search.given.ranks, search.facts.told)
    least = math.min(least or seconds, seconds)
  end
  family.order, known[key] = usual, least
  return least
end

--- Returns meshes of a share, one for each way in which the orders of its axes make a difference to its passes.
function refine.meshes(search, s)
  local home, seen = s.home, {}
  if home.ways then return home.ways end
  home.ways = {}
  for _, order in ipairs(home.orders) do
    local mesh = mesh_of(search, s, order)
    local key = cells.place(mesh)
    home.ways[#home.ways + 1] = not seen[key] and mesh or nil
    seen[key] = true
  end
  return home.ways
end

--- Returns the seconds in which layers of a bunch send at least, however the axes lie.
function refine.shared(search, bunch)
  local least
  for _, mesh in ipairs(refine.meshes(search, bunch)) do
    local seconds = bounds.layers(bunch, search.facts, search.machine, mesh)
    least = math.min(least or seconds, seconds)
  end
  return least
end

-- Where the ranks of a node share its cores: what a mean rank works in the passes of a step; 0 elsewhere.
local function work_of(search, s, sections)
  local sum = 0
  if not sections.work or not search.machine.host_moves or not rates.shares_cores(search.machine) then return 0 end
  for _, seconds in ipairs(sections.work) do sum = sum + seconds end
  return s.micro * s.accumulation * (sections.work[0] + sum / s.pipeline.size)
end

-- Calls fn(costs of the parts, key, work) for each way in which the orders of the axes of a family make a difference.
local function each_costs(search, family, cell, fn)
  if not cell then
    local sections = bounds.sections(family, search.facts, search.machine, search.given.ranks)
    local costs = sections and passes.of_parts(sections, family, search.facts)
    return costs and fn(costs, "formula", 0)
  end
  local seen = {}
  for _, mesh in ipairs(refine.meshes(search, family)) do
    local sections, key = cells.sections(cell, mesh, search.machine)
    local costs = not seen[key] and passes.of_parts(sections, family, search.facts)
    if costs then fn(costs, key, work_of(search, family, sections)) end
    seen[key] = true
  end
end

local function key_of(search, s)
  local cell = search.cells:get(s)
  return cell and cells.key(cell, mesh_of(search, s, s.order), search.machine) or "formula"
end

-- What the seconds of a family by its cell are a function of, beside what its bunch says.
local function shape_of(p)
  return ("%s %s %d %s"):format(tostring(passes.whole { pipeline = p }), tostring(p.schedule == "zb-v"), p.chunks,
    type(p.split) == "table" and table.concat(p.split, "+") or p.split)
end

--- Returns the seconds of a step of a family at least, from its cell; nil: nothing is known. known: what it has said of
-- families of the same bunch.
function refine.by_cell(search, family, known)
  local shape, least = shape_of(family.pipeline), nil
  if known[shape] ~= nil then return known[shape] or nil end
  each_costs(search, family, search.cells:get(family), function(costs, _, work)
    local seconds = math.max(passes.least(family, costs), bounds.crowded(search.machine, search.given.ranks, work))
    least = math.min(least or seconds, seconds)
  end)
  known[shape] = least or false
  return least
end

-- The seconds of a step of a bunch at least by a cell; nil: it says nothing.
local function mean_of(search, bunch, cell)
  local least, seen = nil, {}
  for _, mesh in ipairs(cell and refine.meshes(search, bunch) or {}) do
    local sums = cells.sums(cell, mesh, search.machine)
    local seconds = seen[sums] or math.max(passes.mean(bunch, sums),
      bounds.crowded(search.machine, search.given.ranks, work_of(search, bunch, sums)))
    least, seen[sums] = math.min(least or seconds, seconds), seconds
  end
  return least
end

--- Returns the seconds of a step of all families of a bunch at least, from their cell; nil: nothing is known.
function refine.of_bunch(search, bunch) return mean_of(search, bunch, search.cells:get(bunch)) end

--- Returns the same from a cell of at most so many samples that many bunches have in common, which says less; nil:
-- there is none.
function refine.by_anchor(search, bunch, most)
  local anchor, part = search.cells:anchor(bunch, most)
  local seconds = anchor and mean_of(search, bunch, search.cells:get(anchor))
  return seconds and seconds * part
end

-- The part of all parameters that is in each part of a setting. Those that two sections share count in both.
local function parameters_of(search, s, inner)
  local list, facts = {}, search.facts
  local ends = facts.section_list and passes.ends(s, facts, #facts.section_list)
  if not ends then return nil end
  local total, first = 0, 1
  for _, section in ipairs(facts.section_list) do total = total + section.parameters end
  for part, last in ipairs(ends) do
    list[part] = 0
    for i = first, last do
      local counts = not inner or i > 1 and i < #facts.section_list -- inner: the ends may share theirs
      list[part] = list[part] + (counts and facts.section_list[i].parameters / total or 0)
    end
    first = last + 1
  end
  return list
end

--- Plays the order of a family's passes once, with the least costs of all orders of the axes. Returns the seconds of a
-- step at least; nil and why there is no such order.
function refine.by_order(search, family)
  local schedule, why
  if family.pipeline.size > 1 then
    schedule, why = space.schedule(family)
    if not schedule then return nil, why end
  end
  local cheapest, n = nil, 0
  family.known = {}
  each_costs(search, family, search.cells:get(family), function(costs, key, work)
    cheapest, n = cheapest and passes.cheaper(cheapest, costs) or costs, n + 1
    family.known[key] = { least = passes.least(family, costs), work = work }
  end)
  family.played, family.differs = cheapest and passes.played(family, cheapest, schedule), n > 1
  return cheapest and passes.step(family, family.played) or 0
end

-- A setting with other numbers of pieces of the same size. It has facts of its own, for the samples of its step.
local function with_pieces(s, facts, accumulation, micro)
  local out = {}
  for key, value in pairs(s) do out[key] = value end
  out.accumulation, out.micro = accumulation, micro
  local part = accumulation * micro / (s.accumulation * s.micro)
  out.facts = setmetatable({ samples = facts.samples * part }, { __index = facts })
  return out
end

--- Returns a setting with fewer pieces of the same size, whose record says what that of many would, piece by piece, and
-- how many are missing; nil, 0: there is none. It has facts of its own, for the samples of its step.
function refine.short(s, facts)
  local accumulation = math.min(s.accumulation, 2) -- stage 2 of ZeRO needs two
  local micro = s.pipeline.size > 1 and math.min(s.micro, 2 * s.pipeline.size) or s.micro
  local pieces, own = s.accumulation * s.micro, accumulation * micro
  local out = with_pieces(s, facts, accumulation, micro)
  if own == pieces or (s.pipeline.size > 1 and not space.schedule(out)) then return nil, 0 end
  return out, pieces - own
end

--- Returns settings with 2, 3 and 4 batches, or with 1, 2 and 3 micro-batches a stage, of the same pieces, by which a
-- simulation of many is reckoned (ganymede.plan.search.lengths), and how many such steps lie between the last of them
-- and all pieces; nil: there are not so many pieces that this would be less work.
function refine.lengths(s, facts)
  local piped = s.pipeline.size > 1
  local unit, first = piped and s.pipeline.size or 1, piped and 1 or 2
  local whole = piped and s.micro or s.accumulation
  local steps = whole / unit - (first + 2)
  if steps < 2 or (piped and s.accumulation > 1) then return nil end
  local list = {}
  for i = 0, 2 do
    local n = (first + i) * unit
    list[i + 1] = with_pieces(s, facts, piped and 1 or n, piped and n or s.micro)
    if piped and not space.schedule(list[i + 1]) then return nil end
  end
  return list, steps
end

--- Returns the seconds that a stage (from 1) works at least for a piece, and those of its host; and those that pass
-- before its first pass and behind its last one, in other stages.
function refine.piece(search, s, stage)
  local cell = search.cells:get(s)
  local sections = cell and cells.sections(cell, mesh_of(search, s, s.order), search.machine)
    or bounds.sections(s, search.facts, search.machine, search.given.ranks)
  local costs = sections and passes.of_parts(sections, s, search.facts)
  if not costs then return 0, 0, 0, 0 end
  local device, host = passes.of_stage(s, costs, stage)
  return device, host, passes.around(s, costs, stage)
end

-- The bytes that each part of a setting holds for the backward pass of a micro-batch.
local function saved_of(search, s, cell)
  local list, first = {}, 1
  for part, last in ipairs(passes.ends(s, search.facts, #cell.saved) or {}) do
    list[part] = 0
    for i = first, last do list[part] = list[part] + cell.saved[i] end
    first = last + 1
  end
  return list
end

-- The bytes that some rank of a pipeline holds at least at once: of parameters and states, of micro-batches that wait
-- for their backward pass, and of gradients that are not sums of all micro-batches. The latter are whole, in all stages
-- of ZeRO (docs/memory.md). saved: by part; rest, whole: of parameters and states, and of gradients, of a mean rank.
local function most_of_stages(search, s, saved, rest, whole)
  local weights, most = parameters_of(search, s, true), 0
  local holdings = weights and space.holdings(s)
  for r, list in ipairs(holdings or {}) do
    local parts, own = holdings.parts[r], 0
    for _, part in ipairs(parts) do own = own + weights[part] * rest end
    for _, one in ipairs(list) do
      local bytes = own
      for chunk, part in ipairs(parts) do
        bytes = bytes + one.held[chunk] * (saved[part] or 0) + (one.open[chunk] and weights[part] * whole or 0)
      end
      most = math.max(most, bytes)
    end
  end
  return most
end

-- The bytes that some rank holds at least when a backward pass begins. Without a pipeline, gradients are there from the
-- second batch on: whole up to stage 1 of ZeRO, divided from stage 2 on. Where experts divide them otherwise, the
-- formula has them.
local function bytes_at_backward(search, s)
  local facts, cell, p = search.facts, search.cells:get(s), s.pipeline.size
  local parameters, gradients, states = bounds.resting(s, facts, s.zero)
  local whole = not facts.experts and s.zero ~= "own" and facts.weights.gradients / setting.weight_ways(s) or 0
  if p > 1 then
    return most_of_stages(search, s, cell and saved_of(search, s, cell) or {}, (parameters + states) * p, whole)
  end
  local kept = s.accumulation > 1 and whole > 0 and (s.zero >= 2 and gradients or whole) or 0
  return parameters + states + kept + (cell and saved_of(search, s, cell)[1] or 0)
end

--- Forgets what of_setting needs of a family.
function refine.forget(family)
  family.played, family.known = nil, nil
end

-- The seconds of a step of which the order of passes was played, with the sums of gradients where they come last.
local function with_sums(search, s, played)
  local share = (s.zero == 0 or s.zero == 1) and parameters_of(search, s)
  return passes.step(s, played, function(part)
    return share and bounds.gradients(s, search.facts, search.machine, search.given.ranks, share[part]) or 0
  end)
end

--- Returns the seconds of a step of a setting at least, and the bytes of some rank. s.family has been played.
function refine.of_setting(search, s)
  local facts, m, ranks = search.facts, search.machine, search.given.ranks
  local seconds, bytes = bounds.time(s, facts, m, ranks), bounds.memory(s, facts)
  local known = s.family.played and s.family.known[key_of(search, s)]
  if known then seconds = math.max(seconds, known.least, with_sums(search, s, s.family.played)) end
  if known and known.work > 0 then
    local rest = bounds.update(s, facts, ranks) + bounds.data_sent(s, facts, m, ranks, facts.told)
      + bounds.messages(s, m)
    seconds = math.max(seconds, bounds.crowded(m, ranks, known.work + rest))
  end
  return seconds, math.max(bytes, bytes_at_backward(search, s))
end

-- What a rehearsal of a relative says of what a rank of a setting does before its passes and behind them, and the stage
-- of that rank; nil: none has said anything.
local function ends_of(search, s)
  for stage = 1, s.pipeline.size do
    local around = search.ends[relatives.ends(s, stage)]
    if around then return around, stage end
  end
end

--- Notes what the record of a rank of a stage (from 1) says of its relatives.
function refine.note_ends(search, s, stage, around) search.ends[relatives.ends(s, stage)] = around end

--- Plays the order of passes of a setting with the costs of its own order of the axes, and with what relatives do
-- before and behind their passes. Returns the seconds of a step at least; 0: the family says as much.
function refine.play(search, s)
  local family, cell, around, stage = s.family, search.cells:get(s), ends_of(search, s)
  if not cell or not (family.differs or around) then return 0 end
  local m, mesh = search.machine, bounds.mesh(s, search.given.ranks)
  local rank = around and bounds.first_of_stage(mesh, stage)
  local costs = passes.of_parts(cells.sections(cell, mesh, m), s, search.facts)
  if around then
    local once, launch = record.summed_before(around, mesh, m, rank)
    costs.once = once
    if costs.host then costs.host.once = launch end
  end
  local played = passes.played(s, costs, s.pipeline.size > 1 and space.schedule(s) or nil)
  local seconds = with_sums(search, s, played)
  if not around then return seconds end
  return math.max(seconds, record.ended(around, mesh, m, rank, passes.ended(s, played, stage),
    passes.launched(s, costs, stage)))
end

return refine
