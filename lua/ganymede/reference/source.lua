--- Where things are defined in lua/ganymede: classes by their name, functions by what the program knows of them.
--
-- A class is found by its definition: a line on which its name, in quotation marks, is the first argument of a call
-- (`module.class "Linear"`, `define("Normalize", {`), with a comment right above. The files are there at run time.
-- @module ganymede.reference.source
local core = require "ganymede.core"
local text = require "ganymede.reference.text"

local source = {}

local function files_below(folder, out)
  for _, name in ipairs(core.list_folder(folder)) do
    local path = folder .. "/" .. name
    if name:match "%.lua$" then out[#out + 1] = path elseif not name:find("%.") then files_below(path, out) end
  end
  return out
end

local definitions -- name -> list of { path, line, text }

-- Every line that calls something with a string first, and has a comment above.
local function scan()
  definitions = {}
  local files = files_below(GANYMEDE_ROOT .. "/lua/ganymede", {})
  table.sort(files)
  for _, path in ipairs(files) do
    for i, line in ipairs(text.lines(path)) do
      local name = line:match '^[%w_%.:%[%] =]*[%w_][ %(]+"([%w_%-%.]+)"'
      local comment = name and text.above(path, i)
      if comment then
        definitions[name] = definitions[name] or {}
        table.insert(definitions[name], { path = path, line = i, text = comment })
      end
    end
  end
end

--- The definition of a class, { path, line, text }; of several the one whose comment says most. nil: there is none.
-- @param name (string) the name that it registers
-- @param folder (string) part of the path; left out: any
function source.definition(name, folder)
  if not definitions then scan() end
  local best
  for _, found in ipairs(definitions[name] or {}) do
    local fits = not folder or found.path:find(folder, 1, true)
    if fits and (not best or #found.text > #best.text) then best = found end
  end
  return best
end

--- "lua/ganymede/nn/linear.lua:12" of an absolute path and a line.
function source.place(path, line)
  local root = GANYMEDE_ROOT .. "/"
  if path:sub(1, #root) == root then path = path:sub(#root + 1) end
  return line and ("%s:%d"):format(path, line) or path
end

--- The file of what debug.getinfo says; nil: there is none. What was compiled with the program is called
-- "ganymede/nn/linear.lua" there.
function source.path(about)
  local path = about and about.source:match "^@(.*)"
  return path and (path:find "^ganymede/" and GANYMEDE_ROOT .. "/lua/" .. path or path)
end

--- The comment above a function of Lua, and its place; nil where there is none.
function source.of_function(about)
  local path = source.path(about)
  if not path then return nil end
  return text.above(path, about.linedefined), source.place(path, about.linedefined)
end

return source
