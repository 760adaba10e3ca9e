--- ZeRO says what the data ranks divide of a model (Rajbhandari et al. 2020, arXiv:1910.02054).
--
-- The reducer (host/gradients/reducer.h) does stages 1 and 2, and host/gradients/stored.h does stage 3: zero.store
-- divides a parameter. ganymede.optim.zero_setting has the setting.
-- The trap: a parameter that rests in parts is gathered by all ranks that hold it, when any op uses it.
-- @module ganymede.optim.zero
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local setting = require "ganymede.optim.zero_setting"

local zero = {}

--- Returns the options of a setting `zero` (or nil) on this mesh.
function zero.options(given)
  local opt = setting.options(given)
  if opt.size and context.current().plan.shard ~= opt.size then
    error("zero has a size, which belongs to the mesh: give it to gm.launch, or set parallel.data.shard there", 0)
  end
  return opt
end

--- Returns the axes whose ranks divide what belongs to a parameter: all ranks that hold parts of a batch, or with
-- zero.size an inner part of them. The others hold copies of what these hold.
function zero.owners()
  return context.current().plan.shard and { "shard", "expert" } or { "data", "expert" }
end

--- Divides a parameter that exists, as the options say. No communication.
function zero.store(t, opt)
  if opt.stage == 3 and core.world() > 1 then core.parameter_store(t, zero.owners(), opt.whole_below) end
end

--- Sets how much memory gathered parameters may take.
function zero.rest(opt)
  if opt.stage == 3 and core.world() > 1 then core.stored_limits(opt.keep, opt.ahead) end
end

return zero
