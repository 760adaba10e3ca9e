--- The states of an optimizer that a user has written: what its method state returns must be whole from the start,
-- because a run that resumes reads a checkpoint into these tensors. States that come with the first update are natural
-- in other programs; here they would end a resumed run in the middle of its start.
-- @module ganymede.optim.own_states
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local own = require "ganymede.base.own"

local own_states = {}

-- What is wrong with an entry, in words; nil: nothing. seen: the names before it.
local function problem(entry, seen)
  if type(entry) ~= "table" or type(entry.name) ~= "string" then
    return "an entry is { name = TEXT, tensor = TENSOR }; got " .. options.brief(entry)
  elseif seen[entry.name] then
    return ("the name '%s' is there twice"):format(entry.name)
  elseif not core.is_tensor(entry.tensor) then
    return ("'%s' has no tensor yet; make it in build, such as (item.tensor:detach() * 0):keep(), so that a run can "
      .. "resume"):format(entry.name)
  end
end

--- Returns the optimizer, or raises an error.
function own_states.checked(optimizer)
  if type(optimizer.state) ~= "function" or own.has(optimizer.state) then return optimizer end
  local list, seen = optimizer:state(), {}
  if type(list) ~= "table" then
    error(("%s:state() must return a list of states; it returned %s"):format(optimizer.name,
      list == nil and "nothing" or options.brief(list)), 0)
  end
  for i = 1, #list do
    local why = problem(list[i], seen)
    if why then error(("%s:state(): %s"):format(optimizer.name, why), 0) end
    seen[list[i].name] = true
  end
  return optimizer
end

return own_states
