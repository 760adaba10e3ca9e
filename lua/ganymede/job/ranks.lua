--- What ranks tell each other beside tensors: a few numbers a step, texts, and errors that all of them raise.
--
--     local sums = ranks.sum { ranks.part(loss), stop and 1 or 0 }    -- one small all_reduce, the same bits everywhere
--
-- Every function here is collective over all ranks unless it says otherwise: each must call it, in the same order. One
-- rank answers itself at no cost. The trap: what a rank decides by itself (a signal, a clock, a file) must pass through
-- here before the training loop acts on it, or the ranks part ways and the job hangs.
-- @module ganymede.job.ranks
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local tensors = require "ganymede.tensor"

local ranks = {}

--- Is this the rank that prints and writes?
function ranks.is_first() return core.rank() == 0 end

--- Says what the ranks do from here on (initialize, forward, backward, update, evaluate, checkpoint, other): what they
-- send is counted by it. Not collective. ranks.on_phase(name), where it is set, is told too (ganymede.observe.trace).
function ranks.phase(name)
  if ranks.on_phase then ranks.on_phase(name) end
  if core.world() > 1 then core.comm_set_phase(name) end
end

local function reduced(numbers, op)
  if not core.device().has_data then
    core.comm_all_reduce(tensors.empty({ #numbers }, { dtype = "f64" }), core.comm_group(), op)
    return numbers
  end
  local t = tensors.tensor(numbers, { dtype = "f64" })
  core.comm_all_reduce(t, core.comm_group(), op)
  return t:totable()
end

local function over_ranks(numbers, op)
  if core.world() == 1 then return numbers end
  return tensors.scope(tensors.no_grad, reduced, numbers, op)
end

--- Sums of each of a list of numbers over all ranks -> list. On the meta device, which has no values, the numbers
-- given; what a job would send is counted.
function ranks.sum(numbers) return over_ranks(numbers, "sum") end

--- The largest of each of a list of numbers.
function ranks.max(numbers) return over_ranks(numbers, "max") end

-- The axes over which a value is still a sum, as a set.
local function partial_axes(t)
  local set = {}
  for _, name in ipairs(core.layout(t).partial) do set[name] = true end
  return set
end

-- Of copies along the pipeline those of one stage count: of the one that holds the last part of the model, since what
-- only that stage has (output, loss, right answers) and what all stages have (labels) then go through the same sums.
local output_stage

--- Says which stage holds the last part, as a coordinate along the pipeline; nil: the last stage. Not collective.
function ranks.set_output_stage(coordinate) output_stage = coordinate end

--- This rank's coordinate along the pipeline, from 0, and the number of stages. Not collective.
function ranks.stage()
  for _, axis in ipairs(core.mesh()) do
    if axis.name == "pipeline" then return axis.coordinate, axis.size end
  end
  return 0, 1
end

--- Is this the first rank of its stage? Not collective.
function ranks.is_first_of_stage()
  for _, axis in ipairs(core.mesh()) do
    if axis.name ~= "pipeline" and axis.coordinate > 0 then return false end
  end
  return true
end

-- Is this rank the one whose copy counts? `partial` axes have terms and no copies; any_stage: of a value that other
-- stages do not have, wherever it is.
local function is_counted(partial, any_stage)
  for _, axis in ipairs(core.mesh()) do
    if axis.name == "pipeline" then
      if not any_stage and axis.coordinate ~= (output_stage or axis.size - 1) then return false end
    elseif axis.coordinate > 0 and not partial[axis.name] then
      return false
    end
  end
  return true
end

--- This rank's term of a scalar tensor: the terms of all ranks add up to its value. any_stage: a value of this rank's
-- stage alone, such as a loss that a layer in the middle adds. No communication.
function ranks.part(t, any_stage)
  if core.world() == 1 then return t:item() end
  if not is_counted(partial_axes(t), any_stage) then return 0 end
  return tensors.scope(function() return t:detach():local_tensor():item() end)
end

--- The same as a tensor that nobody reads; nil where it counts nothing.
function ranks.part_tensor(t, any_stage)
  if core.world() == 1 then return t:detach() end
  return is_counted(partial_axes(t), any_stage) and t:detach():local_tensor() or nil
end

--- This rank's term of a number that all ranks know, or all of the stage that holds the last part.
function ranks.share(number)
  if core.world() == 1 or not core.device().has_data then return number end
  return is_counted {} and number or 0
end

local function gathered(number)
  local group = core.comm_group "pipeline"
  if not core.device().has_data then
    core.comm_all_gather(tensors.empty({ 1 }, { dtype = "f64" }), group, 1)
    return { number }
  end
  return core.comm_all_gather(tensors.tensor({ number }, { dtype = "f64" }), group, 1):totable()
end

--- A number that each stage has -> list by stage, the same on all of them; { number } without a pipeline, and on the
-- meta device. Collective along the pipeline.
function ranks.of_stages(number)
  local _, stages = ranks.stage()
  if stages == 1 then return { number } end
  return tensors.scope(tensors.no_grad, gathered, number)
end

--- Is it true on some rank?
function ranks.any(condition) return ranks.sum { condition and 1 or 0 }[1] > 0 end

--- The texts of all ranks, in order of rank. Whatever the mesh is, or whether it is there yet. A rank that pretends
-- (core.pretend) hears itself alone.
function ranks.texts(text)
  if core.world() == 1 or core.comm_transport() == "meta" then return { text } end
  return core.comm_exchange(launcher.world(), text)
end

--- What fn() returns on rank 0 (a string or nil), on every rank. An error there ends the job there.
function ranks.from_first(fn)
  if core.world() == 1 then return fn() end
  local text = core.rank() == 0 and fn() or nil
  local said = ranks.texts(text and "=" .. text or "")[1]
  return said ~= "" and said:sub(2) or nil
end

--- Raises a failure that all ranks raise at this place, so that one message is enough: rank 0's.
function ranks.fail(exit_code, fmt, ...)
  local err = failure.new(exit_code, select("#", ...) > 0 and fmt:format(...) or fmt)
  err.agreed = true
  err.peer = core.rank() ~= 0 or nil -- of which the command line prints nothing
  error(err, 0)
end

--- Did all ranks raise this error together, so that they may still communicate?
function ranks.agreed(err) return failure.is(err) and rawget(err, "agreed") == true end

-- ---------------------------------------------------------------- the same settings everywhere

-- { path = text } of everything in a table of settings
local function flatten(out, value, path)
  local kind = type(value)
  if kind == "table" and not getmetatable(value) and next(value) ~= nil then
    for key, entry in pairs(value) do
      flatten(out, entry, path == "" and tostring(key) or path .. "." .. tostring(key))
    end
  elseif kind == "number" or kind == "string" or kind == "boolean" or kind == "table" and not getmetatable(value) then
    out[path] = require("ganymede.base.options").literal(value)
  else
    out[path] = "(a " .. kind .. ")"
  end
  return out
end

local function serialized(flat)
  local lines = {}
  for path, text in pairs(flat) do lines[#lines + 1] = path .. "=" .. text end
  table.sort(lines)
  return table.concat(lines, "\0")
end

local function parsed(text)
  local flat = {}
  for line in (text .. "\0"):gmatch "(.-)%z" do
    local path, value = line:match "^(.-)=(.*)$"
    if path then flat[path] = value end
  end
  return flat
end

-- "0.1 on ranks 0, 2; 0.2 on rank 1"
local function said_by(flats, path)
  local order, by = {}, {}
  for i, flat in ipairs(flats) do
    local value = flat[path] or "not given"
    if not by[value] then order[#order + 1], by[value] = value, {} end
    table.insert(by[value], i - 1)
  end
  for i, value in ipairs(order) do
    local list = by[value]
    order[i] = ("%s on rank%s %s"):format(value, #list > 1 and "s" or "", table.concat(list, ", "))
  end
  return #order > 1 and table.concat(order, "; ") or nil
end

local function differences(flats)
  local paths, lines = {}, {}
  for _, flat in ipairs(flats) do
    for path in pairs(flat) do paths[path] = true end
  end
  for _, path in ipairs(require("ganymede.base.options").sorted_keys(paths)) do
    local said = said_by(flats, path)
    if said and #lines < 12 then lines[#lines + 1] = ("  %s is %s"):format(path, said) end
  end
  return table.concat(lines, "\n")
end

--- Raises a failure of status 2 on all ranks unless all were given the same -> the hash of it. settings: a table of
-- plain values, tables and objects (of which the type is compared); its differing keys are named with their ranks.
function ranks.same_settings(settings)
  local text = serialized(flatten({}, settings, ""))
  local hash = require "ganymede.base.sha256"(text)
  local same = true
  for _, other in ipairs(ranks.texts(hash)) do same = same and other == hash end
  if same then return hash end
  local flats = {}
  for i, other in ipairs(ranks.texts(text)) do flats[i] = parsed(other) end
  ranks.fail(2, "the ranks were not given the same:\n%s\n  every rank must run the same recipe with the same flags",
    differences(flats))
end

return ranks
