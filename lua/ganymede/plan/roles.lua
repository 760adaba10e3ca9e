--- check --roles finds out whether the ranks of a job make the same collective calls.
--
-- The role of a rank is its place along each axis of the mesh: first, last or between. One rank of each role is
-- rehearsed, each in a process. Then, for every set of axes that has groups, the calls of all roles that can meet in
-- such a group are compared, in order. The first difference is a failure of status 2 that names both ranks and calls;
-- its cause is a recipe, layer or hook that depends on its rank. A hook that reads numbers cannot be rehearsed; it is
-- named and not compared. The trap: send and receive name their partner and are not compared, and a difference among
-- ranks of one role is not found.
-- @module ganymede.plan.roles
local rehearsal = require "ganymede.job.rehearsal"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local parallel = require "ganymede.job.parallel"
local representatives = require "ganymede.plan.representatives"

local function rehearsed(args, rank)
  local found, failed = rehearsal { recipe = args.recipe, ranks = args.ranks, rank = rank, set = args.set,
    seed = args.seed, device = args.device, calls = true, hooks = true }
  if not found then failure(failed.code, "as rank %d: %s", rank, failed.text) end
  return found
end

-- Returns the calls of a rank by the name of their group.
local function by_group(calls)
  local out = {}
  for _, call in ipairs(calls or {}) do
    if not call.text:find "^send " and not call.text:find "^receive " then
      local list = out[call.group] or { id = call.id }
      out[call.group] = list
      list[#list + 1] = call
    end
  end
  return out
end

-- Whether these two roles can be members of one group along the named axes. They must be equal on all other axes. Of a
-- group that a recipe has made itself, both ranks must be members.
local function may_meet(a, b, group)
  local x, y = a.groups[group], b.groups[group]
  if x and y and x.id == y.id then return true end
  local inside = {}
  for _, name in ipairs(parallel.axis_names(group)) do inside[name] = true end
  for name, is in pairs(a.role) do
    if not inside[name] and b.role[name] ~= is then return false end
  end
  return true
end

local function said(call) return call and call.text or "no more calls" end

-- Raises a failure at the first call in which the two differ.
local function compare(a, b, group)
  local x, y = a.groups[group] or {}, b.groups[group] or {}
  for i = 1, math.max(#x, #y) do
    if not x[i] or not y[i] or x[i].fingerprint ~= y[i].fingerprint then
      failure(2, "ranks of a group over %s make different calls; call %d:\n  rank %d (%s): %s\n"
        .. "  rank %d (%s): %s\n  does the recipe look at its rank?", group, i, a.rank, a.text, said(x[i]), b.rank,
        b.text, said(y[i]))
    end
  end
end

local function groups_of(roles)
  local seen, names = {}, {}
  for _, r in ipairs(roles) do
    for name in pairs(r.groups) do
      if not seen[name] then seen[name], names[#names + 1] = true, name end
    end
  end
  table.sort(names)
  return names
end

local function figures(r)
  local t = r.found.totals
  local sent = 0
  for _, e in ipairs(r.found.sent) do sent = sent + e.bytes end
  return { rank = r.rank, role = r.text, peak_bytes = t.peak_bytes, parameter_bytes = t.parameter_bytes,
    sent_bytes = sent, calls = #(r.found.calls or {}) }
end

-- Returns the hooks that some role could not rehearse: { name, why }, each once.
local function left_out_of(roles)
  local seen, out = {}, json.array()
  for _, r in ipairs(roles) do
    for _, hook in ipairs(r.found.left_out or {}) do
      if not seen[hook.name .. hook.why] then out[#out + 1] = hook end
      seen[hook.name .. hook.why] = true
    end
  end
  return out
end

local function print_table(rows, groups, left_out)
  print "ranks of every role on the mesh, in a step"
  for _, row in ipairs(rows) do
    print(("  rank %-6d %-46s  %10s at most  %10s sent  %6d calls"):format(row.rank, row.role,
      machine.bytes(row.peak_bytes), machine.bytes(row.sent_bytes), row.calls))
  end
  for _, hook in ipairs(left_out) do print(("not compared: hook %s: %s"):format(hook.name, hook.why)) end
  print(#groups > 0 and ("their calls agree in all groups: " .. table.concat(groups, ", ")) or "they make no calls")
end

--- Runs the comparison. args: the arguments of the command line.
return function(args)
  local first = rehearsed(args, 0)
  local roles, rows = representatives.list(first.mesh), {}
  for i, r in ipairs(roles) do
    r.found = r.rank == 0 and first or rehearsed(args, r.rank)
    r.groups, rows[i] = by_group(r.found.calls), figures(r)
  end
  local groups = groups_of(roles)
  for _, group in ipairs(groups) do
    for i, a in ipairs(roles) do
      for k = i + 1, #roles do
        if may_meet(a, roles[k], group) then compare(a, roles[k], group) end
      end
    end
  end
  local left_out = left_out_of(roles)
  if not args.json then return print_table(rows, groups, left_out) end
  print(json.encode({ roles = json.array(rows), groups = json.array(groups), left_out = left_out }, { indent = true }))
end
