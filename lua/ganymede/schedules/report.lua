--- Compares what pipeline schedules cost: pictures, and a table with bubble, micro-batches held and messages sent.
--
--     local found = report { schedules = { "1f1b", "zb-h1" }, stages = 4, micro_batches = 8 }
--     print(found.text)                                -- pictures and a table, in lines of at most `width` columns
--     found[1].bubble, found[1].live, found[1].schedule, found[1].simulation
--
-- The entry of a schedule that cannot have these sizes has only its name and `refused`, the reason.
-- @module ganymede.schedules.report
local draw = require "ganymede.schedules.draw"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local pipeline = require "ganymede.schedules.pipeline"
local registry = require "ganymede.base.registry"

local declared = {
  schedules = { type = "list", doc = "the list of names in registry.pipeline_schedules" },
  stages = { type = "integer", min = 1, doc = "the number of ranks along the pipeline axis" },
  micro_batches = { type = "integer", min = 1, doc = "the number of micro-batches in a batch" },
  chunks = { type = "integer", min = 1, optional = true,
    doc = "the number of chunks on each rank, for schedules that can have several" },
  costs = { type = "table", default = {}, doc = "the costs of actions, as ganymede.schedules.simulate takes them" },
  width = { type = "integer", min = 40, default = 120,
    doc = "the number of columns after which lines of pictures are cut" },
}

local function messages(schedule)
  local most = 0
  for _, actions in ipairs(schedule.actions) do
    local sent = 0
    for _, action in ipairs(actions) do sent = sent + (action[1] == "send" and 1 or 0) end
    most = math.max(most, sent)
  end
  return most
end

local function entry(name, opt)
  local allowed = registry.pipeline_schedules:has(name) and registry.pipeline_schedules:get(name).chunks
  local chunks = allowed and allowed.max ~= 1 and opt.chunks or nil -- 1F1B and the like have one chunk
  local ok, schedule = failure.try(pipeline.build, name, { stages = opt.stages, micro_batches = opt.micro_batches,
    chunks = chunks }, 0)
  if not ok then return { name = name, refused = schedule } end
  local simulation = pipeline.simulate(schedule, opt.costs)
  return { name = name, schedule = schedule, simulation = simulation, bubble = simulation.bubble,
    bubble_with_barrier = simulation.bubble_with_barrier, live = math.max(unpack(simulation.live)),
    messages = messages(schedule) }
end

local function row(e)
  if e.refused then return ("%-14s %s"):format(e.name, e.refused) end
  return ("%-14s %6d   %8s   %8s   %8.4g   %8d"):format(e.name, e.schedule.chunks, draw.percent(e.bubble),
    draw.percent(e.bubble_with_barrier), e.live, e.messages)
end

--- given: schedules, stages, micro_batches, chunks, costs, width. Returns the list of entries, which has a field
-- `text`.
return function(given)
  local opt = options.check("schedules.report", declared, given, 2)
  local found, pictures = {}, {}
  local rows = { ("%-14s %6s   %8s   %8s   %8s   %8s"):format("schedule", "chunks", "bubble", "barrier", "held",
    "messages") }
  for i, name in ipairs(opt.schedules) do
    local e = entry(name, opt)
    if e.schedule then pictures[#pictures + 1] = draw.text(e.schedule, e.simulation, opt.width) .. "\n" end
    found[i], rows[#rows + 1] = e, row(e)
  end
  rows[#rows + 1] = "bubble: part of the ideal time that a step loses; barrier: the same if ranks wait between steps\n"
    .. "held: the most micro-batches whose activations a rank holds; messages: the most that a rank sends in a step"
  found.text = table.concat(pictures, "\n") .. (#pictures > 0 and "\n" or "") .. table.concat(rows, "\n")
  return found
end
