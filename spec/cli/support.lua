--- For specs of the command line: a folder of their own, a small recipe, runs of this executable.
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local support = {}

--- A recipe that learns 512 points in 10 clusters: 16 steps an epoch.
support.recipe = [[
return {
  name = "points",
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
  data = {
    train = { type = "Synthetic", length = 512, shape = { 16 } },
    test = { type = "Synthetic", length = 256, shape = { 16 }, split = "test" },
    batch_size = 32,
  },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "AccuracyHook" } },
  seed = 3,
}
]]

--- A new folder with recipe.lua (text, default support.recipe) and other files { name = text }.
function support.home(text, files)
  local home = shell.temporary_folder()
  shell.write(home .. "/recipe.lua", text or support.recipe)
  for name, content in pairs(files or {}) do shell.write(home .. "/" .. name, content) end
  return home
end

--- Runs `ganymede words...` there on one thread -> { code, out, err }.
function support.run(home, words, options)
  options = options or {}
  options.cwd = home
  options.env = options.env or {}
  options.env.GANYMEDE_ROOT = GANYMEDE_ROOT
  return run_host(words, options)
end

--- Names in a folder, sorted, as one string.
function support.names(path) return table.concat(shell.lines("LC_ALL=C ls " .. shell.quote(path)), " ") end

function support.json(path) return json.decode(shell.read(path), path) end

support.shell = shell

return support
