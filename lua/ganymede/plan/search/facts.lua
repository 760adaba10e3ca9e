--- What a search knows about a recipe before it tries anything: a few rehearsals of a step on one rank.
--
--     local found = facts.of({ recipe = "r.lua", set = {}, seed = nil }, machine, {})
--
--   samples, accumulation, pieces   of a step of the recipe; its batches; its batches times their micro-batches
--   heads, kv_heads, experts        of the model, nil where the settings do not say
--   fixed_batches                   why the batches of a step must stay, in words; nil: they need not
--   sections                        how many, nil: the model says none; bounds(split, parts): where they are cut
--   section_list, short             of all sections { name, flops, parameters }; of a model of equal blocks that is
--                                   short: { sets, sections, map = of each section the one that it is like }, or nil
--   weights                         { bytes of parameters, of gradients, of optimizer states }, of expert_weights too;
--                                   each: the elements of each of the first, bytes_of_element: of a parameter
--   blocks                          { count, width, tokens, keys, bytes } of transformer blocks; nil: it has none
--   floors                          "none", "attention", "block" or "own" -> { passes, update: seconds of all ranks
--                                   together at least; states: of these, the update of parameters and states, which
--                                   ranks that hold copies repeat; ops: of the passes of a piece at least; sections:
--                                   by_section }
-- The trap: the model of a recipe must be buildable on one rank of the meta device, which has any memory.
-- @module ganymede.plan.search.facts
local dtypes = require "ganymede.base.dtypes"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local partition = require "ganymede.pipeline.partition"
local progress_of = require "ganymede.plan.search.progress"
local rates = require "ganymede.plan.search.rates"
local registry = require "ganymede.base.registry"
local rehearsal = require "ganymede.job.rehearsal"

local facts = {}

-- ---------------------------------------------------------------- rehearsals on one rank

local function joined(list, more)
  local out = { unpack(list) }
  for _, text in ipairs(more) do out[#out + 1] = text end
  return out
end

local function what_for() return "the recipe's step is still rehearsed on one rank" end

-- Rehearses the recipe on one rank with these settings -> what check finds.
local function checked(given, sets, step_file)
  given.progress:beat(what_for)
  return rehearsal { recipe = given.recipe, set = joined(given.set or {}, sets), seed = given.seed,
    step_file = step_file, device = given.device }
end

-- The same -> what check finds, and the events of its step.
local function rehearsed(given, sets)
  local path = os.tmpname()
  return failure.protect(function() os.remove(path) end, function()
    local found, failed = checked(given, sets, path)
    if not found then return nil, failed end
    return found, core.step_read(path).events
  end)
end

local function must(found, failed)
  if not found then failure(failed.code, "on one rank: %s", failed.text) end
  return found, failed
end

local function values_of(found)
  local out = {}
  for _, row in ipairs(found.settings) do out[row.key] = row.value end
  return out
end

-- What only schedules of pipelines take, in order.
local function pipeline_keys()
  local known, out = registry.schedules:get("NonPipelineSchedule").options, {}
  for key in pairs(registry.schedules:get("InterleavedPipelineSchedule").options) do
    if not known[key] then out[#out + 1] = key end
  end
  for _, key in ipairs { "order", "num_micro_batches", "scatter_gather_tensors" } do out[#out + 1] = key end
  table.sort(out)
  return out
end

-- Rehearses the recipe without parallelism -> what check finds, and whether the recipe's schedule makes something else
-- of each batch (data_process_func), which stays. given.alone: the settings by which it does so, without micro-batches.
local function without_pipeline(given)
  local sets, plain = {}, { "parallel={}", "schedule=nil" }
  for i, key in ipairs(pipeline_keys()) do sets[i] = ("schedule.%s=nil"):format(key) end
  local function keeping(kind) return joined({ "parallel={}", "schedule.type=" .. kind }, sets) end
  -- a recipe with micro-batches has a schedule that knows them
  local found = checked(given, keeping "NonPipelineSchedule") or checked(given, keeping "PipelineSchedule")
  local own = found and values_of(found)["schedule.data_process_func"] ~= nil or false
  given.alone = joined(own and keeping "NonPipelineSchedule" or plain, { "num_microbatches=nil" })
  return found or must(checked(given, plain)), own
end

-- ---------------------------------------------------------------- what they say

-- Seconds of an op at least, of all its pieces on all ranks together.
local function seconds_of(m, e)
  return e.products > 0 and e.products / rates.most_products(m, e.dtype or "", e.size) or rates.least_moves(m, e)
end

-- The place of the last op of a backward pass.
local function last_gradient(events)
  local last = 0
  for i, e in ipairs(events) do last = e.kind == "op" and e.name:find "_grad$" and i or last end
  return last
end

-- Seconds of a step at least, on ranks that share it evenly: of its passes (up to the last product; products, and ops
-- without), and of what follows, of which the update of parameters and states is a part; and the ops of the passes.
local function floors(m, events)
  local last, backward = rates.last_product(events), last_gradient(events)
  local out = { passes = 0, update = 0, states = 0, ops = 0, products = 0 }
  for i, e in ipairs(events) do
    if e.kind == "op" then
      local where = i <= last and "passes" or "update"
      out[where] = out[where] + seconds_of(m, e)
      if i > last and i > backward then out.states = out.states + seconds_of(m, e) end
      out.ops, out.products = out.ops + (i <= last and 1 or 0), out.products + e.products
    end
  end
  return out
end

-- Path of a module -> the section that it is in.
local function section_of(sections, path)
  for i, section in ipairs(sections) do
    for name in section.name:gmatch "[^, ]+" do
      if path == name or path:sub(1, #name + 1) == name .. "." then return i end
    end
  end
end

-- What a pass of a section takes of all ranks at least: { forward, input, weight }, in seconds of a whole step and in
-- ops of one piece (events, few: of a step, and of a step of one sample). Backward begins with the first op whose name
-- ends with _grad. In the last section, the loss may make gradients already: of its products before that a third is
-- forward in any case, and all else counts as the latest pass. With recomputation the gradient of a weight in another
-- section may move into the first half: it is left out.
local function by_section(m, events, few, sections, recomputes)
  local out = {}
  for i = 1, #sections do
    out[i] = { forward = 0, input = 0, weight = 0, ops = { forward = 0, input = 0, weight = 0 } }
  end
  local function each(list, fn)
    local backward = false
    for i = 1, rates.last_product(list) do
      local e = list[i]
      backward = backward or e.kind == "op" and e.name:find "_grad$" ~= nil
      local at = e.kind == "op" and e.path and section_of(sections, e.path)
      local kind = not backward and "forward" or at and e.name:find "weight_grad$" and "weight" or "input"
      if at and not (kind == "weight" and recomputes) then fn(out[at], kind, e, at == #sections and not backward) end
    end
  end
  each(events, function(section, kind, e, is_loss)
    local seconds, part = seconds_of(m, e), is_loss and (e.products > 0 and 1 / 3 or 0) or 1
    section[kind] = section[kind] + seconds * part
    section.weight = section.weight + seconds * (1 - part)
  end)
  each(few, function(section, kind, _, is_loss)
    kind = is_loss and "weight" or kind
    section.ops[kind] = section.ops[kind] + 1
  end)
  return out
end

local function is_of_experts(p, experts)
  return experts and #p.shape > 1 and p.shape[1] == experts
end

-- Bytes of what rests on a rank: of all parameters but those of experts, and of experts.
local function weights_of(found, experts)
  local all, of_experts, each = 0, 0, {}
  for _, p in ipairs(found.parameters) do
    if not p.tied then
      all = all + p.count
      if is_of_experts(p, experts) then of_experts = of_experts + p.count else each[#each + 1] = p.count end
    end
  end
  local t, part = found.totals, all > 0 and of_experts / all or 0
  local function split(share)
    return { parameters = t.parameter_bytes * share, gradients = t.gradient_bytes * share,
      states = t.optimizer_bytes * share }
  end
  local weights = split(1 - part)
  weights.each, weights.bytes_of_element = each, all > 0 and t.parameter_bytes / all or 0
  return weights, split(part)
end

local function sections_of(given, serial)
  local found, failed = rehearsal { recipe = given.recipe, set = joined(given.set or {}, serial), seed = given.seed,
    sections = true, device = given.device }
  if not found and (failed.code == 130 or failed.code == 143) then failure(failed.code, "%s", failed.text) end
  return found and #found.sections > 1 and found.sections or nil
end

-- Where a split puts the borders of parts, as the list of their last sections.
local function bounds_of(sections, split, parts)
  if parts > #sections then return nil end
  if type(split) == "table" then
    local ends, last = {}, 0
    for i, count in ipairs(split) do ends[i], last = last + count, last + count end
    return #ends == parts and last == #sections and ends or nil
  end
  local weights = {}
  for i, section in ipairs(sections) do
    weights[i] = split == "flops" and math.max(section.flops, 1) or section.parameters
  end
  local list = split == "uniform" and partition.uniform(#sections, parts) or partition.balanced(weights, parts)
  local ends = {}
  for i, bound in ipairs(list) do ends[i] = bound[2] end
  return ends
end

-- Why another number of batches would be another training.
local function batches_that_stay(values)
  if values["data.drop_last"] == true then
    return "with data.drop_last, larger batches would leave out other samples"
  end
  for key in pairs(values) do
    if key:find "^data%.sampler" then return "the recipe has a sampler, which may choose by batches" end
  end
end

-- Of a model made of transformer blocks: how many, their width, tokens of a sample, the share of key heads; nil:
-- unknown.
local function blocks_of(values, found)
  local depth, width, heads = values["model.depth"], values["model.width"], found.heads
  if not depth or not width or not heads then return nil end
  local image, patch = values["model.image_size"], values["model.patch_size"]
  local tokens = values["model.sequence_length"] or type(image) == "number" and type(patch) == "number"
    and (image / patch) ^ (values["model.space"] or 2)
  local keys = values["model.window"] and 0 or (found.kv_heads or heads) / heads
  return tokens and { count = depth, width = width, tokens = tokens, keys = keys, bytes = dtypes.bytes[found.dtype] }
end

-- ---------------------------------------------------------------- a short model

local function near(a, b) return math.abs(a - b) <= 1e-9 * math.max(a, b) end

-- The places in a short list of sections that the sections of a model are like: what stands before its blocks, two
-- periods of blocks, what stands after them; the blocks from the second period on are like those of the second. nil:
-- the lists are no such thing.
local function map_of(all, short, depth, period)
  local more = depth - 2 * period
  if more <= 0 or depth % period ~= 0 or #all - #short ~= more then return nil end
  local map, before = {}, 0
  while before < #short and all[before + 1].name == short[before + 1].name do before = before + 1 end
  for i = 1, #all do
    map[i] = i <= before and i or i <= before + more and before - period + 1 + (i - before - 1) % period or i - more
    local own, like = all[i], short[map[i]]
    if not like or not near(own.flops, like.flops) or own.parameters ~= like.parameters then return nil end
  end
  return map
end

-- Whether a record of the short model says of each section what that of the whole one says.
local function says_alike(m, events, few, all, short, map)
  local whole, part = by_section(m, events, events, all, false), by_section(m, few, few, short, false)
  for i, at in ipairs(map) do
    for _, kind in ipairs { "forward", "input", "weight" } do
      if not near(whole[i][kind], part[at][kind]) or whole[i].ops[kind] ~= part[at].ops[kind] then return false end
    end
  end
  return true
end

-- A model of many equal blocks, with two of them -> { sets, sections, map }; nil: it is not such a model. Where every
-- n-th block has experts, with 2 n of them. events: of a step of one sample of the whole model, which the short one
-- must repeat section by section.
local function short_of(given, m, serial, out, events)
  local depth, all = out.blocks and out.blocks.count, out.section_list
  local period = out.experts and out.values["model.moe.every"] or 1
  if not depth or not all or type(period) ~= "number" then return nil end
  local sets = { ("model.depth=%d"):format(2 * period) }
  local short = sections_of(given, joined(given.alone, sets))
  local map = short and map_of(all, short, depth, period)
  if not map then return nil end
  local found, few = rehearsed(given, joined(joined(serial, { "gradient_accumulation=1", "data.batch_size=1" }), sets))
  if not found or not says_alike(m, events, few, all, short, map) then return nil end
  return { sets = sets, sections = short, map = map }
end

-- The floors of a step by what runs again. The ops of a step of one sample are the fewest that a piece can have.
local function add_floors(out, given, m, serial, keep, sections)
  local one = { "gradient_accumulation=1", "data.batch_size=1" }
  local names = keep.recompute == "own" and { "own" } or { "none", "attention", "block" }
  for _, name in ipairs(names) do
    local sets = name == "own" and {} or { "recompute=" .. (name == "none" and "nil" or name) }
    local found, events = rehearsed(given, joined(serial, sets))
    local floor = found and floors(m, events)
    if floor and (name == names[1] or floor.products > out.floors[names[1]].products) then
      local small, few = rehearsed(given, joined(joined(serial, sets), one))
      floor.ops = small and floors(m, few).ops or 0
      floor.sections = small and sections and by_section(m, events, few, sections, name ~= "none")
      if small and name == "none" then out.short = short_of(given, m, joined(serial, sets), out, few) end
      out.floors[name] = floor
    end
  end
end

--- Returns the facts. given: recipe, set, seed; m: the machine; keep: the parts that are kept (ganymede.plan.search);
-- progress: of ganymede.plan.search.progress; nil: nothing is said.
function facts.of(given, m, keep, progress)
  given = { recipe = given.recipe, set = given.set, seed = given.seed, device = rehearsal.device_of(m.device),
    progress = progress or progress_of() }
  local plain, own_schedule = without_pipeline(given) -- in the pieces of the recipe
  local values = values_of(plain)
  local accumulation = values.gradient_accumulation or 1
  local samples = values["data.batch_size"] * accumulation
  local serial = joined(given.alone, { "gradient_accumulation=1", ("data.batch_size=%d"):format(samples) })
  if keep.zero ~= "own" then serial[#serial + 1] = "zero=nil" end
  local found = must(checked(given, joined(serial, keep.recompute == "own" and {} or { "recompute=nil" })))
  if found.totals.offloaded_bytes then
    failure(2, "a plan does not know disks and host memory yet: leave out `offload`")
  end
  local experts = values["model.moe.experts"]
  local out = { samples = samples, accumulation = accumulation,
    pieces = accumulation * (values.num_microbatches or 1),
    heads = values["model.heads"], kv_heads = values["model.kv_heads"], experts = experts,
    fixed_batches = batches_that_stay(values), values = values, dtype = found.dtype, totals = found.totals,
    floors = {}, own = { schedule = own_schedule }, more = keep.more, stored = keep.stored }
  out.blocks = blocks_of(values, out)
  out.weights, out.expert_weights = weights_of(found, experts)
  local sections = sections_of(given, given.alone)
  out.sections, out.section_list = sections and #sections, sections
  add_floors(out, given, m, serial, keep, sections)
  local ends = {}
  function out.bounds(split, parts)
    if type(split) == "table" or not sections then return sections and bounds_of(sections, split, parts) end
    local key = split .. parts
    if ends[key] == nil then ends[key] = bounds_of(sections, split, parts) or false end
    return ends[key] or nil
  end
  return out
end

return facts
