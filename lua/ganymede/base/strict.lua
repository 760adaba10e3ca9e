--- Undeclared globals are errors: reading one that was never set, or setting one from a function.
-- `require "ganymede.base.strict".on()` guards _G; files that must define globals (the REPL, busted) call
-- `off()` or declare(name) first.
-- @module ganymede.base.strict
local M = {}
local declared = {}

local function undefined(_, name)
  error(("global '%s' is not defined"):format(tostring(name)), 3)
end

local function assigned(_, name)
  error(("global '%s' set; forgot local?"):format(tostring(name)), 3)
end

function M.on()
  setmetatable(_G, {
    __index = function(t, name) if not declared[name] then undefined(t, name) end end,
    __newindex = function(t, name, value)
      if not declared[name] then assigned(t, name) end
      rawset(t, name, value)
    end,
  })
end

function M.off() setmetatable(_G, nil) end

--- Allows reading and setting a global of this name.
function M.declare(name) declared[name] = true end

return M
