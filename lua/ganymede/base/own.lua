--- Which functions are Ganymede's own, so that they do the same each time they are called in the same way. What is
-- recorded once and replayed (ganymede.train.graph, ganymede.generation.recorded) must.
-- @module ganymede.base.own
local own = {}

local files = debug.getinfo(1, "S").source:match "^(.*/)base/own%.lua$" -- "@" and the folder lua/ganymede/

--- Whether a function is from Ganymede's own files.
function own.has(fn) return debug.getinfo(fn, "S").source:sub(1, #files) == files end

--- Returns "FILE:LINE: " of the innermost caller that is not Ganymede's own, for errors that come from far below it;
-- "": there is none.
function own.place()
  for level = 2, math.huge do
    local info = debug.getinfo(level, "Sl")
    if not info then return "" end
    if info.what ~= "C" and info.source:sub(1, #files) ~= files and info.currentline > 0 then
      return ("%s:%d: "):format(info.short_src, info.currentline)
    end
  end
end

--- Names what of a model may do something else each time; nil: nothing.
function own.foreign(model)
  for _, m in ipairs(model:modules()) do
    local functions = { forward = m.forward, sections = m.sections }
    for name, value in pairs(m.opt or {}) do functions["option " .. name] = value end -- nn.Lambda's
    for name, fn in pairs(functions) do
      if type(fn) == "function" and not own.has(fn) then
        return ("%s of %s (%s)"):format(name, m.name, m:path() == "" and "the model" or m:path())
      end
    end
  end
end

return own
