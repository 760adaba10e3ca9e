--- What the C side of data and checkpoints reports, as errors with an exit status.
--
-- Those functions return nil, message, kind for what they met in a file; programming errors they raise.
-- @module ganymede.data.failing
local failure = require "ganymede.base.failure"

-- 5: damaged. 2: what was named cannot be had or does not fit, so the recipe is wrong. 1: the machine.
local status = { corrupt = 5, io = 2, invalid = 2, memory = 1 }

--- Passes values through; nil, message, kind becomes a failure. hint: what to try, after the message.
local function checked(hint, first, message, kind, ...)
  if first == nil and message ~= nil then
    failure(status[kind], "%s", hint and message .. "\n  " .. hint or message)
  end
  return first, message, kind, ...
end

return checked
