--- The files of the project: paths from the top of the tree, sorted; what builds and runs leave is not among them.
local shell = require "spec.support.shell"

local tree = {}

local all
--- Every file, or those whose path matches one of the Lua patterns given.
function tree.files(...)
  all = all or shell.lines [[
    find . \( -name .git -o -path './build*' -o -path ./runs -o -path ./.carry \) -prune -o -type f -print |
      sed 's,^\./,,' | LC_ALL=C sort]]
  local wanted, found = { ... }, {}
  for _, path in ipairs(all) do
    local take = #wanted == 0
    for _, pattern in ipairs(wanted) do take = take or path:find(pattern) ~= nil end
    if take then found[#found + 1] = path end
  end
  return found
end

tree.read = shell.read

--- The path that "name" means in an #include of the file `path`.
function tree.resolve(path, name)
  local parts = {}
  for part in (path:match "^(.*/)" .. name):gmatch "[^/]+" do
    if part == ".." and #parts > 0 then parts[#parts] = nil
    elseif part ~= "." then parts[#parts + 1] = part end
  end
  return table.concat(parts, "/")
end

--- Lua text without comments.
function tree.lua_code(text) return (text:gsub("%-%-%[%[.-%]%]", ""):gsub("%-%-[^\n]*", "")) end

--- C text without comments and string literals, line ends kept: what is left is code.
function tree.c_code(text)
  local out, i, n = {}, 1, #text
  while i <= n do
    local two, one = text:sub(i, i + 1), text:sub(i, i)
    local stop
    if two == "/*" then
      stop = select(2, text:find("*/", i + 2, true)) or n
    elseif two == "//" then
      stop = (text:find("\n", i, true) or n + 1) - 1
    elseif one == '"' or one == "'" then
      stop = i + 1
      while stop < n and text:sub(stop, stop) ~= one do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
    end
    if stop then
      out[#out + 1] = (text:sub(i, stop):gsub("[^\n]+", " "))
      i = stop + 1
    else
      local plain = text:match("^[^/\"']+", i) or one
      out[#out + 1] = plain
      i = i + #plain
    end
  end
  return table.concat(out)
end

--- Fails with all complaints, one a line.
function tree.none(complaints) if #complaints > 0 then error(table.concat(complaints, "\n"), 2) end end

return tree
