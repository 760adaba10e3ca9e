--- Commands and temporary folders for specs. Everything made here is under one folder of the system's temporary one.
local device = require "spec.support.device"
local ffi = require "ffi"
ffi.cdef [[
char *mkdtemp(char *template);
long readlink(const char *path, char *buffer, size_t size);
]]

local shell = {}

--- One word for sh, whatever is in it.
--- Seconds after which a spec gives up waiting for what must come. It is there so that nothing hangs, and long, because
--- it says nothing about speed: beside much other work, a job may get a hundredth of the cores.
shell.PATIENCE = 240

function shell.quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

function shell.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

function shell.write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
  return path
end

local made = {} -- folders that are not removed yet

--- A new empty folder; whoever makes it removes it (shell.remove, best in after_each or finally).
function shell.temporary_folder()
  local template = (os.getenv "TMPDIR" or "/tmp") .. "/ganymede-spec-XXXXXX"
  local buffer = ffi.new("char[?]", #template + 1, template)
  if ffi.C.mkdtemp(buffer) == nil then error("cannot make a folder like " .. template) end
  local path = ffi.string(buffer)
  made[path] = true
  return path
end

function shell.remove(path)
  assert(path:find "ganymede%-spec%-", "shell.remove: only what temporary_folder made")
  os.execute("rm -rf -- " .. shell.quote(path))
  made[path] = nil
end

local ends = {} -- functions

--- Has fn called at the end of every spec file, before folders that are left are removed.
function shell.at_end(fn) ends[#ends + 1] = fn end

--- Removes the folders that examples have left, as those do that fail before they remove theirs.
function shell.remove_rest()
  for _, fn in ipairs(ends) do fn() end
  for path in pairs(made) do shell.remove(path) end
end

--- Runs a command line with sh -> { code =, out =, err = }. A program ended by signal n has code 128 + n.
function shell.run(command)
  local folder = shell.temporary_folder()
  shell.write(folder .. "/command", command .. "\n")
  local status = os.execute(("sh %s/command >%s/out 2>%s/err </dev/null"):format(folder, folder, folder))
  local code = status % 256 == 0 and status / 256 or 128 + status % 128
  local result = { code = code, out = shell.read(folder .. "/out") }
  result.err = shell.read(folder .. "/err")
  for _, name in ipairs { "/command", "/out", "/err", "" } do os.remove(folder .. name) end -- two processes less
  made[folder] = nil
  return result
end

--- Words for sh that wait until a command succeeds; after PATIENCE they leave with status 99: a spec never hangs.
function shell.wait_until(command)
  return ("tries=0; until %s; do tries=$((tries + 1)); test $tries -lt %d || exit 99; sleep 0.02; done"):format(
    command, shell.PATIENCE / 0.02)
end

--- Lines that a command prints; it must succeed.
function shell.lines(command)
  local result = shell.run(command)
  if result.code ~= 0 then error(("%s: status %d\n%s"):format(command, result.code, result.err)) end
  local lines = {}
  for line in result.out:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines
end

--- The file that this process is.
function shell.executable()
  local buffer = ffi.new "char[4096]"
  local n = ffi.C.readlink("/proc/self/exe", buffer, 4096)
  assert(n > 0, "cannot read /proc/self/exe")
  return ffi.string(buffer, n)
end

--- The beginning of a command line of this program: verb is run, repl or spec, on the device of the specs.
function shell.program(verb)
  local words = device.arguments { verb }
  return shell.quote(shell.executable()) .. " " .. table.concat(words, " ")
end

return shell
