--- The REPL: reads lines, runs them and prints their values. On several ranks, one process reads the lines and the
-- others run them (ganymede.repl.ranks).
--
-- A line is an expression or a list of statements. The values of an expression are printed, and `_` is the first of
-- them. An incomplete line continues on the next line. An error is printed, and the session continues. Ctrl-C stops the
-- line, also inside of a compiled loop, and the session continues; the second one also where the line catches errors.
-- After each line the collector frees the tensors that nothing refers to. The trap: a `local` exists only until its
-- line has run.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local show = require "ganymede.repl.show"

local Repl = {}
Repl.__index = Repl

--- opt: terminal (core.terminal_open), globals (default _G), out, err (files)
local function new(_, opt)
  return setmetatable({ terminal = opt.terminal, globals = opt.globals or _G, out = opt.out or io.stdout,
    err = opt.err or io.stderr }, Repl)
end

function Repl:say(fmt, ...)
  self.out:write(select("#", ...) > 0 and fmt:format(...) or fmt, "\n")
  self.out:flush()
end

-- ---------------------------------------------------------------- one line

local function is_incomplete(why) return why:match "<eof>'?$" ~= nil end

--- Compiles text -> the chunk; or nil, the message, and whether more lines could complete the text. "= x" is "return
-- x", as at the prompt of Lua 5.1.
function Repl.compile(text)
  text = text:gsub("^%s*=", "return ", 1)
  local chunk = loadstring("return " .. text, "=line")
  if chunk then return chunk end
  local why
  chunk, why = loadstring(text, "=line")
  if chunk then return chunk end
  return nil, why, is_incomplete(why)
end

-- Closes what an error left open. What only this line recorded on the tape is dropped, because nobody can use it.
local function clean_up(depth, recording, recorded)
  core.scope_unwind(depth)
  if recorded == 0 then core.tape_drop() end
  core.set_path ""
  core.no_grad(recording - core.no_grad(0))
end

local function done(depth, recording, recorded, ok, ...)
  core.signals_arm(false)
  if not ok then clean_up(depth, recording, recorded) end
  return ok, ...
end
core.signals_shield(done)

--- Runs a chunk that Ctrl-C can stop -> true and its values, or false and the error. The chunk may catch a stop; it
-- catches the second one in vain.
function Repl.protected(chunk)
  return done(core.scope_depth(), core.no_grad(0), core.tape_nodes(), xpcall(function()
    core.signals_arm(true)
    return chunk()
  end, failure.handler))
end
core.signals_shield(Repl.protected, true) -- a stop behind the chunk would end the session

local function report(self, err)
  self.failed = err == nil and "nil" or err
  if failure.code(err) == 130 then
    self.err:write "interrupted\n"
  else
    self.err:write(failure.text(err), "\n")
    local log = require "ganymede.base.log"
    if log.level >= 3 then self.err:write(failure.traceback(err), "\n") end
  end
  self.err:flush()
end

local function print_values(self, count, ...)
  if count == 0 then return end
  self.globals._ = (...)
  for i = 1, count do self:say("%s", show.value((select(i, ...)))) end
end

local function finish(self, ok, ...)
  if ok then
    -- To print a value needs computation and may call the user's __tostring, so this can fail and be interrupted, too.
    local count, values = select("#", ...), { ... }
    local shown, why = self.protected(function() print_values(self, count, unpack(values, 1, count)) end)
    if not shown then report(self, why) end
  else
    local err = (...)
    report(self, err)
    if failure.code(err) == 143 then return 143 end
  end
  collectgarbage()
end

--- Runs one complete input. Returns an exit status if the session must end. self.failed is the error, if there is one.
function Repl:run(text)
  self.failed = nil
  local command = require "ganymede.repl.commands"
  local chunk, why = command(self, text)
  if chunk == nil and why == nil then chunk, why = self.compile(text) end
  if chunk == "leave" then return 0 end
  if chunk == true then return nil end
  if not chunk then
    report(self, why)
    return nil
  end
  return finish(self, self.protected(chunk))
end

-- ---------------------------------------------------------------- the session

-- Reads until the input is complete -> the text; nil at its end; "" after Ctrl-C; nil and 143 after SIGTERM.
local function read_input(self)
  local text, prompt = nil, "> "
  while true do
    local line, interrupted, terminated = self.terminal:read(prompt)
    if terminated then return nil, 143 end
    if interrupted then return "" end
    if line == nil then return text end
    text = text and text .. "\n" .. line or line
    local code = text:gsub("^%s*@[%d,-]+%s", "") -- for one rank of several
    local is_command = code:match "^%s*[:?]"
    local _, _, incomplete = self.compile(code)
    if is_command or not incomplete or line:match "^%s*$" then return text end
    prompt = ">> "
  end
end

local function remember(self, text)
  local ok, why = pcall(self.terminal.remember, self.terminal, text)
  if not ok then self.err:write(failure.text(why), "\n") end
end

--- Reads and runs lines until the end of the input -> the exit status.
function Repl:loop()
  while true do
    local text, status = read_input(self)
    if text == nil then return status or 0 end
    if text:match "%S" then
      remember(self, text)
      local code = self:run(text)
      if code then return code end
    end
  end
end

return setmetatable(Repl, { __call = new })
