--- The first numbers of parameters from elsewhere, read when a parameter is made, in whatever layout it has then.
-- @module ganymede.hub.values
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local tensors = require "ganymede.tensor"

local values = {}

--- readers: { [name of a parameter] = function(tensor), which fills it }. A parameter that exists already is filled at
-- once. On the meta device nothing is read.
function values.set(model, readers)
  for _, p in ipairs(model:declared()) do
    local read = readers[p.name]
    if read and not p.tied then
      local function finish(t)
        if core.device().backend ~= "meta" then tensors.no_grad(read, t:detach()) end
      end
      if p.entry.tensor then finish(p.entry.tensor) end
      p.entry.initializer = init.zeros()(1, 1)
      p.entry.initializer.finish = finish
    end
  end
end

return values
