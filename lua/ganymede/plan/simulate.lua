--- Predicts a step of a recipe on N ranks of a machine: rehearsals of the ranks that differ, then a replay of all in C.
--
--     local found, spans = simulate { recipe = "r.lua", ranks = 64, machine = "dgx_a100_80g" }
--
-- ganymede.plan.stand_ins says which ranks are rehearsed. The replay has every rank of the world, but ranks that do the
-- same at the same time are replayed once, where that is exact (host/plan/classes.c). The trap: jitter makes all ranks
-- differ, so a replay with it takes as much longer as there are ranks of a class.
-- @module ganymede.plan.simulate
local bubble_of = require "ganymede.plan.bubble"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local goodput = require "ganymede.plan.goodput"
local machines = require "ganymede.plan.machine"
local parallel = require "ganymede.job.parallel"
local rehearsal = require "ganymede.job.rehearsal"
local stand_ins = require "ganymede.plan.stand_ins"

-- ---------------------------------------------------------------- what is said of a replay

-- Returns the list of { axes, mean, most }: seconds in which ranks wait for operations of a group, the longest first.
local function exposed_of(replay, world)
  local rows, by = {}, {}
  for _, class in ipairs(replay.classes) do
    for group, seconds in pairs(class.exposed) do
      local row = by[group] or { axes = group, mean = 0, most = 0 }
      if not by[group] then by[group], rows[#rows + 1] = row, row end
      row.mean, row.most = row.mean + seconds * class.count / world, math.max(row.most, seconds)
    end
  end
  table.sort(rows, function(a, b) return a.mean > b.mean or (a.mean == b.mean and a.axes < b.axes) end)
  return rows
end

-- Returns the list of { stage, peak_bytes, parameter_bytes }: the most of all roles of each stage.
local function memory_of(roles, mesh)
  local rows, stages, distance = {}, parallel.stages(mesh)
  for _, role in ipairs(roles) do
    local stage = math.floor(role.rank / distance) % stages
    local row = rows[stage + 1] or { stage = stage, peak_bytes = 0, parameter_bytes = 0 }
    rows[stage + 1] = row
    for _, key in ipairs { "peak_bytes", "parameter_bytes" } do
      row[key] = math.max(row[key], role.found.totals[key])
    end
  end
  return rows
end

-- The seconds in which a mean rank waits for its host to launch what is next; nil: the machine says nothing of that.
local function launching_of(replay, about, world)
  if not about.host_launch then return nil end
  local sum = 0
  for _, class in ipairs(replay.classes) do sum = sum + class.count * class.launching end
  return sum / world
end

-- Whether the host launches a whole step at once (docs/graphs.md). Of several ranks it is not assumed: no machine has
-- shown what such a launch costs.
local function is_recorded(found, about)
  local first = found.roles[1].found
  if about.device ~= "gpu" or #found.of > 1 or first.totals.offloaded_bytes then return false end
  for _, row in ipairs(first.settings) do
    if row.key == "graph" and row.value ~= "auto" then return row.value end
  end
  return first.totals.one_by_one == nil
end

-- Returns the FLOPs of products of all ranks, and of those the ones that run again.
local function products_of(replay, role_of)
  local all, again = 0, 0
  for _, role in ipairs(role_of) do
    all, again = all + replay.products[role].all, again + replay.products[role].again
  end
  return all, again
end

-- Joules of a step: ranks in ops, and ranks that wait, who take as much if the machine does not say. nil: it says
-- nothing of power.
local function energy_of(replay, about)
  if not about.power then return nil end
  local joules, idle = 0, about.power.idle or about.power.busy
  for _, class in ipairs(replay.classes) do
    joules = joules + class.count * (class.busy * about.power.busy + (replay.seconds - class.busy) * idle)
  end
  return joules
end

-- ---------------------------------------------------------------- checkpoints and failures

-- Returns a setting that is a number.
local function setting(found, name)
  for _, row in ipairs(found.settings) do
    if row.key == name then return tonumber(row.value) end
  end
  return nil
end

-- The steps between two checkpoints, of the setting or of the first CheckpointHook; nil: neither says it.
local function interval_of(found)
  for _, row in ipairs(found.settings) do
    local hook = row.value == "CheckpointHook" and row.key:match "^(hooks%.%d+%.)type$"
    if hook then return setting(found, hook .. "interval") end
  end
  return setting(found, "checkpoint.interval")
end

-- The bytes of a checkpoint that each node writes on average. Each rank stands for its share of those of its stage.
local function bytes_of_node(found, role_of, nodes)
  local of_stage, bytes = #role_of / parallel.stages(found.mesh), 0
  for _, role in ipairs(role_of) do bytes = bytes + found.roles[role].found.totals.checkpoint_bytes / of_stage end
  return bytes / nodes
end

-- Returns what ganymede.plan.goodput says; nil: failures, restarts or disks are not known.
local function run_of(given, about, found, replay)
  local failures, disk = about.failures or {}, about.disk or { latency = 0 }
  local mtbf, restart = given.mtbf or failures.mtbf_of_node, given.restart or failures.restart
  local rate, world = given.disk_write or disk.write, #found.of
  if not mtbf or not restart or not rate then return nil end
  local nodes = math.ceil(world / about.ranks_per_node)
  if mtbf < nodes then
    failure(2, "a failure of a node each %.4g s is one each %.2g s on %d nodes: no run of that has a use", mtbf,
      mtbf / nodes, nodes)
  end
  local bytes = bytes_of_node(found, found.of, nodes)
  local write = disk.latency + bytes / rate
  local copy = failures.copy and bytes / math.min(world, about.ranks_per_node) / failures.copy
  local out = goodput { step = replay.seconds, nodes = nodes, mtbf_of_node = mtbf, restart = restart,
    block = copy or write, write = copy and write or 0,
    steps = interval_of(found.roles[1].found), seed = given.seed }
  out.bytes_of_node, out.nodes = bytes, nodes
  return out
end

-- ---------------------------------------------------------------- all of it

local function figures(given, replay, found, about)
  local world, busy = #found.of, 0
  local roles, mesh = found.roles, found.mesh
  for _, class in ipairs(replay.classes) do busy = busy + class.busy * class.count / world end
  local products, again = products_of(replay, found.of)
  local totals = roles[1].found.totals
  local peak = about.peak > 0 and replay.seconds * world * about.peak
  return {
    seconds = replay.seconds, world = world, mesh = mesh, roles = #roles, rehearsed = found.rehearsed,
    classes = #replay.classes, transfers = replay.transfers, machine = about.name, dtype = roles[1].found.dtype,
    busy = busy, exposed = exposed_of(replay, world), launching = launching_of(replay, about, world),
    bubble = bubble_of(replay, mesh, world),
    memory = memory_of(roles, mesh), memory_of_rank = about.memory, product_flops = products, again_flops = again,
    utilization = peak and products / peak or nil, model_utilization = peak and (products - again) / peak or nil,
    samples_per_second = totals.samples_per_step / replay.seconds, energy = energy_of(replay, about),
    energy_is_bound = about.power and not about.power.idle or nil,
    run = run_of(given, about, found, replay),
  }
end

-- On a GPU, states that are offloaded are updated by the processors of the host, of which a machine says nothing.
local function refuse_updates_on_host(found, about)
  local first = found.roles[1].found
  if about.device ~= "gpu" or not first.totals.offloaded_bytes then return end
  for _, row in ipairs(first.settings) do
    if (row.key == "offload.optimizer" or row.key == "offload.memory") and row.value and row.value ~= "none" then
      failure(2, "%s: a simulation does not know how fast the processors of a GPU's host update the optimizer; "
        .. "parameters, gradients and activations can be offloaded", row.key)
    end
  end
end

local function check_stragglers(given)
  for rank, factor in pairs(given.slower or {}) do
    if rank >= given.ranks then
      failure(2, "there is no rank %d to be slow: ranks are 0 to %d", rank, given.ranks - 1)
    end
    if not (factor >= 1e-6 and factor <= 1e6) then
      failure(2, "rank %d cannot take %g times as long: a number from 1e-6 to 1e6 is needed", rank, factor)
    end
  end
end

--- Simulates. given: recipe, ranks, machine (of machine.read), set, seed (also of jitter), spans (the number of ranks
-- of which every op is listed), keep (a folder for the steps; default: temporary files), jitter (default: that of the
-- machine), slower ({ [rank] = how many times its ops take longer }), mtbf (seconds between failures of a node),
-- restart (seconds), disk_write (bytes per second of a node; all three default to the machine's), unfolded (whether
-- every rank is replayed by itself; the figures are the same), store and mesh (ganymede.plan.records, in place of
-- `keep`: records of before are not made again). Returns figures and the spans.
return function(given)
  local about = machines.read(given.machine)
  local paths, own = {}, not given.keep and not given.store and os.tmpname() or nil
  check_stragglers(given)
  if given.keep then core.make_folders(given.keep) end
  local function path(i)
    if given.store then return given.store:new_path() end
    paths[i] = ("%s.%d"):format(own or given.keep .. "/step", i)
    return paths[i]
  end
  local function clean()
    if given.store then given.store:forget_copies() end
    if not own then return end
    os.remove(own)
    for _, file in pairs(paths) do os.remove(file) end
  end
  return failure.protect(clean, function()
    local found = rehearsal.with_workers(stand_ins, { recipe = given.recipe, ranks = given.ranks,
      set = given.set, seed = given.seed, path = path, device = about.device, store = given.store, mesh = given.mesh })
    local steps = {}
    refuse_updates_on_host(found, about)
    for i, role in ipairs(found.roles) do steps[i] = role.path end
    machines.peak_of(about, found.roles[1].found.dtype)
    local replay = failure.about(about.name, core.simulate, about, steps, found.of, { spans = given.spans,
      slower = given.slower, jitter = given.jitter or about.jitter, seed = given.seed, unfolded = given.unfolded,
      recorded = is_recorded(found, about) })
    return figures(given, replay, found, about), replay.spans
  end)
end
