--- The command line: ganymede VERB [arguments].
--
-- A verb is a module ganymede.cli.<name>, a table with these fields: summary is a sentence; arguments(parser) declares
-- its options to a parser of lua-argparse; run(args) returns the exit status or nil; prints is true if the verb has the
-- purpose to print something; keeps_words is true if words of the command line go into files of JSON. main catches all
-- errors of a verb, prints each once on standard error, and returns the exit status (ganymede.base.failure). The trap:
-- specs and `demo` call main, so nothing here may end the process.
require("ganymede.base.compiler").start()
require "ganymede.base.public"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local readable = require "ganymede.base.readable"
local typed = require "ganymede.cli.words"

local cli = {}

-- In the order in which the help lists them.
cli.verbs = { "run", "slurm", "sweep", "cluster", "attach", "top", "resize", "report", "check", "simulate", "plan",
              "bench", "repl", "spec", "test", "data", "tokenize", "generate", "import", "export", "doctor", "demo",
              "docs", "version", "help" }
cli.reserved = {}

local function has(list, name)
  for _, entry in ipairs(list) do
    if entry == name then return true end
  end
  return false
end

--- Whether this is a reserved name: a verb that a later version will have.
function cli.is_reserved(name) return has(cli.reserved, name) end

--- Returns the module of a verb. An unknown name is an error of status 2 that suggests the nearest name.
function cli.verb(name)
  if has(cli.verbs, name) then return require("ganymede.cli." .. name) end
  if has(cli.reserved, name) then failure(2, "'%s' is a reserved name; this version does not have it yet", name) end
  failure(2, "there is no verb '%s'%s; see `ganymede help`", name, options.hint(name, cli.verbs))
end

--- Makes the parser of a verb.
function cli.parser(name, verb)
  local parser = require "argparse"("ganymede " .. name, verb.summary):add_help(false)
  parser:flag("-h --help", "show this help and end")
  if verb.arguments then verb.arguments(parser) end
  typed.named(parser)
  return parser
end

--- Returns the text that `ganymede help` prints.
function cli.overview()
  local lines = { "usage: ganymede VERB [arguments]", "" }
  for _, name in ipairs(cli.verbs) do
    lines[#lines + 1] = ("  %-8s %s"):format(name, cli.verb(name).summary)
  end
  lines[#lines + 1] = "\n`ganymede VERB --help` explains a verb. To begin: ganymede run recipes/vit_fashion_mnist.lua"
  return table.concat(lines, "\n")
end

local function wants_help(words)
  for i = 2, #words do
    if words[i] == "--" then return false end
    if words[i] == "-h" or words[i] == "--help" then return true end
  end
  return false
end

-- Refuses words that JSON cannot hold, before anything has begun.
local function refuse_bytes(name, words)
  for _, word in ipairs(words) do
    local shown = readable(word)
    if shown ~= word then
      failure(2, "'%s' on the command line is not UTF-8, and the files that `ganymede %s` writes hold text only; give "
        .. "the file or folder another name, or a link that has one", shown, name)
    end
  end
end

local function parse(name, verb, words)
  if verb.keeps_words then refuse_bytes(name, words) end
  local parser = cli.parser(name, verb)
  local rest = {}
  for i = 2, #words do rest[#rest + 1] = words[i] end
  local ok, result = parser:pparse(typed.joined(parser, rest))
  if not ok then failure(2, "%s\n`ganymede %s --help` lists what it takes", result:gsub("\nD", "; d"), name) end
  result.argv = words
  return result
end

--- Raises an error if a part of the standard output could not be written: the user did not see the result.
function cli.check_output()
  local ok, why = require("ganymede.core").output_told()
  if not ok then failure(1, "standard output cannot be written: %s", log.output_error or why) end
end

local aliases = { ["--help"] = "help", ["-h"] = "help", ["--version"] = "version", ["-V"] = "version" }

local function dispatch(words)
  if words[1] == nil then failure(2, "%s", cli.overview()) end
  local name = aliases[words[1]] or words[1]
  if name:sub(1, 1) == "-" then failure(2, "expected a verb before '%s'; see `ganymede help`", name) end
  local verb = cli.verb(name)
  if wants_help(words) then
    print(cli.parser(name, verb):get_help())
    cli.check_output()
    return 0
  end
  local code = verb.run(parse(name, verb, words)) or 0
  if verb.prints then cli.check_output() end
  return code
end

-- Whether a text begins with a line of Ganymede's own files.
local function has_own_place(text)
  local root = rawget(_G, "GANYMEDE_ROOT")
  return root ~= nil and text:sub(1, #root + 5) == root .. "/lua/"
end

-- Whether an error is a defect of Ganymede and not of a recipe: Lua itself raised it at a line of Ganymede's files.
local function is_internal(text)
  return has_own_place(text) and (text:find(": attempt to ", 1, true) or text:find(": bad argument #", 1, true)) ~= nil
end

--- Prints an error that xpcall(f, failure.handler) caught; of all ranks of a job, one prints it -> the exit status.
function cli.report(err)
  local text = failure.text(err)
  local plain = not failure.is(err) and failure.code(err) == 1
  if log.level >= 3 or (plain and is_internal(text)) then
    text = text .. "\n" .. failure.traceback(err):gsub("at 0x%x+", "?") -- the same text on every rank
  elseif has_own_place(text) then
    text = text:gsub("^[^\n:]+:%d+: ", "") -- it tells a user nothing
  end
  text = launcher.with_hosts(text)
  if launcher.fail(err, text) then log.error("%s", text) end
  return failure.code(err)
end

local depth = 0

-- The outermost command line is all that this rank does. After it the rank leaves its job, whether it failed or not.
local function outermost(words)
  if depth == 1 then require("ganymede.base.environment").check() end
  local code = dispatch(words)
  if depth == 1 then launcher.leave(code) end
  return code
end

--- Runs a command line: a list of words without the name of the program -> the exit status.
function cli.main(words)
  depth = depth + 1
  local ok, result = xpcall(outermost, failure.handler, words)
  local code = ok and result or cli.report(result)
  if not ok and depth == 1 then launcher.abandon() end
  depth = depth - 1
  io.stdout:flush()
  io.stderr:flush()
  return code
end

return cli
