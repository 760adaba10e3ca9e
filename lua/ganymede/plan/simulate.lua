--- Predicts a step of a recipe on N ranks of a machine: one rehearsal of each role, then a replay of all ranks in C.
--
--     local found = simulate { recipe = "r.lua", ranks = 64, machine = "dgx_a100_80g" }
--
-- The roles are those of ganymede.plan.representatives: every coordinate along pipeline and sequence, and of other axes
-- with more than 3 ranks the first, one between and the last. Each rank of the world has a clock of its own in the
-- replay (host/plan/simulate.h): only rehearsals are folded. The trap: if ranks send messages along a folded axis, or
-- differ there, one cannot stand for another. Messages are noticed and refused.
-- @module ganymede.plan.simulate
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machines = require "ganymede.plan.machine"
local parallel = require "ganymede.job.parallel"
local rehearsal = require "ganymede.job.rehearsal"
local representatives = require "ganymede.plan.representatives"

-- Axes along which ranks do not all do the same.
local whole = { pipeline = true, sequence = true }

-- ---------------------------------------------------------------- rehearsals

local function rehearsed(given, rank, path)
  local found, failed = rehearsal { recipe = given.recipe, ranks = given.ranks, rank = rank, set = given.set,
    seed = given.seed, calls = given.ranks > 1, step_file = path }
  if not found then failure(failed.code, "as rank %d: %s", rank, failed.text) end
  if found.totals.offloaded_bytes then
    failure(2, "a simulation does not know disks and host memory yet: rehearse the recipe without `offload`")
  end
  return found
end

local function refuse_folded_messages(mesh, found)
  local folded = {}
  for _, name in ipairs(representatives.folded(mesh, whole)) do folded[name] = true end
  for _, call in ipairs(found.calls or {}) do
    if call.text:find "^send " or call.text:find "^receive " then
      for _, name in ipairs(parallel.axis_names(call.group)) do
        if folded[name] then
          failure(2, "ranks send messages along '%s', of which only the first, one between and the last are rehearsed: "
            .. "a simulation cannot tell what the others send (at most 3 ranks along it)", name)
        end
      end
    end
  end
end

-- Returns the list of roles with what each rehearsal found and its file, and the mesh.
local function rehearse_all(given, path)
  local first = rehearsed(given, 0, path(1))
  local roles = representatives.list(first.mesh, whole)
  for i, role in ipairs(roles) do
    role.found = i == 1 and first or rehearsed(given, role.rank, path(i))
    refuse_folded_messages(first.mesh, role.found)
  end
  return roles, first.mesh
end

-- ---------------------------------------------------------------- what is said of a replay

local function has_axis(group, axis)
  for _, name in ipairs(parallel.axis_names((group:gsub("@.*", "")))) do
    if name == axis then return true end
  end
  return false
end

-- Returns the list of { axes, mean, most }: seconds in which ranks wait for operations of a group, the longest first.
local function exposed_of(replay)
  local rows, by = {}, {}
  for _, rank in ipairs(replay.ranks) do
    for group, seconds in pairs(rank.exposed) do
      local row = by[group] or { axes = group, mean = 0, most = 0 }
      if not by[group] then by[group], rows[#rows + 1] = row, row end
      row.mean, row.most = row.mean + seconds / #replay.ranks, math.max(row.most, seconds)
    end
  end
  table.sort(rows, function(a, b) return a.mean > b.mean or (a.mean == b.mean and a.axes < b.axes) end)
  return rows
end

-- The part of the step in which a mean rank neither computes nor waits for other axes than the pipeline's.
local function bubble_of(replay, mesh)
  local stages, used = 1, 0
  for _, axis in ipairs(mesh) do stages = axis.name == "pipeline" and axis.size or stages end
  if stages == 1 then return nil end
  for _, rank in ipairs(replay.ranks) do
    used = used + rank.busy
    for group, seconds in pairs(rank.exposed) do
      if not has_axis(group, "pipeline") then used = used + seconds end
    end
  end
  return 1 - used / (#replay.ranks * replay.seconds)
end

-- Returns the list of { stage, peak_bytes, parameter_bytes }: the most of all roles of each stage.
local function memory_of(roles, mesh)
  local rows, inner, stages = {}, 1, 1
  for i = #mesh, 1, -1 do
    if mesh[i].name == "pipeline" then
      stages = mesh[i].size
      break
    end
    inner = inner * mesh[i].size
  end
  for _, role in ipairs(roles) do
    local stage = stages > 1 and math.floor(role.rank / inner) % stages or 0
    local row = rows[stage + 1] or { stage = stage, peak_bytes = 0, parameter_bytes = 0 }
    rows[stage + 1] = row
    for _, key in ipairs { "peak_bytes", "parameter_bytes" } do
      row[key] = math.max(row[key], role.found.totals[key])
    end
  end
  return rows
end

local function products_of(roles, role_of)
  local total = 0
  for _, role in ipairs(role_of) do total = total + roles[role].found.totals.product_flops_per_step end
  return total
end

local function figures(replay, roles, role_of, mesh, about)
  local world, busy = #role_of, 0
  for _, rank in ipairs(replay.ranks) do busy = busy + rank.busy / world end
  local products = products_of(roles, role_of)
  local totals = roles[1].found.totals
  return {
    seconds = replay.seconds, world = world, mesh = mesh, roles = #roles, transfers = replay.transfers,
    machine = about.name, dtype = roles[1].found.dtype, busy = busy, exposed = exposed_of(replay),
    bubble = bubble_of(replay, mesh), memory = memory_of(roles, mesh), memory_of_rank = about.memory,
    product_flops = products, utilization = about.peak > 0 and products / (replay.seconds * world * about.peak) or nil,
    samples_per_second = totals.samples_per_step / replay.seconds,
  }
end

--- Simulates. given: recipe, ranks, machine (of machine.read), set, seed, spans (the number of ranks of which every op
-- is listed), and keep (a folder for the steps; default: temporary files). Returns figures and the spans.
return function(given)
  local about = machines.read(given.machine)
  local paths, own = {}, not given.keep and os.tmpname() or nil
  if given.keep then core.make_folders(given.keep) end
  local function path(i)
    paths[i] = ("%s.%d"):format(own or given.keep .. "/step", i)
    return paths[i]
  end
  local function clean()
    if not own then return end
    os.remove(own)
    for _, file in pairs(paths) do os.remove(file) end
  end
  return failure.protect(clean, function()
    local roles, mesh = rehearse_all(given, path)
    local role_of = representatives.of(mesh, whole)
    machines.peak_of(about, roles[1].found.dtype)
    local replay = core.simulate(about, paths, role_of, { spans = given.spans })
    return figures(replay, roles, role_of, mesh, about), replay.spans
  end)
end
