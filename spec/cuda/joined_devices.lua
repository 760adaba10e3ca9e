--- What specs of several ranks that have a device each share: they join by NCCL, and are well after what went wrong.
local assert = require "luassert"
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

local joined_devices = {}

--- The ranks are the axis `data`, and a rank that is missed is named after 2 seconds. COLLECTIVE
function joined_devices.join()
  core.set_mesh { { "data", core.world() } }
  assert.matches("^NCCL %d", core.comm_use_device "nccl")
  core.comm_set_timeout(2)
end

--- A sum over all ranks is right, and no rank has failed. COLLECTIVE
function joined_devices.all_is_well()
  local world = core.world()
  local t = comm.all_reduce(gm.full({ 1000 }, core.rank() + 1), "data")
  assert.equal(1000 * world * (world + 1) / 2, t:sum():item())
  assert.equal(0, (core.comm_section_end(true)))
end

return joined_devices
