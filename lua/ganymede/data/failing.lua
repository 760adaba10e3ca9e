--- Turns what the C functions of data and checkpoints report into errors with an exit status.
--
-- For a problem with a file these functions return nil, message, kind. They raise programming errors themselves.
-- @module ganymede.data.failing
local failure = require "ganymede.base.failure"

-- 5: a file is damaged. 2: what the recipe names cannot be read or does not fit. 1: the machine has no memory.
local status = { corrupt = 5, io = 2, invalid = 2, memory = 1 }

--- Returns its values; nil, message, kind becomes a failure. hint: what to try; it stands after the message.
local function checked(hint, first, message, kind, ...)
  if first == nil and message ~= nil then
    failure(status[kind], "%s", hint and message .. "\n  " .. hint or message)
  end
  return first, message, kind, ...
end

return checked
