--- What the reference adds to a comment above a definition: argument by argument, errors, examples. What a
-- reader of the source needs stays in the source; what only users need stands in texts/<file>.txt, under `## NAME`:
--
--     ## module:path
--     @return a string
--     @example
--       layer:path() --> ""
--
-- A name under `##` is that of the entry (ganymede.reference.entry). Lines before the first `##` say what the file is;
-- there, `@setup` begins lines of Lua of which examples of the file may need some first.
-- @module ganymede.reference.texts
local core = require "ganymede.core"

local texts = {}

local loaded -- name -> { text, setup }

local function read(path)
  local file = assert(io.open(path, "r"))
  local given = file:read "*a"
  file:close()
  return given
end

local function take_file(path)
  local head, rest = read(path):match "^(.-)\n(## .*)$"
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

--- The text under a name, and the lines that its example needs first; nil where there is none.
function texts.of(name)
  if not loaded then load() end
  local found = loaded[name]
  if found then
    found.used = true
    return found.text, found.setup
  end
end

--- Names that no entry has asked for.
function texts.unused()
  local out = {}
  for name, found in pairs(loaded or {}) do
    if not found.used then out[#out + 1] = name end
  end
  table.sort(out)
  return out
end

--- A comment and what is added to it, as one text: the sentence that is added comes first.
function texts.joined(comment, added)
  if not added or not comment then return added or comment end
  local sentence, tags = added:match "^([^@].-)\n?(\n@.*)$"
  if not sentence then return comment .. "\n" .. added end
  return sentence .. "\n\n" .. comment .. tags
end

return texts
