--- Pipeline schedules as data: the order of the actions of each rank, and the messages between ranks.
--
--     local pipeline = require "ganymede.schedules.pipeline"
--     local schedule = pipeline.build("1f1b", { stages = 4, micro_batches = 8 })
--
-- A schedule is a plain table. It is a pure function of its name, the sizes and its options, so every rank has the
-- same:
--   name, stages, micro_batches, chunks, forward_only (evaluation and prediction: no backward passes; else false)
--   parts[rank + 1][chunk]   the part of the model that the rank holds as that chunk: 1 .. stages * chunks, in order
--                            of the forward pass. Neighbours may lie on one rank (ZB-V); then nothing is sent
--   actions[rank + 1]        what the rank does in one step, in order. Ranks are places along the pipeline axis, from
--                            0; micro-batches and chunks count from 1. An action is one of
--     { "forward", micro_batch, chunk }           reads the activation of the part before (the first part: the input)
--     { "backward", micro_batch, chunk }          gradients of input and weights; reads the gradient of the part after
--     { "backward_input", micro_batch, chunk }    the gradient of the input only
--     { "backward_weight", micro_batch, chunk }   later, the rest of that backward pass; activations are then freed
--     { "send", "activation" or "gradient", micro_batch, chunk, peer }      chunk: this rank's, which made it
--     { "receive", "activation" or "gradient", micro_batch, chunk, peer }   chunk: this rank's, which reads it
-- An executor does exactly the actions of a rank, in order. It may do transfers in either of these ways;
-- schedules.check proves both:
--   blocking       a send returns when its receive is reached, a receive when the message is there
--   non-blocking   a send is begun and goes on by itself; a receive is posted, and the computing that reads it waits.
--                  Receives from one peer must be posted in the order of the list; they may be posted earlier
-- The k-th receive of rank b from rank a takes the k-th send from a to b, so messages need no further name.
--
-- Users may register orders of their own. One pass adds the transfers (schedules.transfers), and the same checker
-- checks the result:
--
--     registry.pipeline_schedules:register("mine", {
--       order = function(stages, micro_batches, chunks, opt) return actions, parts end,
--       chunks = { default = 1, min = 1, max = 1 }, options = { ... as ganymede.base.options ... }, doc = "a sentence",
--     })
--
-- `order` is a pure function. It returns lists of computing actions, and the parts if they do not loop
-- (geometry.looped). For sizes that it cannot serve it calls error(text, 0). simulate.lua computes times and memory,
-- draw.lua draws pictures.
-- @module ganymede.schedules.pipeline
local check = require "ganymede.schedules.check"
local failure = require "ganymede.base.failure"
local geometry = require "ganymede.job.geometry"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local transfers = require "ganymede.schedules.transfers"

local pipeline = { check = check, simulate = require "ganymede.schedules.simulate" }

local shape_options = {
  stages = { type = "integer", min = 1, max = 2 ^ 20, doc = "the number of ranks along the pipeline axis" },
  micro_batches = { type = "integer", min = 1, max = 2 ^ 20, doc = "the number of micro-batches in a batch" },
  chunks = { type = "integer", min = 1, optional = true,
    doc = "the number of chunks of the model that a rank holds; default: that of the schedule" },
  forward_only = { type = "boolean", default = false,
    doc = "whether there are only the forward passes, in the order of the schedule" },
  options = { type = "table", default = {}, doc = "the options of the order itself" },
}

local function above(level) return level > 0 and level + 1 or 0 end

-- Returns the number of chunks: the default of the schedule, or the number asked for if the schedule allows it.
local function chunks_of(name, definition, asked, level)
  local allowed = definition.chunks or { default = 1, min = 1 }
  if asked == nil then return allowed.default or allowed.min or 1 end
  local why = options.problem({ type = "integer", min = allowed.min or 1, max = allowed.max }, asked)
  if why then error(("%s: chunks %s"):format(name, why), above(level)) end
  return asked
end

local function find(kind, level)
  if type(kind) == "table" and type(kind.order) == "function" and kind.name then return kind, kind.name end
  local why = registry.pipeline_schedules:problem(kind)
  if why then error(why, above(level)) end
  return registry.pipeline_schedules:get(kind), kind
end

-- Returns the forward passes alone. They keep their order, so they can run if the whole schedule can.
local function forward_passes(actions)
  local lists = {}
  for i, list in ipairs(actions) do
    lists[i] = {}
    for _, action in ipairs(list) do
      if action[1] == "forward" then table.insert(lists[i], action) end
    end
  end
  return lists
end

-- Returns the result of `order` as a schedule that has computing only.
local function ordered(name, definition, shape, opt, level)
  local ok, actions, parts = failure.try(definition.order, shape.stages, shape.micro_batches, shape.chunks, opt)
  if not ok then error(("%s: %s"):format(name, tostring(actions)), above(level)) end
  return { name = name, stages = shape.stages, micro_batches = shape.micro_batches, chunks = shape.chunks,
    forward_only = false, parts = parts or geometry.looped(shape.stages, shape.chunks), actions = actions }
end

local function must_pass(schedule, opt, level)
  local ok, problem = check(schedule, opt)
  if not ok then error(("the schedule cannot run: %s"):format(problem.message), above(level)) end
end

-- Returns the computing of a schedule of this shape, and the checked shape. level: of error().
local function computing(kind, shape, level)
  local definition, name = find(kind, level)
  shape = options.check("pipeline.build", shape_options, shape, level)
  shape.chunks = chunks_of(name, definition, shape.chunks, level)
  local opt = options.check(name, definition.options or {}, shape.options, level)
  return ordered(name, definition, shape, opt, level), shape
end

--- Returns what pipeline.build does, of the same arguments, but with computing only and not proven: for those who play
-- many schedules (ganymede.plan.search). Times are those of the whole schedule where transfers take none.
function pipeline.ordered(kind, shape, level) return (computing(kind, shape, above(above(level or 1)))) end

--- Builds the schedule of a registered name (or of a table like the registered ones, with a `name`), adds the
-- transfers, and proves it. shape = { stages, micro_batches, chunks (default: that of the schedule), forward_only
-- (false), options }. If the schedule cannot serve the shape or is wrong, it raises an error at the line that `level`
-- says (as error() counts levels where build is called; default 1, the caller's; 0: no line).
function pipeline.build(kind, shape, level)
  level = above(level or 1)
  local schedule
  schedule, shape = computing(kind, shape, above(level))
  must_pass(schedule, { transfers = false }, level)
  if shape.forward_only then schedule.forward_only, schedule.actions = true, forward_passes(schedule.actions) end
  schedule.actions = transfers(schedule)
  must_pass(schedule, nil, level)
  return schedule
end

for _, entry in ipairs {
  { "gpipe", "gpipe" }, { "1f1b", "one_f_one_b" }, { "interleaved", "interleaved" },
  { "zb-h1", "zb_h1" }, { "zb-h2", "zb_h2" }, { "zb-v", "zb_v" },
} do
  registry.pipeline_schedules:register(entry[1], require("ganymede.schedules." .. entry[2]))
end

return pipeline
