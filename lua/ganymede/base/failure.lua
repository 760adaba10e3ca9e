--- Errors that know the exit status they mean.
--
--     failure(2, "recipe %s: no model", path)    -- raises { message = ..., exit_code = 2 }
--
-- Statuses: 1 a Lua error or failed allocation; 2 command or recipe wrong, nothing was started; 5 data or checkpoint
-- damaged; 6 a rank died by a signal; 7 past its time limit, or a rank hangs; 8 diverged; 75 preempted, can resume; 130
-- and 143, as shells count them: stopped by Ctrl-C or SIGTERM. A plain string means 1.
-- The trap: error objects are tables, so print them with failure.text(e), not with `..`.
local core = require "ganymede.core"
local own = require "ganymede.base.own"

local failure = {}

local Failure = {}
Failure.__index = Failure
Failure.__tostring = function(self) return self.message end
Failure.__concat = function(a, b) return failure.text(a) .. failure.text(b) end

local known = { [1] = true, [2] = true, [5] = true, [6] = true, [7] = true, [8] = true, [75] = true, [130] = true,
  [143] = true }

--- The error object, not raised. The message is data: no formats are read in it.
function failure.new(exit_code, message)
  assert(known[exit_code], "failure: no such exit status")
  return setmetatable({ message = message, exit_code = exit_code }, Failure)
end

--- How many times new_peer was called.
failure.peers = 0

--- The error of a rank that ends because another one has failed; the command line exits with its status and says
-- nothing, since the other rank has said it.
function failure.new_peer(exit_code, message)
  failure.peers = failure.peers + 1
  local err = failure.new(known[exit_code] and exit_code or 1, message)
  err.peer = true
  return err
end

--- Is this the echo of another rank's failure?
function failure.is_peer(err) return type(err) == "table" and rawget(err, "peer") == true end

function failure.is(value) return getmetatable(value) == Failure end

local stops = { [7] = true, [75] = true, [130] = true, [143] = true }

--- Raises err again if it says that the run ends: Ctrl-C, SIGTERM, a time limit, another rank's failure. That is no
-- mistake of what was called: code that explains what it caught, or does without it, calls this first.
function failure.let_stops_pass(err)
  if failure.is(err) and (failure.is_peer(err) or stops[err.exit_code]) then error(err, 0) end
end

local function passed(ok, ...)
  if not ok then failure.let_stops_pass((...)) end
  return ok, ...
end

--- pcall(fn, ...) that catches no stops; where nothing has to be put back first.
function failure.try(fn, ...) return passed(pcall(fn, ...)) end

--- The exit status that a caught error means; any error that is not ours means 1.
function failure.code(err)
  if type(err) == "table" and known[rawget(err, "exit_code")] then return rawget(err, "exit_code") end
  return 1
end

--- The message of any caught value, also of tables and nil.
function failure.text(err)
  if type(err) == "table" and type(rawget(err, "message")) == "string" then return rawget(err, "message") end
  if err == nil then return "an error without a message (error was called with nil)" end
  if type(err) == "table" and not getmetatable(err) then
    return "an error that is a table: " .. require("ganymede.base.options").brief(err)
  end
  local ok, text = pcall(tostring, err)
  return ok and text or "an error whose __tostring fails"
end

--- fn(...), whose errors are about `what`, such as the file that says what fn is given: they become failures of status
-- 2 that begin with it, without places of the program. Lua's own errors stay as they are.
function failure.about(what, fn, ...)
  local function finish(ok, ...)
    if ok then return ... end
    local err = ...
    failure.let_stops_pass(err)
    local text = own.without_place(failure.text(err))
    if text:find("attempt to ", 1, true) or text:find("bad argument", 1, true) then error(err, 0) end
    if text:find(what, 1, true) then failure(math.max(2, failure.code(err)), "%s", text) end
    failure(math.max(2, failure.code(err)), "%s: %s", what, (text:gsub("^[^\n:]+%.lua:%d+: ", "")))
  end
  return finish(pcall(fn, ...))
end

--- A caught error as a failure of its own status, its message passed through change(text).
function failure.changed(err, change) return failure.new(failure.code(err), change(failure.text(err))) end

local last = {} -- the error that travels, and the traceback of the place where it was raised

-- A failure of a command, a recipe or a file gets the line of the user's file that led to it, once.
local function place(err)
  if not failure.is(err) or err.peer or err.placed or (err.exit_code ~= 2 and err.exit_code ~= 5) then return end
  err.placed = true
  if not err.message:find "^[^\n:]+:%d+: " then err.message = own.place() .. err.message end
end

--- For xpcall: the error itself, with the line of the user's file that led to it (own.blamed); its traceback waits in
-- failure.traceback(err). Every protected call on the way that uses this handler leaves the traceback of the first,
-- which is the deepest. No stop is raised in here, which Lua would make an "error in error handling".
function failure.handler(err)
  if last.err ~= err or err == nil then
    err = own.blamed(err)
    place(err)
    last = { err = err, text = debug.traceback("", 2):gsub("^\n", "") }
  end
  return err
end
core.signals_shield(failure.handler)

--- The traceback of an error that came through failure.handler, or "".
function failure.traceback(err) return last.err == err and last.text or "" end

local function done(finish, ok, ...)
  finish()
  if not ok then error((...), 0) end
  return ...
end
core.signals_shield(done)

--- fn(...); `finish` runs before an error goes on, and before the results are returned. No stop is raised in `finish`,
-- nor between fn and it.
function failure.protect(finish, fn, ...)
  local arguments, count = { ... }, select("#", ...)
  return done(finish, xpcall(function() return fn(unpack(arguments, 1, count)) end, failure.handler))
end
core.signals_shield(failure.protect, true)

local inside = setmetatable({}, { __mode = "k" }) -- what failure.blaming made -> of which function

local function raised(ok, ...)
  if not ok then error((...), 0) end
  return ...
end

--- fn, whose errors name the line of the user's file also where a program catches them itself (failure.handler). Not
-- for what is called often.
function failure.blaming(fn)
  local function blamed(...) return raised(xpcall(fn, failure.handler, ...)) end
  inside[blamed] = fn
  return blamed
end

--- The function of which failure.blaming made this one, or the function itself.
function failure.inside(fn) return inside[fn] or fn end

return setmetatable(failure, {
  __call = function(_, exit_code, fmt, ...)
    error(failure.new(exit_code, select("#", ...) > 0 and fmt:format(...) or fmt), 0)
  end,
})
