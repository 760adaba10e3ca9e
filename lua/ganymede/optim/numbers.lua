--- Options that are lists of numbers, checked.
-- @module ganymede.optim.numbers
local options = require "ganymede.base.options"

-- What the numbers of an option are, in words and as a test.
local kinds = {
  betas = { "from 0, below 1", function(b) return b >= 0 and b < 1 end },
  eps = { "above 0", function(e) return e > 0 end },
}

--- Returns the `count` numbers of the list opt[option]; option: betas or eps. name: of the optimizer, for errors.
return function(name, opt, option, count)
  local list, words, fits = opt[option], unpack(kinds[option])
  if #list ~= count then
    error(("%s: %s has %d numbers; got %s"):format(name, option, count, options.literal(list)), 0)
  end
  for i, number in ipairs(list) do
    if type(number) ~= "number" or not fits(number) then
      error(("%s: %s[%d] must be a number %s; got %s"):format(name, option, i, words, options.literal(number)), 0)
    end
  end
  return unpack(list)
end
