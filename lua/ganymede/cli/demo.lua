--- ganymede demo: trains a small vision transformer on Fashion-MNIST, by the same path as `run`.
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

local verb = { summary = "train a small vision transformer on Fashion-MNIST" }

verb.examples = { "ganymede demo" }

local recipe = "recipes/vit_fashion_mnist.lua"

function verb.arguments(parser)
  parser:option("--steps", "end after N optimizer steps (default: all epochs of the recipe)"):argname "N"
  parser:option("--out", "the folder for checkpoints and logs"):argname "DIR"
end

function verb.run(args)
  local cli = require "ganymede.cli"
  local stats_path = os.tmpname()
  local words = { "run", GANYMEDE_ROOT .. "/" .. recipe, "--stats", stats_path }
  for _, name in ipairs { "steps", "out" } do
    if args[name] then
      table.insert(words, "--" .. name)
      table.insert(words, args[name])
    end
  end
  local code = cli.main(words)
  local text = machine.read(stats_path)
  os.remove(stats_path)
  if code ~= 0 then return code end

  local stats = json.decode(text, "the statistics of the run")
  local accuracy = (((stats.metrics or {}).test) or {}).accuracy
  if not accuracy then failure(1, "demo: the run ended without a test accuracy") end
  print(("\nTest accuracy %.2f %% after %d steps, %.0f s, %.0f samples a second on %d threads."):format(100 * accuracy,
    stats.steps, stats.seconds, stats.samples_per_second, stats.threads))
  print "\nWhat to try next:"
  for _, try in ipairs {
    { "run " .. recipe .. " --set optimizer.lr=3e-3", "one setting changed" },
    { "check " .. recipe, "what it would train, without training" },
    { "repl", "tensors and layers by hand" },
  } do print(("  ./ganymede %-56s  %s"):format(try[1], try[2])) end
  return 0
end

return verb
