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
    if info.source:sub(1, 1) == "@" and info.source:sub(1, #files) ~= files and info.currentline > 0 then
      return ("%s:%d: "):format(info.short_src, info.currentline)
    end
  end
end

local PLACE = "^[^\n:]*lua/ganymede/[%w_/]+%.lua:%d+: "

--- A text of an error without the place in a file of Ganymede with which it may begin.
function own.without_place(text) return (text:gsub(PLACE, "")) end

-- What an error says behind its place, and whether that place is in a file of Ganymede; nil: it has another place.
local function behind_place(err)
  local rest = err:match(PLACE .. "(.*)$")
  if rest then return rest, true end
  return not err:find "^[^\n:]+:%d+: " and err or nil, false
end

-- Whether the handler of an error was called because a user's function called error: then the message is as wanted.
local function is_users_own()
  for level = 3, 5 do -- behind this and own.blamed
    local info = debug.getinfo(level, "f")
    if info and info.func == error then
      local by = debug.getinfo(level + 1, "S")
      return by ~= nil and by.what ~= "C" and by.source:sub(1, #files) ~= files
    end
  end
end

--- Returns a caught error with the line of the user's file that led to it, where it names a line of Ganymede's own
-- files or none. It is called while the stack of the error still stands, or at a level on the way up. What Lua itself
-- raised in Ganymede's files is a defect there and keeps its place.
function own.blamed(err)
  if type(err) ~= "string" or err == "not enough memory" then return err end
  local rest, is_ours = behind_place(err)
  if not rest or is_ours and (rest:find "^attempt to " or rest:find "^bad argument #") then return err end
  if not is_ours and is_users_own() then return err end
  return own.place() .. rest
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
