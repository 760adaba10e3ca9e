--- :load and :run of the REPL: a file of Lua, and a recipe, in the session itself. On several ranks each runs it.
--
--     :load tools.lua                       what the file assigns stays; what it returns is printed
--     :run recipe.lua steps=20 seed=3       trains; trainer, engine, model and optimizer are there afterwards
--
-- Both return a chunk, which the REPL runs as a line: Ctrl-C stops it, and an error ends it alone. Each rank reads the
-- file for itself. The trap: `:run` makes the mesh of the recipe that of the session, and sets its seed.
-- @module ganymede.repl.files
local core = require "ganymede.core"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"

local files = {}

--- "a word 'two words'" -> the words; quotes keep spaces, and a word may have braces with spaces in them.
function files.words(text)
  local list, at = {}, 1
  while true do
    at = text:find("%S", at)
    if not at then return list end
    local quote, inner, after = text:match("^([\"'])(.-)%1()", at)
    if quote then
      list[#list + 1], at = inner, after
    else
      local word, depth, i = at, 0, at
      while i <= #text and (depth > 0 or not text:sub(i, i):find "%s") do
        local c = text:sub(i, i)
        depth = depth + (c == "{" and 1 or c == "}" and -1 or 0)
        i = i + 1
      end
      list[#list + 1], at = text:sub(word, i - 1), i
    end
  end
end

--- :load -> a chunk; nil and what is wrong.
function files.load(repl, rest)
  local words = files.words(rest)
  if #words ~= 1 then return nil, ":load takes a file of Lua: :load tools.lua" end
  local text, why = machine.read(words[1])
  if not text then return nil, ("cannot read %s%s"):format(words[1], why and ": " .. why or "") end
  if text:sub(1, 1) == "\27" then return nil, words[1] .. " is compiled Lua; :load takes its source" end
  local chunk, wrong = loadstring(text:gsub("^#[^\n]*", "--", 1), "@" .. words[1])
  if not chunk then return nil, wrong end
  return setfenv(chunk, repl.globals)
end

-- The table of a recipe and its settings, checked; nil: it has trained in code.
local function settled(path, sets)
  local config, recipe = require "ganymede.config", require "ganymede.config.recipe"
  local source = recipe.read(path)
  local given = recipe.run(source)
  if given then return config.of_source(source, given, { set = sets }).config end
  if sets[1] then
    error(("%s trains in code, and takes no settings here; set them in the file"):format(path), 0)
  end
end

local function tell(trainer)
  local losses, said = trainer.losses, {}
  for _, name in ipairs(options.sorted_keys(trainer.metrics.test or {})) do
    local value = trainer.metrics.test[name]
    if type(value) == "number" then said[#said + 1] = ("test %s %.6g"):format(name, value) end
  end
  return ("%d steps, last loss %.6g%s"):format(trainer.step, losses[#losses] or 0 / 0,
    said[1] and ", " .. table.concat(said, ", ") or "")
end

-- What the session prints while it trains, at once.
local function say(text)
  io.stdout:write(text, "\n")
  io.stdout:flush()
end

--- :run -> a chunk; nil and what is wrong.
function files.run(repl, rest)
  local words = files.words(rest)
  local path = table.remove(words, 1)
  if not path then return nil, ":run takes a recipe, and settings: :run recipe.lua steps=20 optimizer.lr=1e-3" end
  for _, word in ipairs(words) do
    if not word:find "^[%a_][%w_.]*=" then
      return nil, ("':run %s' takes settings such as optimizer.lr=1e-3; got '%s'"):format(path, word)
    end
  end
  if repl.in_job then return nil, "this job trains a recipe already; ':run' is for `ganymede repl`" end
  return function()
    local dtype = core.default_dtype()
    local settings = settled(path, words)
    if not settings then return end
    local failure = require "ganymede.base.failure"
    local trainer = failure.protect(function() core.set_default_dtype(dtype) end, require("ganymede").fit, settings,
      { log = say, recipe = path, command = { recipe = path, set = words } })
    local env, engine = repl.globals, trainer.engine
    env.trainer, env.engine, env.model, env.optimizer = trainer, engine, engine.model, engine.optimizer
    repl:say("%s", tell(trainer))
  end
end

return files
