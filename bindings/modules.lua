--- modules.lua - compiles the Lua files of the program into one archive; the build runs it. bindings/modules.c says
-- what the archive is.
--
--     ganymede run bindings/modules.lua     writes ganymede.modules into the current folder
local archive, folder = "ganymede.modules", GANYMEDE_ROOT .. "/lua"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local paths = {}
local pipe = assert(io.popen(("cd '%s' && find ganymede -name '*.lua' | LC_ALL=C sort"):format(
  folder:gsub("'", "'\\''"))))
for path in pipe:lines() do paths[#paths + 1] = path end
pipe:close()
assert(#paths > 0, "no Lua files in " .. folder)

local head, body = { "ganymede modules 1 " .. jit.version .. "\n" }, {}
for _, path in ipairs(paths) do
  local text = read(folder .. "/" .. path)
  local code = string.dump(assert(loadstring(text, "@" .. path)))
  head[#head + 1] = ("%s %d %d\n"):format(path, #text, #code)
  body[#body + 1] = text .. code
end
local unfinished = archive .. ".new"
local file = assert(io.open(unfinished, "wb"))
assert(file:write(table.concat(head), "\n", table.concat(body)) and file:close())
assert(os.rename(unfinished, archive))
