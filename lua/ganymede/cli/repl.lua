--- ganymede repl: interactive Lua with gm, nn and ops at hand. Without a terminal it runs lines of standard input.
-- With -n N this process has the terminal, and N ranks run the lines (ganymede.repl.ranks).
--
-- History: $GANYMEDE_HISTORY, or ~/.ganymede_history; GANYMEDE_HISTORY="" keeps none.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local machine = require "ganymede.base.machine"
local session = require "ganymede.job.session"

local verb = { summary = "run lines of Lua as you type them" }

verb.examples = { "ganymede repl", "ganymede repl -n 4" }

function verb.arguments(parser)
  parser:option("-n --ranks", "number of ranks"):argname "N":convert(session.integer(1))
  parser:option("--device", "the device that computes (default: cpu)"):choices { "cpu", "cuda", "meta" }
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
  parser:option("--limit-memory", "bytes that tensors may take, such as 512M"):argname "BYTES":convert(machine.bytes_of)
  parser:option("--seed", "seed of random numbers"):argname "N":convert(session.integer(0)):default "1024"
end

--- The file of the history; nil: none.
function verb.history_file()
  local given = os.getenv "GANYMEDE_HISTORY"
  if given then return given ~= "" and given or nil end
  local home = os.getenv "HOME"
  return home and home ~= "" and home .. "/.ganymede_history" or nil
end

-- Modules of the current folder can be required, after all others, as those beside a recipe can.
local function fill_globals(globals)
  package.path = package.path .. ";./?.lua"
  local gm = require "ganymede"
  globals.gm, globals.nn, globals.ops = gm, gm.nn, gm.ops
end

local function interact()
  io.stdout:setvbuf "line" -- whoever reads a pipe sees what a line prints while it runs
  fill_globals(_G)
  local complete = require("ganymede.repl.complete").line
  local terminal = core.terminal_open(verb.history_file(), complete)
  local repl = require "ganymede.repl" { terminal = terminal }
  if terminal:is_interactive() then
    local device = core.device()
    repl:say("Ganymede %s, %s with %d thread%s. :help lists commands, Ctrl-D leaves.", require "ganymede.base.version",
      device.description, device.threads, device.threads == 1 and "" or "s")
  end
  local code = repl:loop()
  terminal:close()
  return code
end

-- One of several ranks: lines come from the front end.
local function serve(args)
  launcher.connect(args)
  session.open_device(args)
  if not core.link_rank() then failure(2, "a repl on several ranks is started by `ganymede repl -n N`") end
  io.stdout:setvbuf "line"
  fill_globals(_G)
  _G.rank, _G.world = core.rank(), core.world()
  return launcher.without_exit(require("ganymede.repl.ranks").serve, _G)
end

function verb.run(args)
  local several, one = launcher.supervises(args), launcher.expected() == 1
  if not several and one then session.open_device(args) end
  return session.with_person(not several, function()
    if several then return require("ganymede.repl.ranks").interact(args, verb.history_file()) end
    if one then return interact() end
    return serve(args)
  end)
end

return verb
