--- Recipes are files that describe a training run, or train in code.
--
--     return gm.recipe { name = ..., model = ..., ... }   -- checked and trained by `ganymede run`
--
-- A file may also return a plain table, or do everything in code and return nothing; the run then ends with the file.
-- The trap: a recipe is run in order to read it, so what it does at its top level also happens under `check`.
local failure = require "ganymede.base.failure"
local signature = require "ganymede.base.signature"

local recipe = {}

local Recipe = {}
Recipe.__index = Recipe
recipe.Recipe = Recipe

local waiting = {} -- file -> the recipe that it made last, until somebody reads it

--- Marks a table as a recipe.
function recipe.new(settings)
  if type(settings) ~= "table" then error("gm.recipe takes a table of settings; got a " .. type(settings), 2) end
  if getmetatable(settings) then error("gm.recipe takes a plain table; this one has a metatable", 2) end
  waiting[debug.getinfo(2, "S").source] = settings -- `return gm.recipe {}` is a tail call: then it is not the file
  return setmetatable(settings, Recipe)
end

--- Notes that a table of a recipe is used.
function recipe.taken(settings)
  for file, made in pairs(waiting) do
    if made == settings then waiting[file] = nil end
  end
end

recipe.recipe = recipe.new -- what gm.recipe is

function recipe.is_recipe(value) return type(value) == "table" and getmetatable(value) == Recipe end

local function contents(path)
  local file, why = io.open(path, "rb")
  if not file then failure(2, "cannot read the recipe: %s", why) end
  local text, problem = file:read "*a"
  file:close()
  if not text then failure(2, "cannot read the recipe %s: %s", path, tostring(problem)) end
  return text
end

-- Lets modules in the folder of the recipe be required, after all others.
local function add_folder(path)
  local folder = path:match "^(.*)/[^/]*$" or "."
  package.path = package.path .. ";" .. folder .. "/?.lua"
end

local tables = { csv = "CSV", tsv = "CSV", jsonl = "Chat" }

-- What to do with a file that is no Lua, by its name.
local function no_recipe(path, why)
  local ending = (path:match "%.([%w]+)$" or ""):lower()
  local dataset = tables[ending]
  local try = dataset and ("data are named in a recipe, as data = { train = { type = %q, path = %q, ... } }; `ganymede "
    .. "data %s` shows what is in the file"):format(dataset, path, path)
    or "`ganymede help recipe` describes recipes, and `ganymede help` lists the verbs, of which others take other files"
  failure(2, "%s is no recipe: a recipe is a file of Lua that returns a table of settings, and this cannot be read as "
    .. "Lua (%s)\n  %s", path, (why:gsub("^.*:(%d+): ", "line %1: ", 1)), try)
end

--- Reads and compiles a recipe without running it, and returns { path, text, chunk }. If that fails, the status is 2.
function recipe.read(path)
  local text = contents(path)
  if text:sub(1, 1) == "\27" then failure(2, "%s is compiled Lua; a recipe is Lua source", path) end
  local chunk, why = loadstring(text:gsub("^#[^\n]*", "--", 1), "@" .. path)
  if not chunk and not path:find "%.lua$" then no_recipe(path, why) end
  if not chunk then failure(2, "%s", why) end
  return { path = path, text = text, chunk = chunk }
end

--- Runs the result of recipe.read and returns the table of settings; nil if the file has trained in code, and what it
-- returned instead.
function recipe.run(source, ...)
  add_folder(source.path)
  local result = source.chunk(...)
  if recipe.is_recipe(result) or (type(result) == "table" and getmetatable(result) == nil) then return result end
  if result == nil and waiting["@" .. source.path] then
    failure(2, "%s makes a recipe and does not return it; write: return gm.recipe { ... }", source.path)
  end
  return nil, result
end

--- Returns the table that a file returns, for settings that are based on it.
function recipe.table_of(path)
  local given = recipe.run(recipe.read(path))
  if not given then failure(2, "%s returns no table of settings", path) end
  local copy = {}
  for key, value in pairs(given) do copy[key] = value end
  return copy
end

signature.export("recipe", recipe)

return setmetatable(recipe, { __call = function(_, settings) return recipe.new(settings) end })
