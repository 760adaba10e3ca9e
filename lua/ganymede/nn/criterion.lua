--- The loss of a recipe, and what it returns, checked where the engine calls it: the loss of a batch, and the number
-- of its targets.
--
-- Criteria are often a user's own. What they return wrongly is an error that says so, and no failure inside of the
-- engine that nobody can read.
-- @module ganymede.nn.criterion
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"

local criterion = {}

local function name_of(of) return type(of) == "table" and of.name or "the criterion" end

--- Returns the loss of a recipe. A function of output and target is the loss itself, as in gm.initialize; one without
-- arguments makes it, as a function makes a model.
function criterion.of_setting(given)
  if type(given) == "function" and debug.getinfo(given, "u").nparams > 0 then return given end
  local loss = registry.losses:build(given)
  if loss == nil then
    failure(2, "loss: the function returned nothing; without arguments it makes a loss, such as gm.nn.MSELoss {}, and "
      .. "function(output, target) ... end is one itself")
  end
  return loss
end

--- Returns of(output, target, count), a tensor.
function criterion.loss(of, output, target, count)
  local loss = of(output, target, count)
  if core.is_tensor(loss) then return loss end
  error(("%s must return the loss, a tensor of one number such as each:sum() / count; it returned %s"):format(
    name_of(of), loss == nil and "nothing" or options.brief(loss)), 0)
end

local function check(of, n)
  if type(n) == "number" and n >= 0 and n < math.huge then return end
  error(("count of %s must return the number of targets, such as target:numel(); it returned %s"):format(name_of(of),
    core.is_tensor(n) and "a tensor (n:item() is its number)" or n == nil and "nothing" or options.brief(n)), 0)
end

--- Returns the numbers of targets in a label, a list with one for each term of the criterion; with count_part, of
-- this rank's part of the label.
function criterion.counts(of, label)
  local counted = (of.count_part or of.count)(of, label)
  local list = type(counted) == "table" and counted or { counted }
  for k = 1, math.max(#list, 1) do check(of, list[k]) end
  return list
end

return criterion
