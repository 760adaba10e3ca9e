--- Recipes: files that describe a training run, or do one.
--
--     return gm.recipe { name = ..., model = ..., ... }   -- checked and trained by `ganymede run`
--
-- A file may also return a plain table, or do everything in code and return nothing; then the run is over
-- when the file ends. The trap: a recipe is run to be read, so what it does at its top level happens also
-- under `check`.
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

--- Somebody trains by this table, or looks into it.
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

-- Modules beside the recipe can be required, after all others.
local function add_folder(path)
  local folder = path:match "^(.*)/[^/]*$" or "."
  package.path = package.path .. ";" .. folder .. "/?.lua"
end

--- Reads and compiles a recipe -> { path, text, chunk }. Not run yet. Status 2 when it cannot be.
function recipe.read(path)
  local text = contents(path)
  if text:sub(1, 1) == "\27" then failure(2, "%s is compiled Lua; a recipe is Lua source", path) end
  local chunk, why = loadstring(text:gsub("^#[^\n]*", "--", 1), "@" .. path)
  if not chunk then failure(2, "%s", why) end
  return { path = path, text = text, chunk = chunk }
end

--- Runs what recipe.read gave -> the table of settings, or nil when the file did its work itself.
function recipe.run(source, ...)
  add_folder(source.path)
  local result = source.chunk(...)
  if recipe.is_recipe(result) or (type(result) == "table" and getmetatable(result) == nil) then return result end
  if result == nil and waiting["@" .. source.path] then
    failure(2, "%s makes a recipe and returns nothing; write: return gm.recipe { ... }", source.path)
  end
  return nil
end

--- The table that a file returns, for who builds on it.
function recipe.table_of(path)
  local given = recipe.run(recipe.read(path))
  if not given then failure(2, "%s returns no table of settings", path) end
  local copy = {}
  for key, value in pairs(given) do copy[key] = value end
  return copy
end

signature.export("recipe", recipe)

return setmetatable(recipe, { __call = function(_, settings) return recipe.new(settings) end })
