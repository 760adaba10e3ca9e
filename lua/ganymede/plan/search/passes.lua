--- What a step takes at least, by what the passes of its sections take.
--
--     local costs = passes.of_parts(sections, s, facts)        -- { forward, backward_input, backward_weight } by part
--     local seconds, stage = passes.least(s, costs)            -- by formula, and the stage that works longest, from 1
--     local played = passes.played(s, costs, schedule)          -- its order of passes, played
--     local seconds = passes.with_sums(s, played, fn)           -- with the sums of gradients: fn(part) -> seconds
--
-- s: a setting or a family (ganymede.plan.search.space). sections: { forward, input, weight }, each a list by section
-- of the seconds of a micro-batch on one rank. Costs are least ones, and the order of each rank's passes is fixed, so
-- shorter passes never make a step longer: all figures are lower bounds if those of sections are.
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

--- Returns the seconds of the parts: of sections from one end to the next; nil: where they end is not known. Where a
-- backward pass is one action, its halves count together. Where it is two and something runs again, the gradients of
-- weights may be in either half: `either`, which a rank works at some time.
function passes.of_parts(sections, s, facts)
  local ends = passes.ends(s, facts, #sections.forward)
  if not ends then return nil end
  local out = { forward = {}, backward_input = {}, backward_weight = {}, either = {} }
  local first, whole = 1, passes.whole(s)
  for part, last in ipairs(ends) do
    local f, i, w = 1e-12, 1e-12, 1e-12 -- no time is refused
    for at = first, last do
      f, i, w = f + sections.forward[at], i + sections.input[at], w + sections.weight[at]
    end
    out.either[part] = 0
    if whole then i, w = i + w, 1e-12
    elseif s.recompute ~= "none" then out.either[part], w = w, 1e-12 end
    out.forward[part], out.backward_input[part], out.backward_weight[part] = f, i, w
    first = last + 1
  end
  return out
end

--- Returns costs of which each is the lesser one of two.
function passes.cheaper(a, b)
  local out = {}
  for kind, list in pairs(a) do
    out[kind] = {}
    for part, seconds in ipairs(list) do out[kind][part] = math.min(seconds, b[kind][part]) end
  end
  return out
end

-- The parts of each rank of a pipeline.
local function held_by(s)
  local p = s.pipeline
  return p.schedule == "zb-v" and geometry.v_shaped(p.size, p.chunks) or geometry.looped(p.size, p.chunks)
end

-- Rank r cannot begin before part 1 to r - 1 have passed a micro-batch; and what it has done last goes back through
-- these parts: its whole backward passes, or the gradients of inputs (the gradients of weights may come later).
local function least_of(s, costs, parts)
  local f, i, w, m = costs.forward, costs.backward_input, costs.backward_weight, s.micro
  local most, before, after, heaviest, longest = 0, 0, 0, 1, 0
  for r, held in ipairs(parts) do
    local work, inputs = 0, 0
    for _, part in ipairs(held) do
      work, inputs = work + m * (f[part] + i[part] + w[part] + costs.either[part]), inputs + m * (f[part] + i[part])
    end
    if work > longest then heaviest, longest = r, work end
    if passes.whole(s) then most = math.max(most, before + work + after)
    else most = math.max(most, before + work, s.pipeline.chunks == 1 and before + inputs + after or 0) end
    before, after = before + f[r], after + i[r] + (passes.whole(s) and w[r] or 0)
  end
  return most, heaviest
end

--- Returns the seconds that pass before a rank of a pipeline (from 1) can begin its first pass, and those that pass
-- behind its last one, at least: what ranks before it must do with one micro-batch.
function passes.around(s, costs, stage)
  local before, after, whole = 0, 0, passes.whole(s)
  for r = 1, stage - 1 do
    before = before + costs.forward[r]
    after = after + (whole and costs.backward_input[r] + costs.backward_weight[r] or 0)
  end
  return before, after
end

--- Returns the seconds that a rank of a pipeline (from 1) works for a micro-batch.
function passes.of_stage(s, costs, stage)
  local seconds = 0
  for _, part in ipairs(s.pipeline.size > 1 and held_by(s)[stage] or { 1 }) do
    seconds = seconds + costs.forward[part] + costs.backward_input[part] + costs.backward_weight[part]
      + costs.either[part]
  end
  return seconds
end

--- Returns the seconds of the passes of a step at least, and the rank of the pipeline (from 1) that works longest.
function passes.least(s, costs)
  local most, heaviest = least_of(s, costs, s.pipeline.size > 1 and held_by(s) or { { 1 } })
  return s.accumulation * most, heaviest
end

--- Returns the seconds that the rank which works longest works in the passes of a step.
function passes.longest(s, costs)
  local most = 0
  for stage = 1, s.pipeline.size do most = math.max(most, passes.of_stage(s, costs, stage)) end
  return s.accumulation * s.micro * most
end

-- When the last pass that makes gradients of weights begins, by part.
local function last_gradients(schedule, begins)
  local out = {}
  for r, actions in ipairs(schedule.actions) do
    for k, action in ipairs(actions) do
      if action[1] == "backward" or action[1] == "backward_weight" then
        local part = schedule.parts[r][action[3]]
        out[part] = math.max(out[part] or 0, begins[r][k])
      end
    end
  end
  return out
end

--- Returns { time, last = by part: when the last pass that makes gradients of its weights begins } of a batch.
-- schedule: that of space.schedule; nil without a pipeline.
function passes.played(s, costs, schedule)
  if not schedule then
    local f, b = costs.forward[1], costs.backward_input[1] + costs.backward_weight[1]
    return { time = s.micro * (f + b), last = { (s.micro - 1) * (f + b) + f } }
  end
  local found = pipelines.simulate(schedule, { forward = costs.forward, backward_input = costs.backward_input,
    backward_weight = costs.backward_weight })
  local least = least_of(s, costs, held_by(s)) -- with what may run in either half
  return { time = math.max(found.time, least), last = last_gradients(schedule, found.begins) }
end

--- Returns the seconds of a step whose gradients are summed after the last pass that adds to them: sums(part) says how
-- long that takes.
function passes.with_sums(s, played, sums)
  local most = played.time
  for part, at in ipairs(played.last) do most = math.max(most, at + sums(part)) end
  return (s.accumulation - 1) * played.time + most
end

--- Returns how many forward passes each rank makes before its first backward pass: by rank, by chunk.
function passes.first_forwards(schedule)
  local out = {}
  for r, actions in ipairs(schedule.actions) do
    local counts = {}
    for chunk = 1, schedule.chunks do counts[chunk] = 0 end
    for _, action in ipairs(actions) do
      if action[1] ~= "forward" then break end
      counts[action[3]] = counts[action[3]] + 1
    end
    out[r] = counts
  end
  return out
end

return passes
