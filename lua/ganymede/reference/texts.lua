--- What the reference adds to a comment above a definition: arguments, errors, examples. What a reader of the source
-- needs stays in the source; what only users need is in texts/<file>.txt, under `## NAME`:
--
--     ## module:path
--     @return a string
--     @example
--       layer:path() --> ""
--
-- The name after `##` is that of the entry (ganymede.reference.entry). Lines before the first `##` say what the file
-- is. There, `@setup` begins lines of Lua that examples of the file may need first.
-- @module ganymede.reference.texts
local core = require "ganymede.core"
local machine = require "ganymede.base.machine"

local texts = {}

local loaded -- name -> { text, setup }

local function take_file(path)
  local given = machine.read(path) or error(path .. " cannot be read", 0)
  local head, rest = given:match "^(.-)\n(## .*)$"
  if not head then error(path .. " has no `## NAME`", 0) end
  local setup = {}
  for line in (head:match "@setup\n(.*)$" or ""):gmatch "[^\n]+" do setup[#setup + 1] = (line:gsub("^  ", "")) end
  for name, body in (rest .. "\n## "):gsub("\n## ", "\n\1## "):gmatch "## ([^\n]+)\n([^\1]*)" do
    if loaded[name] then error(("%s: '%s' stands twice in the texts"):format(path, name), 0) end
    loaded[name] = { text = body, setup = setup, path = path }
  end
end

local function load()
  loaded = {}
  local folder = GANYMEDE_ROOT .. "/lua/ganymede/reference/texts"
  local names = core.list_folder(folder)
  table.sort(names)
  for _, name in ipairs(names) do
    if name:match "%.txt$" then take_file(folder .. "/" .. name) end
  end
end

--- Returns the text under a name, and the lines that its example needs first; nil if there is none.
function texts.of(name)
  if not loaded then load() end
  local found = loaded[name]
  if found then
    found.used = true
    return found.text, found.setup
  end
end

--- Returns the list of names that no entry has asked for.
function texts.unused()
  local out = {}
  for name, found in pairs(loaded or {}) do
    if not found.used then out[#out + 1] = name end
  end
  table.sort(out)
  return out
end

--- Joins a comment and what is added to it; the sentence that is added comes first.
function texts.joined(comment, added)
  if not added or not comment then return added or comment end
  local sentence, tags = added:match "^([^@].-)\n?(\n@.*)$"
  if not sentence then return comment .. "\n" .. added end
  return sentence .. "\n\n" .. comment .. tags
end

return texts
