--- What a step takes at least, by what the passes of its sections take.
--
--     local costs = passes.of_parts(sections, s, facts)        -- { forward, backward_input, backward_weight } by part
--     local seconds = passes.mean(s, sums)                     -- in any order
--     local seconds, stage = passes.least(s, costs)            -- by formula, and the stage that works longest, from 1
--     local played = passes.played(s, costs, schedule)          -- its order of passes, played
--     local seconds = passes.step(s, played, fn)                -- with the sums of gradients: fn(part) -> seconds
--
-- s: a setting or a family (ganymede.plan.search.space). sections: { forward, input, weight }, each a list by section
-- of the seconds of a micro-batch on one rank; before: what each rank does for a micro-batch before its first pass (0);
-- latency: the seconds of a message between stages (0); host: the same as sections, of the host that launches it all,
-- and `between`, those of a launch of a message (nil: it does not bind). Costs are least ones, and the order of each
-- rank's passes is fixed, so shorter passes never make a step longer: all figures are lower bounds if those of sections
-- are. A host launches ahead of its rank and waits for nothing, so a pass ends no sooner than it has been launched.
-- @module ganymede.plan.search.passes
local geometry = require "ganymede.job.geometry"
local pipelines = require "ganymede.schedules.pipeline"

local passes = {}

-- Orders that split backward passes.
local split_backward = { ["zb-h1"] = true, ["zb-h2"] = true, ["zb-v"] = true }

--- Whether a backward pass is one action.
function passes.whole(s) return not split_backward[s.pipeline.schedule] end

--- Returns the last section of each part of a setting; nil: unknown.
function passes.ends(s, facts, n_sections)
  local p = s.pipeline
  if p.size == 1 then return { n_sections } end
  return facts.bounds(p.split, p.size * p.chunks)
end

local known_parts = { looped = {}, v_shaped = {} } -- by size, then by chunks. Each of millions of bounds asks for some

-- The parts of each rank of a pipeline, which nobody changes.
local function held_by(s)
  local p = s.pipeline
  local shape = p.schedule == "zb-v" and "v_shaped" or "looped"
  local of_size = known_parts[shape][p.size] or {}
  known_parts[shape][p.size] = of_size
  of_size[p.chunks] = of_size[p.chunks] or geometry[shape](p.size, p.chunks)
  return of_size[p.chunks]
end

local kinds = { "forward", "backward_input", "backward_weight", "either" }

-- The sums of sections by part. Where a backward pass is one action, its halves count together; `none`: what a pass
-- without anything takes.
local function parts_of(sections, s, ends, none)
  local out = { forward = {}, backward_input = {}, backward_weight = {}, either = {} }
  local first, whole = 1, passes.whole(s)
  for part, last in ipairs(ends) do
    local f, i, w = none, none, none
    for at = first, last do
      f, i, w = f + sections.forward[at], i + sections.input[at], w + sections.weight[at]
    end
    out.either[part] = 0
    if whole then i, w = i + w, none
    elseif s.recompute ~= "none" then out.either[part], w = w, none end
    out.forward[part], out.backward_input[part], out.backward_weight[part] = f, i, w
    first = last + 1
  end
  return out
end

-- Adds the launches of messages to those of the passes that they come with: one where two parts that follow each other
-- lie on different ranks, at its maker and at its reader.
local function add_messages(host, s, between)
  if s.pipeline.size == 1 then return end
  local rank_of = {}
  for r, held in ipairs(held_by(s)) do
    for _, part in ipairs(held) do rank_of[part] = r end
  end
  for part = 1, #rank_of - 1 do
    local cost = rank_of[part] ~= rank_of[part + 1] and between or 0
    for _, list in ipairs { host.forward, host.backward_input } do
      list[part], list[part + 1] = list[part] + cost, list[part + 1] + cost
    end
  end
end

--- Returns the seconds of the parts: of sections from one end to the next; nil: where they end is not known. Where a
-- backward pass is one action, its halves count together. Where it is two and something runs again, the gradients of
-- weights may be in either half: `either`, which a rank works at some time. `before`: of a micro-batch, before all
-- passes; `once`: of a step, before all passes; `transfer`: of a message; `host`: lists of the host's seconds, with its
-- `before` and `once`.
function passes.of_parts(sections, s, facts)
  local ends = passes.ends(s, facts, #sections.forward)
  if not ends then return nil end
  local out = parts_of(sections, s, ends, 1e-12) -- no time is refused
  out.before, out.once, out.transfer = sections.before or 0, 0, sections.latency or 0
  if sections.host then
    out.host = parts_of(sections.host, s, ends, 0)
    out.host.before, out.host.once = sections.host.before, 0
    add_messages(out.host, s, sections.host.between)
  end
  return out
end

--- Returns costs of which each is the lesser one of two. Where axes lie changes nothing in what a host launches.
function passes.cheaper(a, b)
  local out = { before = math.min(a.before, b.before), once = 0, transfer = math.min(a.transfer, b.transfer),
    host = a.host }
  for _, kind in ipairs(kinds) do
    out[kind] = {}
    for part, seconds in ipairs(a[kind]) do out[kind][part] = math.min(seconds, b[kind][part]) end
  end
  return out
end

-- The seconds of a micro-batch in all passes of these parts.
local function sum_of(costs, held)
  local sum = 0
  for _, part in ipairs(held) do
    for _, kind in ipairs(kinds) do sum = sum + costs[kind][part] end
  end
  return sum
end

-- Rank r cannot begin before part 1 to r - 1 have passed a micro-batch; and what it has done last goes back through
-- these parts: its whole backward passes, or the gradients of inputs (the gradients of weights may come later).
local function least_of(s, costs, parts)
  local f, i, w, m, whole = costs.forward, costs.backward_input, costs.backward_weight, s.micro, passes.whole(s)
  local most, before, after, heaviest, longest = 0, 0, 0, 1, 0
  for r, held in ipairs(parts) do
    local work, inputs = m * sum_of(costs, held), 0
    for _, part in ipairs(held) do inputs = inputs + m * (f[part] + i[part]) end
    if work > longest then heaviest, longest = r, work end
    if whole then most = math.max(most, before + work + after)
    else most = math.max(most, before + work, s.pipeline.chunks == 1 and before + inputs + after or 0) end
    before = before + f[r] + costs.transfer
    after = after + i[r] + (whole and w[r] or 0) + costs.transfer
  end
  return most, heaviest
end

-- The seconds of a step, whose batches take so long, with what comes before its passes.
local function with_before(s, costs, seconds)
  return costs.once + s.accumulation * (s.micro * costs.before + seconds)
end

-- The parts of a rank.
local function parts_held(s, stage) return s.pipeline.size > 1 and held_by(s)[stage] or { 1 } end

--- Returns the seconds in which the host of a rank of a pipeline (from 1) launches what comes before the passes of a
-- step, and these.
function passes.launched(s, costs, stage)
  if not costs.host then return 0 end
  return with_before(s, costs.host, s.micro * sum_of(costs.host, parts_held(s, stage)))
end

local function most_launched(s, costs)
  local most = 0
  for stage = 1, costs.host and s.pipeline.size or 0 do most = math.max(most, passes.launched(s, costs, stage)) end
  return most
end

--- Returns the seconds that pass before a rank of a pipeline (from 1) can begin its first pass, and those that pass
-- behind its last one, at least: what ranks before it must do with one micro-batch.
function passes.around(s, costs, stage)
  local before, after, whole = with_before(s, costs, 0), 0, passes.whole(s)
  if costs.host then before = math.max(before, with_before(s, costs.host, 0)) end
  for r = 1, stage - 1 do
    before = before + costs.forward[r] + costs.transfer
    after = after + (whole and costs.backward_input[r] + costs.backward_weight[r] + costs.transfer or 0)
  end
  return before, after
end

--- Returns the seconds that a rank of a pipeline (from 1) works for a micro-batch, and those of its host.
function passes.of_stage(s, costs, stage)
  local held = parts_held(s, stage)
  return costs.before + sum_of(costs, held), costs.host and costs.host.before + sum_of(costs.host, held) or 0
end

--- Returns the seconds of the passes of a step at least, with what comes before them, and the rank of the pipeline
-- (from 1) that works longest.
function passes.least(s, costs)
  local most, heaviest = least_of(s, costs, s.pipeline.size > 1 and held_by(s) or { { 1 } })
  return math.max(with_before(s, costs, most), most_launched(s, costs)), heaviest
end

--- Returns the seconds that a mean rank of a pipeline works in the passes of a step, with what comes before them, or
-- its host: some rank works as long, in every order and however the sections are split. sums: what ganymede.plan.
-- search.cells sums of all sections for a micro-batch.
function passes.mean(s, sums)
  local p = s.pipeline.size
  return s.accumulation * s.micro * math.max(sums.before + sums.passes / p, sums.host_before + sums.host / p)
end

-- Whether a pass makes the gradients of weights.
local function makes_gradients(action) return action[1] == "backward" or action[1] == "backward_weight" end

-- When the last pass that makes gradients of weights begins, by part.
local function last_gradients(schedule, begins)
  local out = {}
  for r, actions in ipairs(schedule.actions) do
    for k, action in ipairs(actions) do
      if makes_gradients(action) then
        local part = schedule.parts[r][action[3]]
        out[part] = math.max(out[part] or 0, begins[r][k])
      end
    end
  end
  return out
end

-- What a host launches, as pipelines.simulate takes it. nil: it does not bind, or there are several batches, and it is
-- further ahead from one to the next.
local function launch_of(s, costs)
  local host = costs.host
  if not host or s.accumulation > 1 then return nil end
  return { forward = host.forward, backward_input = host.backward_input, backward_weight = host.backward_weight,
    from = with_before(s, host, 0) - with_before(s, costs, 0) }
end

-- When each rank has done its last pass, and all of its passes at the earliest.
local function ends_of(s, costs, found)
  local out = {}
  for r, finishes in ipairs(found.finishes) do
    out[r] = math.max(finishes[#finishes], s.micro * sum_of(costs, parts_held(s, r)))
  end
  return out
end

--- Returns { before = seconds of a step before its passes, time = those of the passes of a batch, last = by part: when
-- the last pass that makes gradients of its weights begins, ends = by rank: when its last pass ends, launched = what
-- the host of some rank takes for a step }. schedule: that of space.schedule; nil without a pipeline.
function passes.played(s, costs, schedule)
  local out = { before = with_before(s, costs, 0), launched = most_launched(s, costs) }
  if not schedule then
    local f, b = costs.forward[1], costs.backward_input[1] + costs.backward_weight[1]
    out.time, out.last, out.ends = s.micro * (f + b), { (s.micro - 1) * (f + b) + f }, { s.micro * (f + b) }
    return out
  end
  local found = pipelines.simulate(schedule, { forward = costs.forward, backward_input = costs.backward_input,
    backward_weight = costs.backward_weight, transfer = costs.transfer, launch = launch_of(s, costs) })
  local least = least_of(s, costs, held_by(s)) -- with what may run in either half
  out.time, out.last = math.max(found.time, least), last_gradients(schedule, found.begins)
  out.ends = ends_of(s, costs, found)
  return out
end

--- Returns when the last pass of a rank (from 1) of a step ends at the earliest.
function passes.ended(s, played, rank)
  return played.before + (s.accumulation - 1) * played.time + played.ends[rank]
end

--- Returns the seconds of a step at least whose order of passes was played. sums(part): how long the sums of its
-- gradients take, which begin in the last pass that adds to them; nil: nothing is said of them.
function passes.step(s, played, sums)
  local most = played.time
  for part, at in ipairs(sums and played.last or {}) do most = math.max(most, at + sums(part)) end
  return math.max(played.before + (s.accumulation - 1) * played.time + most, played.launched)
end

-- Whether one holding has no more of anything than another.
local function is_within(a, b)
  for chunk, n in ipairs(a.held) do
    if n > b.held[chunk] or (a.open[chunk] and not b.open[chunk]) then return false end
  end
  return true
end

local function add_holding(list, held, open)
  local own = { held = held, open = open }
  for _, other in ipairs(list) do
    if is_within(own, other) then return end
  end
  for i = #list, 1, -1 do
    if is_within(list[i], own) then table.remove(list, i) end
  end
  list[#list + 1] = { held = { unpack(held) }, open = { unpack(open) } }
end

-- What a rank holds before each pass that goes back.
local function holdings_of(actions, chunks)
  local list, seen, held, open, left, done = {}, {}, {}, {}, {}, {}
  for chunk = 1, chunks do held[chunk], open[chunk], left[chunk], done[chunk] = 0, false, 0, 0 end
  for _, action in ipairs(actions) do
    if makes_gradients(action) then left[action[3]] = left[action[3]] + 1 end
  end
  for _, action in ipairs(actions) do
    local chunk = action[3]
    if action[1] == "forward" then
      held[chunk] = held[chunk] + 1
    else
      local key = 0 -- states with one key are taken for one: some may be missing, and a bound is lower then
      for c = 1, chunks do key = key * 8192 + 2 * held[c] + (open[c] and 1 or 0) end
      if not seen[key] then add_holding(list, held, open) end
      seen[key] = true
      if action[1] ~= "backward_weight" then held[chunk] = held[chunk] - 1 end
      if makes_gradients(action) then
        done[chunk] = done[chunk] + 1
        open[chunk] = done[chunk] < left[chunk]
      end
    end
  end
  return list
end

--- Returns what the ranks of an order of passes hold at once, by rank: a list of { held, open }. `held`: by chunk, the
-- micro-batches that wait for their backward pass; `open`: by chunk, whether its gradients are sums of some micro-
-- batches, but not of all: whole, because data ranks sum them after the last one. What another one of the list has,
-- too, is not in it.
function passes.holdings(schedule)
  local out = {}
  for r, actions in ipairs(schedule.actions) do out[r] = holdings_of(actions, schedule.chunks) end
  return out
end

return passes
