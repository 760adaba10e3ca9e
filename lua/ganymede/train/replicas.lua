--- check(model): ranks that hold the same parameters hold the same numbers, before they train.
--
-- Each rank trains its own copy, and only gradients are summed. Copies that differ at the start stay different: each
-- rank then has another model, and no number of the run says so. What may make them differ is a model's function that
-- draws by math.random with a seed of its own, reads a file that differs between machines, or asks for the rank.
--
-- Only checksums travel: one for all parameters that are cut over the same axes, and if some differ, one of each.
-- Ranks whose kernels are of different instruction sets may differ in a last bit (an orthogonal initializer makes
-- products); so they are only warned. The trap: this says nothing of weights that are loaded or written later.
-- @module ganymede.train.replicas
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local tensors = require "ganymede.tensor"

local replicas = {}

-- Which part this rank has of what is cut over these axes, among the parameters of its stage.
local function place(axes)
  local coordinate, where = {}, { "stage " .. ranks.stage() }
  for _, axis in ipairs(core.mesh()) do coordinate[axis.name] = axis.coordinate end
  for _, name in ipairs(axes) do where[#where + 1] = name .. " " .. coordinate[name] end
  return table.concat(where, ", ")
end

-- { [place] = { { name, checksum }, ... } } of the parameters of this rank.
local function checksums(model)
  local found = {}
  for _, p in ipairs(model:named_parameters()) do
    local at = place(core.resting_axes(p.tensor))
    found[at] = found[at] or {}
    table.insert(found[at], { p.name, core.checksum(core.resting_part(p.tensor)) })
  end
  return found
end

local function one_of_all(list)
  local text = {}
  for i, entry in ipairs(list) do text[i] = table.concat(entry, " ") end
  return require "ganymede.base.sha256"(table.concat(text, "\n"))
end

-- Says lines "key\tvalue" to all ranks -> { [key] = { [value] = list of ranks } }.
local function said_by_all(lines)
  local said = {}
  for i, text in ipairs(ranks.texts(table.concat(lines, "\n"))) do
    for key, value in text:gmatch "([^\t\n]+)\t([^\n]+)" do
      said[key] = said[key] or {}
      said[key][value] = said[key][value] or {}
      table.insert(said[key][value], i - 1)
    end
  end
  return said
end

local function differs(by_value) return next(by_value, next(by_value)) ~= nil end

-- "1 on ranks 0, 2; 2 on rank 1", the lowest rank first.
local function by_rank(by_value)
  local parts = {}
  for value, list in pairs(by_value) do
    local those = (#list > 1 and "ranks " or "rank ") .. table.concat(list, ", ")
    parts[#parts + 1] = { list[1], value .. " on " .. those }
  end
  table.sort(parts, function(a, b) return a[1] < b[1] end)
  for i, part in ipairs(parts) do parts[i] = part[2] end
  return table.concat(parts, "; ")
end

local MOST = 6 -- parameters that a message names
local BEGIN = "the ranks begin with different weights, and would train different models:\n%s\n  what makes them must "
  .. "give every rank the same: no rank, no clock and no file that differs; initializers, gm.uniform and gm.normal do"

-- Names the parameters that differ. All ranks call it.
local function refuse(found)
  local lines, list, more = {}, {}, 0
  for at, entries in pairs(found) do
    for _, entry in ipairs(entries) do lines[#lines + 1] = ("%s (%s)\t%s"):format(entry[1], at, entry[2]) end
  end
  local said = said_by_all(lines)
  for _, key in ipairs(options.sorted_keys(said)) do
    if differs(said[key]) and #list < MOST then
      list[#list + 1] = ("  %s has the checksum %s"):format(key:gsub(" %(.-%)$", ""), by_rank(said[key]))
    elseif differs(said[key]) then
      more = more + 1
    end
  end
  if more > 0 then list[#list + 1] = ("  and %d more"):format(more) end
  local text = BEGIN:format(table.concat(list, "\n"))
  if not differs(said_by_all { "device\t" .. core.device().name }.device) then ranks.fail(2, "%s", text) end
  if core.rank() == 0 then log.warn("%s", text) end
end

--- Refuses ranks that hold different numbers of one parameter. Collective over all ranks.
function replicas.check(model)
  if core.world() == 1 or core.comm_transport() == "meta" or not core.device().has_data then return end
  local found, lines = tensors.scope(checksums, model), {}
  for at, entries in pairs(found) do lines[#lines + 1] = at .. "\t" .. one_of_all(entries) end
  local wrong = false
  for _, by_value in pairs(said_by_all(lines)) do wrong = wrong or differs(by_value) end
  if wrong then refuse(found) end
end

return replicas
