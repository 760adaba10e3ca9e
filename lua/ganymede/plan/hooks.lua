--- Runs the hooks of a recipe in a rehearsal (check --hooks, and --roles, which compares their collective calls).
--
--     local hooks, left_out = rehearsed_hooks(config.hooks)
--
-- There are no numbers on the meta device. A hook that reads one, or fails for another reason, is left out from there
-- on: left_out then has { name, why }, and a comparison reports it. Hooks that say `saves` (checkpoints, event
-- files) never run. The trap: what another hook prints and writes by itself, it also prints and writes here.
-- @module ganymede.plan.hooks
local failure = require "ganymede.base.failure"
local hooks_base = require "ganymede.hooks.base"
local registry = require "ganymede.base.registry"

-- Returns a hook that does nothing, and says of itself what `own` says: others ask what it measures.
local function silent(own)
  local hook = setmetatable({}, hooks_base.Hook)
  for _, key in ipairs { "name", "priority", "needs_output", "needs_loss", "adds_metrics" } do hook[key] = own[key] end
  hook.measures = function(_, trainer) return (own.measures or hooks_base.Hook.measures)(own, trainer) end
  return hook
end

-- Returns a hook with the points of `own`; after the first point that fails, it does nothing.
local function lenient(own, left_out)
  local hook, failed = silent(own), false
  for _, point in ipairs(hooks_base.points) do
    local fn = own[point]
    hook[point] = fn and function(_, ...)
      if failed then return end
      local ok, why = failure.try(fn, own, ...)
      if ok then return end
      failed = true
      left_out[#left_out + 1] = { name = own.name or "a table of functions", why = failure.text(why) }
    end
  end
  return hook
end

return function(list)
  local out, left_out = {}, {}
  for _, given in ipairs(list or {}) do
    local own = registry.hooks:build(given)
    if own.saves then
      left_out[#left_out + 1] = { name = own.name, why = "nothing is saved here" }
      out[#out + 1] = silent(own)
    else
      out[#out + 1] = lenient(hooks_base.check(own), left_out)
    end
  end
  return out, left_out
end
