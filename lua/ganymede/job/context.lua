--- The parallel context says which rank this is and what groups it belongs to, for every way in which ranks share work.
--
--     local context = require "ganymede.job.context"
--     context.get_local_rank "DATA"            -- by the name of a ParallelMode of Colossal-AI
--     context.get_world_size "row.col"         -- or by mesh axes: "data", "row.col", { "row", "col" }
--     context.new(parallel.resolve({ tensor = { size = 8, mode = "3d" } }, 32), 17):get_ranks_in_group "TENSOR"
--
-- Ranks and places in groups count from 0. Names of modes are aliases of sets of axes. An axis has the name of the
-- coordinate that varies along it, so PARALLEL_2D_ROW, the ranks of one row, is the axis `col`. context.new computes an
-- object from sizes alone, for any rank of any world, and starts nothing. The functions of the module use the context
-- of this process, which also has groups for communication. Groups that are no mesh axes come from
-- registry.group_initializers: a function(context) that returns { name = "pairs", groups = { { 0, 1 }, { 2, 3 } } }.
-- The trap: a mode of size 1 is a group of this rank alone, but a mode that belongs to another tensor.mode than that of
-- the job is an error; ask is_initialized first.
-- @module ganymede.job.context
local core = require "ganymede.core"
local geometry = require "ganymede.job.geometry"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local parallel = require "ganymede.job.parallel"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local tensor_modes = require "ganymede.job.tensor_modes"

local Context = {}
Context.__index = Context

local tensor_axes = tensor_modes.axis_names()
local axis_names = { "data", "shard", "expert", "pipeline", "sequence", unpack(tensor_axes) }
local model_axes = { "pipeline", "sequence", unpack(tensor_axes) }
local is_axis = {}
for _, name in ipairs(axis_names) do is_axis[name] = true end

-- Mode -> its axes, and, for a mode that belongs to one tensor.mode, that tensor.mode.
local modes = {
  GLOBAL = { axis_names }, DATA = { { "data", "shard", "expert" } }, PIPELINE = { { "pipeline" } },
  SEQUENCE = { { "sequence" } }, SEQUENCE_DP = { { "data", "shard", "expert", "sequence" } },
  MODEL = { model_axes }, TENSOR = { tensor_axes },
  MOE_EP = { { "expert" } }, MOE_DP = { { "data", "shard" } },
  PARALLEL_1D = { { "tensor" }, "1d" },
  PARALLEL_2D_ROW = { { "col" }, "2d" }, PARALLEL_2D_COL = { { "row" }, "2d" },
  PARALLEL_2P5D_ROW = { { "col" }, "2.5d" }, PARALLEL_2P5D_COL = { { "row" }, "2.5d" },
  PARALLEL_2P5D_DEP = { { "depth" }, "2.5d" }, PARALLEL_2P5D_XZ = { { "depth", "row" }, "2.5d" },
  PARALLEL_3D_INPUT = { { "input" }, "3d" }, PARALLEL_3D_WEIGHT = { { "weight" }, "3d" },
  PARALLEL_3D_OUTPUT = { { "output" }, "3d" }, PARALLEL_3D_INPUT_X_WEIGHT = { { "input", "weight" }, "3d" },
  PARALLEL_3D_OUTPUT_X_WEIGHT = { { "output", "weight" }, "3d" },
}

-- Pairs of neighbouring stages, which are lists and not a set of axes.
local neighbours = { PIPELINE_NEXT = 1, PIPELINE_PREV = -1 }

-- Adds the axes of tensor modes that users have registered.
local function learn_axes()
  for _, name in ipairs(tensor_modes.axis_names()) do
    if not is_axis[name] then
      for _, list in ipairs { tensor_axes, axis_names, model_axes } do list[#list + 1] = name end
      is_axis[name] = true
    end
  end
end

--- @param plan what parallel.resolve gave
-- @param rank from 0
function Context.new(plan, rank)
  learn_axes()
  if type(rank) ~= "number" or rank < 0 or rank >= plan.world or rank ~= math.floor(rank) then
    error(("context: there is no rank %s in a world of %d (ranks count from 0)"):format(tostring(rank), plan.world), 2)
  end
  local self = setmetatable({ plan = plan, rank = rank, axis = {}, coordinate = {}, virtual = {} }, Context)
  local stride = plan.world
  for i, axis in ipairs(plan.axes) do
    stride = stride / axis[2]
    self.axis[axis[1]] = { index = i, size = axis[2], stride = stride }
    self.coordinate[axis[1]] = math.floor(rank / stride) % axis[2]
  end
  self.data_parallel_size, self.pipeline_parallel_size = plan.data, plan.pipeline
  self.sequence_parallel_size, self.expert_parallel_size = plan.sequence.size, plan.expert
  self.tensor_parallel_size = plan.tensor.mode == "sequence" and plan.sequence.size or plan.tensor.size
  return self
end

-- ---------------------------------------------------------------- modes, axes and groups

local function unknown(name)
  local names = options.sorted_keys(modes)
  for _, axis in ipairs(axis_names) do names[#names + 1] = axis end
  for _, own in ipairs(registry.group_initializers:names()) do names[#names + 1] = own end
  error(("context: there is no ParallelMode, axis or registered group '%s'%s"):format(tostring(name),
    options.hint(name, names)), 0)
end

local function axes_in(list)
  local wanted = {}
  for _, name in ipairs(list) do
    if not is_axis[name] then unknown(name) end
    wanted[name] = true
  end
  return wanted
end

local function belongs(self, mode)
  local only, now = modes[mode][2], self.plan.tensor.mode
  return not only or only == now
end

-- Returns the names of the axes that a mode or axis set means, in the order of the mesh, without those of size 1.
local function axes_of(self, mode)
  local list = mode
  if mode == "TENSOR" and self.plan.tensor.mode == "sequence" then
    list = { "sequence" }
  elseif modes[mode] then
    if not belongs(self, mode) then
      error(("context: %s belongs to tensor.mode %s; this job's is %s (ask is_initialized first)"):format(mode,
        modes[mode][2], self.plan.tensor.mode or "none"), 0)
    end
    list = modes[mode][1]
  elseif type(mode) == "string" then
    list = parallel.axis_names(mode)
  elseif type(mode) ~= "table" then
    error("context: give a ParallelMode, an axis set such as \"row.col\", or a list of axes; got "
      .. tostring(mode), 0)
  end
  local wanted, found = axes_in(list), {}
  for _, axis in ipairs(self.plan.axes) do
    if wanted[axis[1]] then found[#found + 1] = axis[1] end
  end
  return found
end

-- Returns the ranks that differ from `rank` along these axes only, in ascending order.
local function along(self, axes, rank)
  local ranks = { rank }
  for _, name in ipairs(axes) do
    local axis, out = self.axis[name], {}
    for _, r in ipairs(ranks) do
      local first = r - math.floor(r / axis.stride) % axis.size * axis.stride
      for i = 0, axis.size - 1 do out[#out + 1] = first + i * axis.stride end
    end
    ranks = out
  end
  table.sort(ranks)
  return ranks
end

local function copy(list) return { unpack(list) } end

-- ---------------------------------------------------------------- groups of the user's own

local function wrong_group(name, fmt, ...)
  error(("group initializer %s: "):format(name) .. fmt:format(...), 0)
end

-- Returns a table from each rank to its list, for a list of lists of ranks. It is an error if a rank stands in two
-- lists, or does not exist.
local function check_groups(self, name, groups)
  local of = {}
  if type(groups) ~= "table" then wrong_group(name, "it must return { name =, groups = lists of ranks }") end
  for _, ranks in ipairs(groups) do
    if type(ranks) ~= "table" then wrong_group(name, "a group is a list of ranks; got %s", tostring(ranks)) end
    for _, rank in ipairs(ranks) do
      if type(rank) ~= "number" or rank < 0 or rank >= self.plan.world or rank ~= math.floor(rank) then
        wrong_group(name, "there is no rank %s in a world of %d", tostring(rank), self.plan.world)
      end
      if of[rank] then wrong_group(name, "rank %d is given twice", rank) end
      of[rank] = ranks
    end
  end
  return of
end

local function run_initializer(self, registered)
  local made = registry.group_initializers:get(registered)(self)
  if type(made) ~= "table" then wrong_group(registered, "it must return { name =, groups = lists of ranks }") end
  local name = made.name or registered
  if type(name) ~= "string" or modes[name] or neighbours[name] or is_axis[name] or self.own[name] then
    wrong_group(registered, "the name '%s' is taken", tostring(name))
  end
  self.own[name] = { groups = made.groups, of = check_groups(self, registered, made.groups) }
end

-- Returns the registered groups of this name, or nil. Initializers run once for each context, on first use.
local function own_groups(self, name)
  if type(name) ~= "string" then return nil end
  self.own, self.initialized = self.own or {}, self.initialized or {}
  for _, registered in ipairs(registry.group_initializers:names()) do
    if not self.initialized[registered] then
      self.initialized[registered] = true
      run_initializer(self, registered)
    end
  end
  return self.own[name]
end

local function is_built_in(mode)
  if type(mode) ~= "string" then return type(mode) == "table" end
  return modes[mode] ~= nil or is_axis[mode] or mode:find(".", 1, true) ~= nil
end

-- Returns the members of a rank's group, in order.
local function members(self, mode, rank)
  if neighbours[mode] then
    local ring = along(self, axes_of(self, "PIPELINE"), rank)
    local at = 0
    for i, r in ipairs(ring) do at = r == rank and i or at end
    local other = ring[(at - 1 + neighbours[mode]) % #ring + 1]
    if other == rank then return { rank } end
    return neighbours[mode] > 0 and { rank, other } or { other, rank }
  end
  local own = not is_built_in(mode) and own_groups(self, mode)
  if own and not own.of[rank] then
    error(("context: rank %d is in no group of '%s' (ask is_initialized first)"):format(rank, mode), 0)
  end
  if own then return own.of[rank] end
  return along(self, axes_of(self, mode), rank)
end

-- Runs fn(...); its errors name the line of the caller.
local function asked(fn, ...)
  local ok, result = pcall(fn, ...)
  if not ok then error(result, type(result) == "string" and 3 or 0) end
  return result
end

local function place(list, rank)
  for i, r in ipairs(list) do
    if r == rank then return i - 1 end
  end
end

-- ---------------------------------------------------------------- queries

function Context:get_global_rank() return self.rank end

--- Returns the ranks of this rank's group, in order. The place of a rank in it, from 0, is its local rank.
function Context:get_ranks_in_group(mode) return copy(asked(members, self, mode, self.rank)) end

--- Returns all groups of a mode as a list of lists, ordered by their first rank.
function Context:get_groups(mode)
  local function all()
    local own = not is_built_in(mode) and not neighbours[mode] and own_groups(self, mode)
    local out, seen = {}, {}
    if own then
      for i, ranks in ipairs(own.groups) do out[i] = copy(ranks) end
      return out
    end
    for rank = 0, self.plan.world - 1 do
      if not seen[rank] or neighbours[mode] then
        local ranks = members(self, mode, rank)
        for _, r in ipairs(ranks) do seen[r] = true end
        out[#out + 1] = ranks
      end
    end
    return out
  end
  return asked(all)
end

--- Returns this rank's place in its group, from 0.
function Context:get_local_rank(mode) return place(asked(members, self, mode, self.rank), self.rank) end

function Context:get_world_size(mode) return #asked(members, self, mode or "GLOBAL", self.rank) end

local function stepped(self, mode, by)
  local list = members(self, mode, self.rank)
  return list[(place(list, self.rank) + by) % #list + 1]
end

--- Returns the global rank after this one in its group; after the last comes the first.
function Context:get_next_global_rank(mode) return asked(stepped, self, mode, 1) end
function Context:get_prev_global_rank(mode) return asked(stepped, self, mode, -1) end

function Context:is_first_rank(mode) return asked(members, self, mode, self.rank)[1] == self.rank end

function Context:is_last_rank(mode)
  local list = asked(members, self, mode, self.rank)
  return list[#list] == self.rank
end

--- Returns whether the mode exists in this job: GLOBAL, DATA and MODEL always, the others if they were asked for.
function Context:is_initialized(mode)
  local plan = self.plan
  if mode == "GLOBAL" or mode == "DATA" or mode == "MODEL" then return true end
  if mode == "TENSOR" then return plan.tensor.mode ~= nil end
  if mode == "PIPELINE" or neighbours[mode] then return plan.pipeline > 1 end
  if mode == "SEQUENCE" or mode == "SEQUENCE_DP" then
    return plan.sequence.size > 1 or plan.tensor.mode == "sequence"
  end
  if mode == "MOE_EP" or mode == "MOE_DP" then return plan.expert > 1 end
  if modes[mode] then return belongs(self, mode) end
  if is_built_in(mode) then return #asked(axes_of, self, mode) > 0 end
  local own = asked(own_groups, self, mode)
  if not own then asked(unknown, mode) end
  return own.of[self.rank] ~= nil
end

-- ---------------------------------------------------------------- the pipeline

--- Interleaved schedules give a stage several chunks of the model. These functions set and return how many, and which
-- of them runs now (from 0; nil: none).
function Context:set_virtual_pipeline_parallel_size(size) self.virtual.size = size end
function Context:set_virtual_pipeline_parallel_rank(rank) self.virtual.rank = rank end
function Context:virtual_pipeline_parallel_size() return self.virtual.size end
function Context:virtual_pipeline_parallel_rank() return self.virtual.rank end

--- Sets which parts of the model (from 1, of so many) this stage holds as its chunks. gm.build_pipeline_model and
-- gm.initialize call it. Before that, chunk after chunk lies along the stages.
function Context:set_pipeline_parts(parts, n_parts) self.held = { parts = parts, n_parts = n_parts } end

-- Whether the chunk that runs now holds this part (1, or -1 for the last). If none runs: whether any chunk of the stage
-- does.
local function holds_part(self, part, ignore_virtual)
  local stages, chunks = self.plan.pipeline, self.virtual.size or 1
  local held = self.held or { n_parts = stages * chunks,
    parts = geometry.looped(stages, chunks)[(self.coordinate.pipeline or 0) + 1] }
  if part < 0 then part = held.n_parts end
  local running = not ignore_virtual and #held.parts > 1 and self.virtual.rank
  if running then return held.parts[running + 1] == part end
  for _, own in ipairs(held.parts) do
    if own == part then return true end
  end
  return false
end

--- Returns whether this stage holds the part of the model that reads the input; while one of several chunks runs,
-- whether that chunk does. Stages of V-shaped orders may hold both the first part and the last.
function Context:is_pipeline_first_stage(ignore_virtual) return holds_part(self, 1, ignore_virtual) end

--- Returns the same for the part that returns the output.
function Context:is_pipeline_last_stage(ignore_virtual) return holds_part(self, -1, ignore_virtual) end

-- ---------------------------------------------------------------- experts

--- Returns the sizes of a mixture of num_experts experts on at most max_ep ranks of this world (default: all):
-- { expert = number of ranks that share the experts, data = number of copies of such a group, local_experts = number of
-- experts on a rank }. As in Colossal-AI, one of num_experts and max_ep must divide the other.
function Context:expert_sizes(num_experts, max_ep)
  local world = self.plan.world
  max_ep = max_ep or world
  if world % max_ep ~= 0 then
    error(("context: max_ep = %d does not divide the %d ranks"):format(max_ep, world), 2)
  end
  if num_experts % max_ep == 0 then
    return { expert = max_ep, data = world / max_ep, local_experts = num_experts / max_ep }
  end
  if max_ep % num_experts ~= 0 then
    error(("context: %d experts and max_ep = %d: one must divide the other"):format(num_experts, max_ep), 2)
  end
  return { expert = num_experts, data = world / num_experts, local_experts = 1 }
end

-- ---------------------------------------------------------------- the live context

local live -- the one of this process

--- Returns the group of a mode, for ganymede.job.comm. It is made on first use, without communication.
function Context:get_group(mode)
  if self ~= live then error("context: a context of context.new has no groups; only that of this process has", 2) end
  local function make()
    local own = not is_built_in(mode) and mode
    if own then return core.comm_group_of(own, members(self, own, self.rank)) end
    local axes = axes_of(self, mode)
    return core.comm_group(axes) -- no axes: this rank alone
  end
  return asked(make)
end

--- Returns the same group, because ranks exchange through host memory here.
Context.get_cpu_group = Context.get_group

--- Returns the number of ranks of this job that run on this machine. Collective.
function Context:detect_num_processes_on_current_node()
  if self.plan.world == 1 then return 1 end
  local file = assert(io.open "/proc/sys/kernel/random/boot_id")
  local id, same = file:read "*l", 0
  file:close()
  for _, other in ipairs(core.comm_exchange(core.comm_group(), id)) do same = same + (other == id and 1 or 0) end
  return same
end

--- Returns the name of the device of this process. A process has one device, so any ordinal except 0 and nil is an
-- error.
function Context.set_device(_, ordinal)
  local device = core.device()
  if ordinal ~= nil and ordinal ~= 0 then
    error(("context: there is no device %s; a rank has one %s"):format(tostring(ordinal), device.name), 2)
  end
  return device.name
end

--- Seeds all random numbers, equally on all ranks. There are no seeds for single modes: a random number is a function
-- of the seed and the global index of its element. So copies draw the same numbers, and pieces draw their parts of the
-- whole, whichever rank computes them.
function Context.set_seed(_, seed) core.set_seed(seed) end

--- Returns { seed = the one seed of all modes }, which set_seed_states restores. The rest of the state is the step.
function Context.get_seeds(_) return { seed = core.seed() } end
Context.get_states = Context.get_seeds
function Context.set_seed_states(_, states) core.set_seed(states.seed) end

local function is_mesh(axes)
  local mesh = core.mesh()
  for i, axis in ipairs(axes) do
    if not mesh[i] or mesh[i].name ~= axis[1] or mesh[i].size ~= axis[2] then return false end
  end
  return #mesh == #axes
end

--- Raises an error unless the sizes fit the world and the mesh of this process.
function Context:check_sanity()
  local product = 1
  for _, axis in ipairs(self.plan.axes) do product = product * axis[2] end
  if product ~= self.plan.world then
    error(("context: the axes have %d ranks, and the world has %d"):format(product, self.plan.world), 2)
  end
  if self ~= live then return true end
  if core.world() ~= product then
    error(("context: it was made for %d ranks, and this job has %d"):format(product, core.world()), 2)
  end
  if not is_mesh(self.plan.axes) then
    error("context: the mesh of this process was changed by other means; make it by gm.launch or context.load_config",
      2)
  end
  return true
end

local context = { new = Context.new, Context = Context }

--- The names of modes, as in Colossal-AI: context.ParallelMode.DATA. A wrong name is an error.
context.ParallelMode = setmetatable({}, { __index = function(_, name) asked(unknown, name) end })
for name in pairs(modes) do context.ParallelMode[name] = name end
for name in pairs(neighbours) do context.ParallelMode[name] = name end

--- Returns the context of this process. Before gm.launch or gm.fit, all ranks are data ranks.
function context.current()
  if not live then live = Context.new(assert(parallel.resolve({}, core.world())), core.rank()) end
  return live
end

--- Makes the mesh of a plan that of this process and returns its context, whose `config` is config (or nil).
function context.install(plan, config)
  if not is_mesh(plan.axes) then core.set_mesh(plan.axes) end
  live = Context.new(plan, core.rank())
  live.config = config
  return live
end

--- Loads a config, a table or the path of a recipe that returns one, and returns the context of this process.
-- gm.initialize then takes its settings from it, as from gm.launch.
function context.load_config(given)
  if type(given) == "string" then given = require("ganymede.config.recipe").table_of(given) end
  local plan, message = parallel.resolve(given.parallel, core.world())
  if not plan then error("context: " .. message, 2) end
  local resolved = require("ganymede.config").resolve(given, { file = "context.load_config", in_code = true })
  context.install(plan, given).launched = resolved.config
  return live
end

--- Forgets the context; the next use makes a new one.
function context.destroy() live = nil end

-- Every query is also a function of the module; context:query() works, too.
signature.export("context", Context, ":")
signature.export("context", context)

missing.provide("context", function()
  local names = options.sorted_keys(context)
  for _, name in ipairs(options.sorted_keys(Context)) do
    if name ~= "__index" then names[#names + 1] = name end
  end
  return names
end)
return setmetatable(context, {
  __index = function(_, name)
    local now = context.current()
    local value = now[name]
    if value == nil then
      if name == "config" then error("context: there is no config before gm.launch", 2) end
      missing.refuse("context", name, 2)
    end
    if type(value) ~= "function" then return value end
    return function(first, ...)
      if first == context then return value(now, ...) end
      return value(now, first, ...)
    end
  end,
})
