--- Generation on the stages of a pipeline.
--
-- The prompts are divided into as many groups as there are stages, or fewer. A group is a micro-batch of the pipeline:
-- each stage keeps the keys and values of its own layers for every group. In a round all groups take one step, and a
-- stage that is done with its part of a round begins the next one. The stage of the last part chooses the tokens of a
-- group and sends them to the other stages, which receive them before they compute that group again. So all stages
-- work at the same time, and all know all tokens.
--
-- All ranks must take the same groups into a round. What every rank knows when a round begins are the tokens of the
-- round before the last one: a group that was done by then is left out, and its last step is in vain.
-- @module ganymede.generation.stages
local caches = require "ganymede.nn.cache"
local comm = require "ganymede.job.comm"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local geometry = require "ganymede.job.geometry"
local logits = require "ganymede.generation.logits"
local module = require "ganymede.nn.module"
local packing = require "ganymede.pipeline.packing"
local prompts = require "ganymede.generation.prompts"
local rotary = require "ganymede.nn.rotary"
local schedules = require "ganymede.schedules.pipeline_schedule"
local sections = require "ganymede.nn.sections"
local stage_of = require "ganymede.pipeline.stage"
local tensors = require "ganymede.tensor"
local texts = require "ganymede.generation.texts"

local stages = {}

-- ---------------------------------------------------------------- the stage of this rank

-- Refuses stages on which generation cannot run.
local function checked(stage)
  if stage.own then
    failure(2, "generate: the stages of this model were built by the recipe, one by one; generation needs a whole "
      .. "model that is cut by its sections")
  end
  if stage.chunks > 1 then
    failure(2, "generate: each stage holds %d parts of the model; generation needs one part on each (chunks = 1)",
      stage.chunks)
  end
  return stage
end

--- The stage of this rank: of a model that is cut, or of one that is cut here; nil without a pipeline. A model that is
-- cut here must not have made its parameters yet, and stays cut.
function stages.of(model)
  local now = context.current()
  local count = now.plan.pipeline
  if count == 1 then return nil end
  local stage = stage_of.of(model)
  if stage then return checked(stage) end
  return stage_of.split(model, { stages = count, rank = now.coordinate.pipeline or 0, parts = geometry.looped(count, 1),
    split = type(now.plan.split) ~= "string" and now.plan.split or nil })
end

--- Refuses prompts that may have to begin anew (ganymede.nn.rotary): stages keep what they have seen of them.
function stages.check_growth(model, opt, rows)
  local border = rotary.border(model)
  for _, row in ipairs(rows) do
    local most = math.min(#row.ids + opt.max_tokens - 1, opt.positions or math.huge)
    if rotary.crosses(border, #row.ids, most) then
      error(("generate: prompt %d has %d tokens and may grow to %d; %s turns texts of more than %d positions "
        .. "otherwise, which stages of a pipeline cannot change on the way; give max_tokens = %d at most, or generate "
        .. "without parallel.pipeline"):format(row.number, #row.ids, most,
        border.each and "a dynamic base" or "LongRoPE", border.positions,
        math.max(1, border.positions - #row.ids + 1)), 0)
    end
  end
end

-- ---------------------------------------------------------------- groups

-- Rows in groups of nearly equal numbers: list of { rows, kept, ids, step }.
local function groups_of(opt, rows, count)
  local groups, at = {}, 0
  count = math.min(count, #rows)
  for g = 1, count do
    local own = {}
    for i = at + 1, math.floor(g * #rows / count) do own[#own + 1] = rows[i] end
    local ids, starts = prompts.batch(own)
    groups[g] = { rows = own, ids = ids, length = ids:size(2), step = 0, open = true,
      kept = caches.new(starts, ids:size(2) + math.min(opt.max_tokens, 256), opt.positions) }
    at = at + #own
  end
  return groups
end

-- ---------------------------------------------------------------- tokens that travel

-- On the stage of the last part: tells the others.
local function send(run, list)
  local t = tensors.tensor(list, { dtype = "i64" }):keep()
  for place = 0, run.size - 1 do
    if place ~= run.here then
      run.pending[#run.pending + 1] = { t, (comm.send(t, run.group, place, { async = true })) }
    end
  end
  run.sent[#run.sent + 1] = t
end

-- Waits until what was sent has left.
local function settle(run)
  for _, each in ipairs(run.pending) do each[2]:wait() end
  for _, t in ipairs(run.sent) do t:release() end
  run.pending, run.sent = {}, {}
end

local function note(run, group, list)
  group.last = list
  group.open = texts.add(run.opt, group.rows, list, run.ends)
end

-- On the other stages: the tokens that the last step of the group has given.
local function receive(run, group)
  note(run, group, tensors.scope(function()
    local t = tensors.empty({ #group.rows }, { dtype = "i64" })
    return comm.receive(t, run.group, run.last):totable()
  end))
end

-- ---------------------------------------------------------------- one step of a group

-- The scores of the last part, and the tokens by them.
local function finish(run, group, s, ...)
  local model, list = run.stage.model, run.stage.model:section_list()
  local scores = module.call_as(model, logits.from_section, model, list, run.bound[1], s, ...)
  local is_awaited = group.open -- nobody computes this group again, and so receives, if it was done before
  local chosen = logits.choose(run.opt, group.rows, scores)
  note(run, group, chosen)
  if is_awaited then send(run, chosen) end
end

local function part(run, ...)
  return sections.run((run.stage.model:section_list()), run.bound[1], run.bound[2], true, ...)
end

-- A step of s positions of a group: the tensors and the text for the next stage.
local function step(run, group, s, ...)
  local border, text = {}, ""
  if run.is_last then
    caches.with(group.kept, s, finish, run, group, s, ...)
  else
    border, text = packing.pack(caches.with(group.kept, s, module.call_as, run.stage.model, part, run, ...))
  end
  group.step = group.step + 1
  return border, text
end

-- One forward pass of a group on this stage, as core.executor_run asks for it.
local function forward(run, group, list, text)
  if group.step > 0 and not run.is_last then receive(run, group) end
  if not group.open then group.kept:back(1) end -- a step in vain takes no place
  local s = group.step == 0 and group.length or 1
  if run.is_first then return step(run, group, s, group.step == 0 and group.ids or prompts.column(group.last)) end
  return step(run, group, s, packing.unpack(list, text))
end

-- ---------------------------------------------------------------- rounds

-- All groups of a list take a step.
local function round(run, list)
  local signatures = {}
  for m, group in ipairs(list) do
    local first = group.step == 0 -- ranks share the sequence of a prompt, and not that of a token
    signatures[m] = ("generate %d %s"):format(#group.rows, first and "prompts of " .. group.length or "tokens")
  end
  local schedule = run.schedule:order_for(run.size, #list, true)
  core.executor_run(run.executor, {
    actions = schedule.actions[run.here + 1], parts = schedule.parts[run.here + 1], n_parts = run.size,
    micro_batches = #list, chunks = 1, signatures = signatures, forward_only = true, final = false,
    forward = function(m, _, given, text) return forward(run, list[m], given, text) end,
  })
end

-- The groups of the next round. A stage that only receives learns of a group that was done in the round before only
-- when it computes that group again; so the stage of the last part, which knows earlier, counts it as open once more.
local function open_groups(run, groups)
  local list = {}
  for _, group in ipairs(groups) do
    local known = group.open
    if run.is_last then known, group.was_open = group.was_open ~= false, group.open end
    if known then list[#list + 1] = group end
  end
  return list
end

local function rounds(run, groups)
  local middle
  while true do
    local list = open_groups(run, groups)
    if #list == 0 then return middle end
    tensors.scope(round, run, list)
    settle(run)
    middle = middle or core.now()
  end
end

local function new_run(stage, opt, ends)
  local info = comm.info "pipeline"
  local schedule = schedules.PipelineSchedule { num_microbatches = info.size, order = "gpipe" }
  return { stage = stage, opt = opt, ends = ends, group = comm.group "pipeline", size = info.size, here = info.rank,
    last = info.size - 1, is_first = info.rank == 0, is_last = info.rank == info.size - 1, schedule = schedule,
    executor = schedule:new_executor(), bound = stage.bounds[info.rank + 1], pending = {}, sent = {} }
end

--- Runs until all rows are done. Collective. ends: the set of tokens that end a row. Returns seconds of the prompts,
-- seconds of what was added, and the number of steps.
function stages.run(stage, opt, rows, ends)
  local run, began = new_run(stage, opt, ends), core.now()
  local groups = groups_of(opt, rows, run.size)
  local ok, result = xpcall(function() return tensors.no_grad(rounds, run, groups) end, failure.handler)
  for _, group in ipairs(groups) do group.kept:close() end
  if not ok then error(result, 0) end
  local steps = 0
  for _, group in ipairs(groups) do steps = math.max(steps, group.step) end
  return result - began, core.now() - result, steps
end

return stages
