--- Makes the entries of the verbs for the reference, from their parsers (lua-argparse). Completion and the man page
-- read the same tables.
-- @module ganymede.cli.describe
local cli = require "ganymede.cli"
local entry = require "ganymede.reference.entry"

local verbs = {}

-- Returns the name of the argument of an option, such as "N" or "cpu|cuda"; nil for a flag.
local function argument_of(option)
  if option._maxargs == 0 then return nil end
  local name = option._argname
  if type(name) == "table" then name = name[1] end
  return name or option._choices and table.concat(option._choices, "|") or option._name:upper():gsub("^%-+", "")
end

-- Describes one option. An option that may be given many times has `repeats`.
local function described(option)
  return { names = option._aliases, argument = argument_of(option), choices = option._choices,
    text = option._description, default = option._default, repeats = option._maxcount == math.huge }
end

--- What a verb takes: { name, summary, options = list of { names, argument, choices, text, default, repeats },
-- arguments = list of { name, text, least, most } }.
-- @param name (string) one of cli.verbs
function verbs.describe(name)
  local parser = cli.parser(name, cli.verb(name))
  local out = { name = name, summary = parser._description, options = {}, arguments = {} }
  for i, option in ipairs(parser._options) do out.options[i] = described(option) end
  for i, argument in ipairs(parser._arguments) do
    out.arguments[i] = { name = argument._name, text = argument._description, least = argument._minargs,
      most = argument._maxargs }
  end
  return out, parser
end

local function option_row(option)
  local shown = table.concat(option.names, ", ")
  if option.argument then shown = shown .. " " .. option.argument end
  return { name = shown, allowed = option.argument and "takes " .. option.argument or "a flag",
    default = option.default and "default " .. option.default or nil, text = option.text }
end

local function add_verb(name, add)
  local about, parser = verbs.describe(name)
  local made = entry.new({ kind = "verb", name = "ganymede " .. name, short = name, names = { name } }, about.summary)
  made.summary = about.summary:gsub("^%l", string.upper) .. "."
  made.verbatim, made.described = parser:get_help(), about
  for i, option in ipairs(about.options) do made.options[i] = option_row(option) end
  for i, argument in ipairs(about.arguments) do
    made.arguments[i] = { name = argument.name, allowed = argument.least == 0 and "may be left out" or "must be given",
      text = argument.text }
  end
  made.calls[1] = parser:get_usage():gsub("^Usage: ", ""):gsub("\n%s*", " ")
  made.example = cli.verb(name).examples
  add(made)
end

return setmetatable(verbs, { __call = function(_, add)
  for _, name in ipairs(cli.verbs) do add_verb(name, add) end
end })
