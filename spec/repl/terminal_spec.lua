--- The REPL on a terminal, made by script(1): prompts, editing, history, and Ctrl-C, which stops a line, compiled
-- loops included, and never the process. Keys are sent when the screen shows what they answer to, so that no
-- pause decides.
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local function quote(text) return shell.quote(text) end

local Screen = {}
Screen.__index = Screen

-- `ganymede repl` behind a pseudo-terminal; keys go through a named pipe, what it shows into a file.
local function open(folder)
  local self = setmetatable({ folder = folder, seen = 0 }, Screen)
  -- exec: a shell that stayed between would take the Ctrl-C for itself
  local program = ("exec env TERM=xterm GANYMEDE_ROOT=%s GANYMEDE_HISTORY=%s %s --threads 1"):format(
    quote(GANYMEDE_ROOT), quote(folder .. "/history"), shell.program "repl")
  assert(os.execute("mkfifo " .. quote(folder .. "/keys")) == 0)
  assert(os.execute(("(timeout -k 5 60 script -qefc %s /dev/null <%s >%s 2>&1; echo $? >%s) &"):format(quote(program),
    quote(folder .. "/keys"), quote(folder .. "/screen"), quote(folder .. "/status"))) == 0)
  self.keys = assert(io.open(folder .. "/keys", "w"))
  self.keys:setvbuf "no"
  return self
end

local function contents(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read "*a"
  file:close()
  return text
end

-- Waits until the screen shows `text` behind what was waited for before. 30 s: nothing here takes that long.
function Screen:wait(text)
  local deadline = core.now() + shell.PATIENCE
  while core.now() < deadline do
    local all = contents(self.folder .. "/screen")
    local _, stop = all:find(text, self.seen + 1, true)
    if stop then
      self.seen = stop
      return
    end
    core.sleep(0.02)
  end
  error(("the screen never showed %q; it shows:\n%s"):format(text,
    contents(self.folder .. "/screen"):sub(self.seen + 1)), 2)
end

function Screen:type(keys) self.keys:write(keys) end

-- Ends the session -> the exit status of the program.
function Screen:close(keys)
  self:type(keys)
  local deadline = core.now() + shell.PATIENCE
  while contents(self.folder .. "/status") == "" and core.now() < deadline do core.sleep(0.02) end
  self.keys:close()
  return tonumber(contents(self.folder .. "/status"))
end

describe("ganymede repl on a terminal", function()
  local folder, screen
  before_each(function()
    folder = shell.temporary_folder()
    screen = open(folder)
    screen:wait "Ctrl-D leaves."
    screen:wait "> "
  end)
  after_each(function()
    if screen then screen.keys:close() end
    shell.remove(folder)
  end)

  -- Behind the next prompt: what is typed before the terminal is in the editor's mode is another key then.
  local function leave()
    screen:wait "> "
    local status = screen:close "\4"
    screen.keys = { close = function() end }
    return status
  end

  -- A line that says when it has begun, so that Ctrl-C cannot come before it.
  local function interrupt(line)
    screen:type(line .. "\r")
    screen:wait "begun"
    screen:type "\3"
    screen:wait "interrupted"
    screen:wait "> "
  end

  it("stops interpreted and compiled loops with Ctrl-C, again and again", function()
    interrupt "print('be' .. 'gun') while true do end"
    interrupt "print('be' .. 'gun') local i = 0 while true do i = i + 1 end"
    interrupt "jit.off() print('be' .. 'gun') local i = 0 while true do i = i + 1 end"
    interrupt "jit.on() print('be' .. 'gun') local t = {} for i = 1, 1e300 do t[i % 100 + 1] = i end"
    screen:type "6 * 7\r"
    screen:wait "42"
    assert.equal(0, leave())
  end)

  it("stops loops over tensors, whose state stays good", function()
    interrupt "a = gm.ones { 64, 64 } print('be' .. 'gun') while true do b = gm.ops.matmul(a, a) end"
    interrupt "print('be' .. 'gun') gm.scope(function() while true do gm.no_grad(function() return a + a end) end end)"
    screen:type "core = require 'ganymede.core'\r"
    screen:wait "> "
    screen:type "('%dx%d'):format(core.scope_depth(), core.no_grad(0)), gm.ops.matmul(a, a):sum():item()\r"
    screen:wait "0x0"
    screen:wait "262144" -- 64 ^ 3
    assert.equal(0, leave())
  end)

  it("stops a line that catches the first Ctrl-C by the second", function()
    screen:type "print('be' .. 'gun') while true do print('ca' .. 'ught', (pcall(load 'while true do end'))) end\r"
    screen:wait "begun"
    screen:type "\3"
    screen:wait "caught\tfalse"
    screen:type "\3"
    screen:wait "interrupted"
    screen:wait "> "
    screen:type "6 * 7\r"
    screen:wait "42"
    assert.equal(0, leave())
  end)

  it("drops the line being typed with Ctrl-C", function()
    screen:type "print('wro' .. 'ng"
    screen:wait "'ng"
    screen:type "\3"
    screen:wait "> "
    screen:type "print('ri' .. 'ght')\r"
    screen:wait "right"
    assert.equal(0, leave())
    assert.is_nil(contents(folder .. "/screen"):find("wrong", 1, true))
  end)

  it("edits, completes, asks for more, and remembers", function()
    screen:type "print(1 + 2)\2\2\2\1\5\r" -- cursor keys back, to the front, to the end
    screen:wait "\n3"
    screen:type "gm.ops.log_soft\t"
    screen:wait "max("
    screen:type "\3"
    screen:wait "> "
    screen:type "for i = 1, 2 do\r"
    screen:wait ">> "
    screen:type "print('line ' .. i) end\r"
    screen:wait "line 2"
    screen:wait "> "
    screen:type "\16\16\r" -- up twice: the line before the loop
    screen:wait "\n3"
    assert.equal(0, leave())
    local history = contents(folder .. "/history")
    assert.is_truthy(history:find("print(1", 1, true), history)
  end)

  it("leaves with status 143 on SIGTERM", function()
    screen:type "print('pid ' .. require('ganymede.core').process().pid .. '.')\r"
    screen:wait "\npid "
    screen:wait "."
    os.execute("kill -TERM " .. contents(folder .. "/screen"):match "\npid (%d+)%.")
    assert.equal(143, screen:close "")
    screen.keys = { close = function() end }
  end)
end)
