--- Counts the ranks with which this rank exchanges messages, from the groups that a rehearsal has used.
--
-- It counts separately what layers send (forward and backward), what the sums of gradients send, and the rest of a step
-- (the loss, the norm of the gradients: a few numbers over all ranks). It returns a list of { what, peers, axes = list
-- of { axes, peers } }, with `all`, the number of ranks among them. A collective counts as messages with every member
-- of its group; what crosses the borders of a pipeline counts as messages with the stages that it goes to or comes
-- from.
-- @module ganymede.plan.peers
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local parallel = require "ganymede.job.parallel"

local kinds = { "layers", "gradients", "step" }

local function kind_of(entry)
  if entry.path == "gradients" then return "gradients" end
  return (entry.phase == "backward" or entry.phase == "forward" and entry.path ~= "") and "layers" or "step"
end

local function members(name) return core.comm_group_info(core.comm_group(parallel.axis_names(name))).ranks end

local function count(set)
  local n = 0
  for _ in pairs(set) do n = n + 1 end
  return n
end

local function is_of_axes(name)
  for _, axis in ipairs(parallel.axis_names(name)) do
    local known = false
    for _, own in ipairs(core.mesh()) do known = known or own.name == axis end
    if not known then return false end
  end
  return true
end

-- Adds the other members of a group. Groups that the recipe has made itself have no axes. only: a set of places in the
-- group; nil: all.
local function add(found, all, group, only)
  if found.seen[group] or not is_of_axes(group) then return end
  found.seen[group] = true
  local own, count_here = core.rank(), 0
  for place, rank in ipairs(members(group)) do
    if rank ~= own and (not only or only[place - 1]) then
      found.set[rank], all[rank], count_here = true, true, count_here + 1
    end
  end
  found.axes[#found.axes + 1] = { axes = json.array(parallel.axis_names(group)), peers = count_here }
end

--- meets: the list of the stages to which this rank's messages go or from which they come; nil without a pipeline.
return function(meets)
  local stages = {}
  for _, stage in ipairs(meets or {}) do stages[stage] = true end
  local out, all, found = json.array(), {}, {}
  for _, kind in ipairs(kinds) do found[kind] = { seen = {}, set = {}, axes = json.array() } end
  for _, entry in ipairs(core.world() > 1 and core.comm_traced() or {}) do
    add(found[kind_of(entry)], all, entry.group, entry.path == "pipeline" and stages or nil)
  end
  for i, kind in ipairs(kinds) do
    out[i] = { what = kind, peers = count(found[kind].set), axes = found[kind].axes }
  end
  return { by = out, all = count(all) }
end
