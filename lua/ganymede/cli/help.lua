--- ganymede help [NAME]: the verbs, the keys of a recipe, the environment, or the reference of a name.
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

local verb = { prints = true,
  summary = "list the verbs, or explain a name: a verb, a function, a class, a setting" }

verb.examples = { "ganymede help", "ganymede help AdamW", "ganymede help parallel.tensor.mode" }

function verb.arguments(parser)
  parser:argument("name", "`recipe`, `environment`, or a name: run, AdamW, ops.linear, x:sum, parallel.tensor.mode")
    :args "?"
end

local function indented(text, by) return (text:gsub("[^\n]+", by .. "%0")) end

-- The keys of a level of the schema and of those below.
local function keys(fields, by, lines)
  for _, key in ipairs(options.sorted_keys(fields)) do
    lines[#lines + 1] = indented(options.help { [key] = fields[key] }, by)
    if fields[key].fields and next(fields[key].fields) then keys(fields[key].fields, by .. "    ", lines) end
  end
  return lines
end

local function recipe()
  local registry = require "ganymede.base.registry"
  print("the keys of a recipe\n\n" .. table.concat(keys(require("ganymede.config.schema").fields, "", {}), "\n"))
  print "\nvalues of `type`"
  for _, kind in ipairs { "models", "datasets", "transforms", "losses", "optimizers", "lr_schedulers", "hooks" } do
    print(("  %-14s %s"):format(kind, table.concat(registry[kind]:names(), ", ")))
  end
end

function verb.run(args)
  local cli = require "ganymede.cli"
  if not args.name then return print(cli.overview()) end
  if args.name == "recipe" then return recipe() end
  if args.name == "environment" then return print(require("ganymede.base.environment").help()) end
  if cli.is_reserved(args.name) then cli.verb(args.name) end
  local text, why = require("ganymede.reference").explain(args.name)
  if not text then failure(2, "%s; `ganymede help` lists the verbs, `ganymede help recipe` the settings", why) end
  print(text)
end

return verb
