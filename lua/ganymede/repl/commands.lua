--- What the REPL understands beside Lua: ?name, :help, :load, :run, :mem, :forget, :time, :quit.
--
-- command(repl, text) returns true if it is done, "leave" if the session ends, or a chunk to run. It returns nil, nil
-- if the text is Lua, and nil and a message if the command is wrong.
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"
local reference = require "ganymede.reference"
local source = require "ganymede.reference.source"
local text = require "ganymede.reference.text"

local help = [[
An expression is printed, and `_` is its value; an input that is not complete goes on in the next line.
  ?name          the reference of a name: ?ops.linear, ?AdamW, ?x:sum, ?parallel.tensor.mode
  :load FILE     run a file of Lua in this session
  :run RECIPE    train a recipe here; settings follow: steps=20 optimizer.lr=1e-3
  :mem           memory of tensors, and where most of it was made
  :forget        drop what is recorded for backward passes
  :time CODE     run a line and say how long it took
  :quit          leave; Ctrl-D does, too
  @2 CODE        of several ranks (repl -n N), run a line on rank 2 alone, @0,2-3 CODE on these; others run on all
Tab completes names, Ctrl-C stops a line, Ctrl-R searches the history. gm, nn and ops are there already.]]

-- Describes what the session has under a name that is not in the reference: a function or a value of the user.
local function about_function(name, fn)
  local info = debug.getinfo(fn, "S")
  local path = source.path(info)
  local place = info.what ~= "C" and (" [%s:%d]"):format(info.short_src, info.linedefined) or ""
  local sig, lines = signature.of(fn), { name .. ": a function" .. place }
  if sig then lines[#lines + 1] = signature.show(sig) end
  lines[#lines + 1] = path and text.above(path, info.linedefined)
  return table.concat(lines, "\n")
end

local function about(name, value)
  local entry = reference.of_value(value)
  if entry then return reference.explain(entry.name) end
  if type(value) == "function" then return about_function(name, value) end
  if core.is_tensor(value) then
    return ("%s: tensor %s (%s); Tab after `%s:` lists its methods"):format(name, value:dtype(),
      table.concat(value:shape(), ", "), name)
  end
  return ("%s: a %s"):format(name, type(value))
end

-- Returns the value of "a.b:c" among the globals, or nil.
local function value_of(globals, name)
  local value = globals
  for part in name:gmatch "[%w_]+" do
    local ok, inner = pcall(function() return value[part] end)
    if not ok or inner == nil then return nil end
    value = inner
  end
  return value
end

local public = { gm = true, nn = true, ops = true, GANYMEDE_ROOT = true }

-- A name of the session comes before a name of the reference: `loss` may be a tensor of the user.
local function look_up(repl, name)
  if name == "" then return help end
  if not name:match "^[%w_.:%- ]+$" then return nil, "?name takes a name such as ?nn.Linear" end
  local is_public = public[name:match "^[^.:]+"]
  local said = is_public and #reference.find(name) > 0 and reference.explain(name)
  if said then return said end
  local value = value_of(repl.globals, name)
  if value ~= nil then return about(name, value) end
  return reference.explain(name) -- which takes its time to find what was meant
end

local function memory(repl)
  local bytes = require("ganymede.base.machine").bytes
  local m = core.memory()
  repl:say("live %s, peak %s, held from the system %s%s; Lua %s", bytes(m.live), bytes(m.peak), bytes(m.reserved),
    m.limit > 0 and ", limit " .. bytes(m.limit) or "", bytes(collectgarbage "count" * 1024))
  local nodes = core.tape_nodes()
  if nodes > 0 then repl:say("%d operations are recorded for a backward pass, with their inputs (:forget)", nodes) end
  for _, holder in ipairs(core.memory_holders(8)) do
    if holder.live > 0 then repl:say("  %-40s %10s in %d", holder.place, bytes(holder.live), holder.blocks) end
  end
  return true
end

local function timed(repl, code)
  local chunk, why = repl.compile(code)
  if not chunk then return nil, why end
  return function()
    local began = core.now()
    local function done(...)
      repl:say("%.6f s", core.now() - began)
      return ...
    end
    return done(chunk())
  end
end

return function(repl, given)
  local name = given:match "^%s*%?%s*(.-)%s*$"
  if name then
    local answer, why = look_up(repl, name)
    if answer then repl:say("%s", answer) end
    return answer and true, why
  end
  local command, rest = given:match "^%s*:(%a*)%s*(.*)$"
  if not command then return nil end
  if command == "help" then return repl:say(help) or true end
  if command == "mem" then return memory(repl) end
  if command == "forget" then return core.tape_drop() or true end
  if command == "time" then return timed(repl, rest) end
  if command == "load" or command == "run" then return require("ganymede.repl.files")[command](repl, rest) end
  if command == "quit" or command == "q" then return "leave" end
  local near = options.nearest(command, { "forget", "help", "load", "mem", "run", "time", "quit" })
  local hint = near and (" (did you mean ':%s'?)"):format(near) or ""
  return nil, ("there is no command ':%s'%s; see :help"):format(command, hint)
end
