--- The rate of an update: what was given to step, or else optimizer.lr, which schedulers write and users may.
--
-- Nothing checks optimizer.lr when somebody sets it, so each update does. The error names the user's line.
-- @module ganymede.optim.rate
local options = require "ganymede.base.options"
local own = require "ganymede.base.own"

local function is_rate(x) return type(x) == "number" and x >= 0 and x < math.huge end

--- Returns the rate of the next update. given: that of step { lr = }, or nil.
return function(optimizer, given)
  local lr = given
  if lr == nil then lr = optimizer.lr end
  if is_rate(lr) then return lr end
  local name = given == nil and "optimizer.lr" or "optimizer:step: option 'lr'"
  error(("%s%s must be a finite number, at least 0; got %s"):format(own.place(), name, options.brief(lr)), 0)
end
