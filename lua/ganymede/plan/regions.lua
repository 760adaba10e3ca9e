--- check --regions: what runs again in backward for recompute = { memory = BYTES }.
--
--     local found = regions(config, given, steps)     -- { setting, said (list of lines), stages (a row for each) }
--
-- A step where nothing runs again is rehearsed in this process, by steps(config, notes); those of other choices in
-- processes of their own. In a pipeline each stage has a chain of its own, the sections of its parts, and holds as many
-- micro-batches as its schedule says (ganymede.plan.stages). A stage is rehearsed as its first rank, in a process of
-- its own unless given.rank names the rank.
-- @module ganymede.plan.regions
local context = require "ganymede.job.context"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local literal = require "ganymede.base.literal"
local machine = require "ganymede.base.machine"
local parallel = require "ganymede.job.parallel"
local recompute = require "ganymede.recompute"
local rehearsal = require "ganymede.job.rehearsal"
local stages = require "ganymede.plan.stages"

-- ---------------------------------------------------------------- one rank

-- The sections of the parts that a stage holds, in order; what a part is given, the schedule holds anyway.
local function chain_of_stage(chain, stage)
  local out, held = {}, { unpack(stage.parts) }
  table.sort(held)
  for _, part in ipairs(held) do
    local first, last = unpack(stage.bounds[part])
    for i = first, last do
      local own = {}
      for key, value in pairs(chain[i]) do own[key] = value end
      own.section, own.ends = i, i == last
      if i == first then own.input, own.passing = 0, math.max(0, own.passing - chain[i].input) end
      out[#out + 1] = own
    end
  end
  return out
end

-- How many micro-batches a stage holds at most: their activations in units of those of one.
local function copies_of(engine, notes)
  local report = stages.report(engine, notes)
  if not report then return 1 end
  local stage, one = report.by_stage[engine.stage.rank + 1], 0
  for _, part in ipairs(stage.parts) do one = one + (report.parts[part].saved_bytes or 0) end
  return one > 0 and math.max(1, stage.held_bytes / one) or 1
end

local function measured_by(steps, config)
  local notes = { wants_chain = true }
  local trainer, rank = steps(config, notes)
  local engine, chain = trainer.engine, notes.chain
  if engine.stage.n_parts > 1 then chain = chain_of_stage(chain, engine.stage) end
  return { chain = chain, live = notes.live, peak = rank.peak_bytes, flops = rank.flops,
    copies = copies_of(engine, notes) }
end

-- -> a row: setting, said, peak_bytes, flops_per_step, predicted_bytes (by the chain; nil where nothing runs again).
local function of_rank(memory, given, config, steps)
  local measured = measured_by(steps, config)
  local function rehearsed(setting)
    local sets = { unpack(given.set or {}) }
    sets[#sets + 1] = "recompute=" .. literal.show(setting)
    local found, failed = rehearsal { recipe = given.recipe, ranks = given.ranks, rank = given.rank, set = sets,
      seed = given.seed, device = given.device }
    if not found then failure(failed.code, "recompute.memory: %s", failed.text) end
    return found.totals.peak_bytes, found.totals.flops_per_step
  end
  local found, why = recompute.choose(measured, rehearsed, memory)
  if not found then failure(2, "%s", recompute.too_little(memory, why)) end
  return { setting = found.setting, said = recompute.said(measured.chain, found, memory), peak_bytes = found.peak,
    flops_per_step = found.flops, whole_flops_per_step = found.whole, predicted_bytes = found.predicted }
end

-- ---------------------------------------------------------------- all stages

-- The first rank of each stage.
local function ranks_of_stages(plan, world)
  local out = {}
  for rank = 0, world - 1 do
    local stage = context.new(plan, rank).coordinate.pipeline or 0
    out[stage + 1] = out[stage + 1] or rank
  end
  return out
end

local function joined(rows)
  local texts = {}
  for _, row in ipairs(rows) do texts[#texts + 1] = row.setting and row.setting.sections or nil end
  return #texts > 0 and { sections = table.concat(texts, ", ") } or false
end

local function of_stages(given, ranks)
  local rows, said = json.array(), json.array()
  for stage, rank in ipairs(ranks) do
    local found, failed = rehearsal { recipe = given.recipe, ranks = given.ranks, rank = rank, set = given.set,
      seed = given.seed, device = given.device, regions = true }
    if not found then failure(failed.code, "stage %d: %s", stage - 1, failed.text) end
    rows[stage] = found.regions.stages[1]
    said[stage] = ("stage %d: %s"):format(stage - 1, rows[stage].said)
  end
  return { setting = joined(rows), said = said, stages = rows }
end

--- given: recipe, ranks, rank (nil: all stages), set, seed. steps(config, notes) -> trainer, figures of the rank.
return function(config, given, steps)
  local memory = machine.bytes_of(tostring((config.recompute or {}).memory or 0))
  if not memory then failure(2, "--regions: the recipe has no recompute = { memory = BYTES }") end
  local world = given.ranks or 1
  local plan = world > 1 and not given.rank and parallel.resolve(config.parallel, world)
  if plan and plan.pipeline > 1 then return of_stages(given, ranks_of_stages(plan, world)) end
  local row = of_rank(memory, given, config, steps)
  return { setting = row.setting, said = json.array { row.said }, stages = json.array { row } }
end
