--- What the REPL understands beside Lua: ?name, :help, :mem, :forget, :time, :quit.
--
-- command(repl, text) -> true (done), "leave", a chunk to run, or nil, nil when the text is Lua; a mistake is
-- nil and a message.
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local help = [[
An expression is printed, and `_` is its value; an input that is not complete goes on in the next line.
  ?name          what is known about a name: options of a class, the comment above a function
  :mem           memory of tensors, and where most of it was made
  :forget        drop what is recorded for backward passes
  :time CODE     run a line and say how long it took
  :quit          leave; Ctrl-D does, too
  @2 CODE        of several ranks (repl -n N), run a line on rank 2 alone, @0,2-3 CODE on these; others run on all
Tab completes names, Ctrl-C stops a line, Ctrl-R searches the history. gm, nn and ops are there already.]]

-- The comment lines right above a line of a file.
local function comment_above(path, line)
  local file = io.open(path, "r")
  if not file then return nil end
  local block, at = {}, 0
  for content in file:lines() do
    at = at + 1
    if at == line then break end
    local text = content:match "^%s*%-%-%-?%s?(.*)$"
    if text then block[#block + 1] = text else block = {} end
  end
  file:close()
  return #block > 0 and table.concat(block, "\n") or nil
end

local function about_function(name, fn)
  local sig = signature.of(fn)
  local info = sig and sig.source or debug.getinfo(fn, "S")
  local path = info.source:match "^@(.*)"
  local comment = path and comment_above(path, info.linedefined)
  local place = info.what ~= "C" and (" [%s:%d]"):format(info.short_src, info.linedefined) or ""
  local lines = { (sig and signature.show(sig) or name .. ": a function") .. place }
  lines[#lines + 1] = comment
  lines[#lines + 1] = sig and sig.options and options.help(sig.options)
  return table.concat(lines, "\n")
end

local function about(name, value)
  if value == nil then return name .. " is nil" end
  if type(value) == "function" then return about_function(name, value) end
  if type(value) == "table" and rawget(value, "options") and rawget(value, "name") then
    local spec = options.help(value.options)
    return ("%s { ... }%s"):format(value.name, spec == "" and ": no options" or ", options:\n" .. spec)
  end
  if core.is_tensor(value) then
    return ("%s: tensor %s (%s); Tab after `%s:` lists its methods"):format(name, value:dtype(),
      table.concat(value:shape(), ", "), name)
  end
  return ("%s: a %s"):format(name, type(value))
end

local function look_up(repl, name)
  if name == "" then return help end
  if not name:match "^[%a_][%w_.:]*$" then return nil, "?name takes a name such as ?nn.Linear" end
  local value = repl.globals
  for part in name:gmatch "[%w_]+" do
    local ok, inner = pcall(function() return value[part] end)
    if not ok or inner == nil then
      local names = {}
      for known in pairs(require("ganymede.repl.complete").names(value)) do names[#names + 1] = known end
      return nil, ("there is no '%s'%s"):format(name, options.hint(part, names))
    end
    value = inner
  end
  return about(name, value)
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

local function timed(repl, text)
  local chunk, why = repl.compile(text)
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

return function(repl, text)
  local name = text:match "^%s*%?%s*(.-)%s*$"
  if name then
    local answer, why = look_up(repl, name)
    if answer then repl:say("%s", answer) end
    return answer and true, why
  end
  local command, rest = text:match "^%s*:(%a*)%s*(.*)$"
  if not command then return nil end
  if command == "help" then return repl:say(help) or true end
  if command == "mem" then return memory(repl) end
  if command == "forget" then return core.tape_drop() or true end
  if command == "time" then return timed(repl, rest) end
  if command == "quit" or command == "q" then return "leave" end
  local near = options.nearest(command, { "forget", "help", "mem", "time", "quit" })
  local hint = near and (" (did you mean ':%s'?)"):format(near) or ""
  return nil, ("there is no command ':%s'%s; see :help"):format(command, hint)
end
