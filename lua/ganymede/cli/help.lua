--- ganymede help [NAME]: the verbs, one verb, the keys of a recipe, the environment, or the options of a class.
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

local verb = { prints = true,
  summary = "list the verbs, or explain one, `recipe`, `environment`, or a class such as AdamW" }

function verb.arguments(parser)
  parser:argument("name", "a verb, `recipe`, `environment`, or a class that recipes name"):args "?"
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

-- What is registered under this name, in any registry -> list of { kind, class }. Names of registries in capitals are
-- Colossal-AI's for the same ones.
local function classes(name)
  local found = {}
  local registry = require "ganymede.base.registry"
  for _, kind in ipairs(options.sorted_keys(registry)) do
    local shelf = registry[kind]
    local own = kind:find "^%l" and type(shelf) == "table"
    if own and shelf:has(name) then found[#found + 1] = { kind, shelf:get(name) } end
  end
  return found
end

local function explain_class(kind, class, name)
  local spec = type(class) == "table" and class.options
  print(("%s, one of the %s%s"):format(name, (kind:gsub("_", " ")), spec and next(spec) and "; options:" or ""))
  if spec and next(spec) then print(options.help(spec)) end
end

function verb.run(args)
  local cli = require "ganymede.cli"
  if not args.name then return print(cli.overview()) end
  if args.name == "recipe" then return recipe() end
  if args.name == "environment" then return print(require("ganymede.base.environment").help()) end
  local found = classes(args.name)
  for _, entry in ipairs(found) do explain_class(entry[1], entry[2], args.name) end
  if #found > 0 then return end
  local ok, verb_module = pcall(cli.verb, args.name)
  if not ok then failure(2, "%s, `ganymede help recipe`", failure.text(verb_module)) end
  print(cli.parser(args.name, verb_module):get_help())
end

return verb
