--- Makes one dimension of several: what stands between images and the dense layers behind them.
-- @module ganymede.nn.flatten
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local Flatten = module.class "Flatten"
Flatten.positional = { "first", "last" }
Flatten.aliases = { start_dim = "first", end_dim = "last" }
Flatten.options = {
  first = { type = "integer", min = -8, max = 8, default = 2,
    doc = "the first dimension that is joined with those behind it, from 1" },
  last = { type = "integer", min = -8, max = 8, default = -1, doc = "the last one; -1 is the last of x" },
}

--- x (n, ...) -> (n, elements of a sample), or with other dimensions joined. Backward: dx is set.
function Flatten:forward(x) return ops.flatten(x, self.opt.first, self.opt.last) end

return Flatten
