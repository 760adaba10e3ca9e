--- What one spec file leaves behind in this process must not reach the next: fresh.keep() at the start, and before each
-- file fresh.restore() brings back the registries, settings of the rank, the context, the mesh and where new parameters
-- rest, and collects what nothing names any more (an engine with a loss scale or with offload lives until then).
-- The trap: what a file changes in modules and globals by other ways is its own to put back.
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local module = require "ganymede.nn.module"
local registry = require "ganymede.base.registry"

local fresh = {}
local kept -- as it was before the first file
local used = false -- whether a file has run

local function copy(list)
  local out = {}
  for key, value in pairs(list) do out[key] = value end
  return out
end

-- In place, since others hold the table.
local function become(list, was)
  for key in pairs(copy(list)) do list[key] = nil end
  for key, value in pairs(was) do list[key] = value end
end

local function registries()
  local list = {}
  for name, one in pairs(registry) do
    if type(one) == "table" and not name:match "^%u" then list[#list + 1] = one end
  end
  return list
end

-- "data 4, row 2"
local function shown(mesh)
  local said = {}
  for i, axis in ipairs(mesh) do said[i] = ("%s %d"):format(axis.name or axis[1], axis.size or axis[2]) end
  return table.concat(said, ", ")
end

function fresh.keep()
  kept = { dtype = core.default_dtype(), seed = core.seed(), recording = core.no_grad(0), registries = {}, mesh = {},
    made_parameter = module.made_parameter }
  for i, axis in ipairs(core.mesh()) do kept.mesh[i] = { axis.name, axis.size } end
  for _, one in ipairs(registries()) do
    kept.registries[one] = { classes = copy(one:known()), order = copy(one.order) }
  end
end

function fresh.restore()
  for one, was in pairs(kept.registries) do
    become(one.classes, was.classes)
    become(one.order, was.order)
  end
  core.scope_unwind(0)
  core.tape_drop()
  core.no_grad(kept.recording - core.no_grad(0))
  core.set_path ""
  core.set_default_dtype(kept.dtype)
  core.set_seed(kept.seed)
  core.set_rng_step(0)
  core.memory_limit(0)
  core.keep_gathered(false)
  if core.world() > 1 then core.comm_set_phase "other" end
  module.made_parameter = kept.made_parameter
  context.destroy()
  if shown(core.mesh()) ~= shown(kept.mesh) then core.set_mesh(kept.mesh) end
  if used then
    collectgarbage()
    collectgarbage()
  end
  used = true
end

return fresh
