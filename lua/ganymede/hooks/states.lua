--- The states of hooks in a checkpoint, and the hooks that take them up again.
--
-- A state belongs to a title: the name of the hook, and what it measures where that is a choice. Of hooks of one title
-- the first takes the first state, and so on. Where a hook stands among others does not count, so that a run can go on
-- with hooks more or less than it had, and with the flags that bring hooks of their own (--step-file).
-- @module ganymede.hooks.states
local states = {}

local function title_of(hook)
  if type(hook.title) == "function" then return hook:title() end
  return hook.name or ""
end

--- Returns the states as plain values: list of { title, state }. Collective, as hooks may add up over the ranks.
function states.of(hooks)
  local out = {}
  for _, hook in ipairs(hooks) do
    local state = hook.state and hook:state()
    if state then out[#out + 1] = { title = title_of(hook), state = state } end
  end
  return out
end

--- Gives the states of such a list to the hooks -> list of the titles whose state no hook has taken.
function states.load(hooks, list)
  local waiting, left = {}, {} -- by title: list of hooks
  for _, hook in ipairs(hooks) do
    if hook.load_state then
      local title = title_of(hook)
      waiting[title] = waiting[title] or {}
      table.insert(waiting[title], hook)
    end
  end
  for _, entry in ipairs(list) do
    local title = entry.title or entry.name -- name: of checkpoints that know no titles
    local hook = table.remove(waiting[title] or {}, 1)
    if hook then hook:load_state(entry.state) else left[#left + 1] = title end
  end
  return left
end

return states
