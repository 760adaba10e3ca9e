--- Communication between ranks besides tensors: a few numbers in each step, texts, and errors that all ranks raise.
--
--     local sums = ranks.sum { ranks.part(loss), stop and 1 or 0 }    -- one small all_reduce, the same bits everywhere
--
-- Every function here is collective over all ranks unless it says otherwise: each rank must call it, in the same order.
-- On one rank they cost nothing. The trap: what a rank decides by itself (from a signal, a clock, a file) must pass
-- through here before the training loop acts on it; otherwise the ranks make different calls and the job hangs.
-- @module ganymede.job.ranks
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local tensors = require "ganymede.tensor"

local ranks = {}

--- Returns whether this is the rank that prints and writes. Not collective.
function ranks.is_first() return core.rank() == 0 end

--- Says what the ranks do from here on (initialize, forward, backward, update, evaluate, checkpoint, other); what they
-- send is counted by these names. If ranks.on_phase is set, on_phase(name) is called (ganymede.observe.trace). Not
-- collective.
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

--- Returns the list of the sums of each number in a list over all ranks. On the meta device, which has no values, it
-- returns the numbers given, and counts what a job would send.
function ranks.sum(numbers) return over_ranks(numbers, "sum") end

--- Returns the list of the largest of each number in a list, over all ranks.
function ranks.max(numbers) return over_ranks(numbers, "max") end

-- Returns the axes over which a value must still be summed (partial), as a set.
local function partial_axes(t)
  local set = {}
  for _, name in ipairs(core.layout(t).partial) do set[name] = true end
  return set
end

-- The stage whose copies count along the pipeline. It is the stage that holds the last part of the model: so values
-- that only that stage has (output, loss, right answers) and values that all stages have (labels) go through the same
-- sums.
local output_stage

--- Sets which stage holds the last part, as a coordinate along the pipeline; nil: the last stage. Not collective.
function ranks.set_output_stage(coordinate) output_stage = coordinate end

--- Returns this rank's coordinate along the pipeline, from 0, and the number of stages. Not collective.
function ranks.stage()
  for _, axis in ipairs(core.mesh()) do
    if axis.name == "pipeline" then return axis.coordinate, axis.size end
  end
  return 0, 1
end

--- Returns whether this is the first rank of its stage. Not collective.
function ranks.is_first_of_stage()
  for _, axis in ipairs(core.mesh()) do
    if axis.name ~= "pipeline" and axis.coordinate > 0 then return false end
  end
  return true
end

-- Whether the copy of this rank counts. Along the axes in `partial` there are terms and no copies. any_stage: the value
-- belongs to this stage alone, whichever it is.
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

--- Returns this rank's term of a scalar tensor; the terms of all ranks add up to its value. any_stage: the value
-- belongs to this rank's stage alone, such as a loss that a layer in the middle adds. No communication.
function ranks.part(t, any_stage)
  if core.world() == 1 or not core.device().has_data then return t:item() end -- refused on all ranks alike
  if not is_counted(partial_axes(t), any_stage) then return 0 end
  return tensors.scope(function() return t:detach():local_tensor():item() end)
end

--- Returns the same as a tensor, which the host does not read; nil if the copy of this rank does not count.
function ranks.part_tensor(t, any_stage)
  if core.world() == 1 then return t:detach() end
  return is_counted(partial_axes(t), any_stage) and t:detach():local_tensor() or nil
end

--- Returns this rank's term of a number that all ranks know, or all ranks of the stage that holds the last part.
function ranks.share(number)
  if core.world() == 1 or not core.device().has_data then return number end
  return is_counted {} and number or 0
end

-- A tensor without cuts: itself, or the whole, which ranks that hold blocks of it exchange.
local function uncut(t)
  for _, axes in ipairs(core.layout(t).cuts) do
    if #axes > 0 then return core.gather(t) end
  end
  return t
end

local function numbers_of(t) return t:reshape(t:numel()):totable() end

--- Returns this rank's terms of the elements of a tensor, or of a number, as a list; the terms of all ranks add up to
-- the elements. Communicates only where the tensor is cut, among the ranks that hold it.
function ranks.parts(t)
  if type(t) == "number" then return { ranks.share(t) } end
  if core.world() == 1 or not core.device().has_data then return numbers_of(t) end
  t = uncut(t:detach())
  if is_counted(partial_axes(t)) then return numbers_of(t:local_tensor()) end
  local none = {}
  for i = 1, t:numel() do none[i] = 0 end
  return none
end

--- Returns whether of a value that several ranks have the copy of this rank counts. Not collective.
function ranks.holds() return core.world() == 1 or not core.device().has_data or is_counted {} end

--- Returns the elements of a tensor as a list on the rank whose copy counts, nil on the others. Communicates where the
-- tensor is cut or partial, among the ranks that hold it.
function ranks.whole_part(t)
  if core.world() == 1 or not core.device().has_data then return numbers_of(t) end
  t = core.gather(t:detach())
  return is_counted {} and numbers_of(t:local_tensor()) or nil
end

local function gathered(number)
  local group = core.comm_group "pipeline"
  if not core.device().has_data then
    core.comm_all_gather(tensors.empty({ 1 }, { dtype = "f64" }), group, 1)
    return { number }
  end
  return core.comm_all_gather(tensors.tensor({ number }, { dtype = "f64" }), group, 1):totable()
end

--- Returns the list of a number that each stage has, by stage, the same on all of them; { number } without a pipeline
-- and on the meta device. Collective along the pipeline.
function ranks.of_stages(number)
  local _, stages = ranks.stage()
  if stages == 1 then return { number } end
  return tensors.scope(tensors.no_grad, gathered, number)
end

--- Returns whether it is true on any rank.
function ranks.any(condition) return ranks.sum { condition and 1 or 0 }[1] > 0 end

--- Returns the texts of all ranks, in order of rank. It does not need a mesh. A rank of a rehearsal (core.pretend)
-- receives only its own.
function ranks.texts(text)
  if core.world() == 1 or core.comm_transport() == "meta" then return { text } end
  return core.comm_exchange(launcher.world(), text)
end

--- Returns on every rank what fn() returns on rank 0 (a string or nil). An error in fn ends the job.
function ranks.from_first(fn)
  if core.world() == 1 then return fn() end
  local text = core.rank() == 0 and fn() or nil
  local said = ranks.texts(text and "=" .. text or "")[1]
  return said ~= "" and said:sub(2) or nil
end

--- Raises a failure that all ranks raise at this place, so that only rank 0 prints it.
function ranks.fail(exit_code, fmt, ...)
  local err = failure.new(exit_code, select("#", ...) > 0 and fmt:format(...) or fmt)
  err.agreed = true
  err.peer = core.rank() ~= 0 or nil -- of which the command line prints nothing
  error(err, 0)
end

--- Returns whether all ranks raised this error together, so that they may still communicate.
function ranks.agreed(err) return failure.is(err) and rawget(err, "agreed") == true end

-- ---------------------------------------------------------------- the same settings everywhere

-- A number in the fewest digits that tell it from all others.
local function digits(x)
  for n = 14, 17 do
    local text = ("%." .. n .. "g"):format(x)
    if tonumber(text) == x or n == 17 then return text end
  end
end

-- Returns { path = text } for everything in a table of settings.
local function flatten(out, value, path)
  local kind = type(value)
  if kind == "table" and not getmetatable(value) and next(value) ~= nil then
    for key, entry in pairs(value) do
      flatten(out, entry, path == "" and tostring(key) or path .. "." .. tostring(key))
    end
  elseif kind == "number" then
    out[path] = digits(value)
  elseif kind == "string" or kind == "boolean" or kind == "table" and not getmetatable(value) then
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

-- Describes different values: "0.1 on ranks 0, 2; 0.2 on rank 1".
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

--- Returns what differs between the settings of the ranks, a line for each key, with the ranks; "": nothing. settings:
-- as same_settings takes them.
function ranks.differing(settings)
  local flats = {}
  for i, text in ipairs(ranks.texts(serialized(flatten({}, settings, "")))) do flats[i] = parsed(text) end
  return differences(flats)
end

--- Returns the hash of settings that all ranks must have been given equally; otherwise raises a failure of status 2 on
-- all ranks, which names the keys that differ and their ranks. settings: a table of plain values, tables and objects
-- (of which only the type is compared).
function ranks.same_settings(settings)
  local text = serialized(flatten({}, settings, ""))
  local hash = require "ganymede.base.sha256"(text)
  local same = true
  for _, other in ipairs(ranks.texts(hash)) do same = same and other == hash end
  if same then return hash end
  ranks.fail(2, "the ranks were not given the same:\n%s\n  every rank must run the same recipe with the same flags",
    ranks.differing(settings))
end

return ranks
