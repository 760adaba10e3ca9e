--- Examples of the reference, run as somebody types them: `EXPRESSION --> what it gives`.
--
--     example.run(entry, globals)        raises where a line fails or gives something else
--
-- globals: what the lines see besides Lua's own names; by default gm, nn and ops, as in the repl. Assignments stay
-- among them. Tensors and tables are compared as they would be written in Lua, numbers with four digits that count;
-- several values are parted by commas, `...` at the end stands for any more.
local gm = require "ganymede"
local options = require "ganymede.base.options"

local example = {}

local function rounded(value)
  if type(value) == "number" then return tonumber(("%.4g"):format(value)) or value end
  if type(value) ~= "table" or getmetatable(value) then return value end
  local out = {}
  for key, inner in pairs(value) do out[key] = rounded(inner) end
  return out
end

--- A value as examples write it.
function example.shown(value)
  if gm.is_tensor(value) then value = value:totable() end
  if type(value) == "number" and math.abs(value) >= 1e4 and value == math.floor(value) then
    return ("%d"):format(value)
  end
  return options.literal(rounded(value))
end

local function all_shown(n, ...)
  local out = {}
  for i = 1, n do out[i] = example.shown((select(i, ...))) end
  return table.concat(out, ", ")
end

local function agree(wanted, got)
  local before = wanted:match "^(.-)%.%.%.$"
  return got == wanted or before ~= nil and got:sub(1, #before) == before
end

local function run_line(name, line, globals)
  local code, wanted = line:match "^(.-)%s*%-%->%s*(.-)%s*$"
  local chunk, why = loadstring((code and "return " or "") .. (code or line), "=" .. name)
  if not chunk then error(("%s: %s\n  %s"):format(name, why, line), 0) end
  setfenv(chunk, globals)
  local function pack(...) return select("#", ...), all_shown(select("#", ...), ...) end
  local ok, n, got = pcall(function() return pack(chunk()) end)
  if not ok then error(("%s: %s\n  %s"):format(name, tostring(n), line), 0) end
  if code and not agree(wanted, got) then error(("%s: %s\n  gives %s"):format(name, line, got), 0) end
end

-- Lines that are complete only together are one piece: functions and tables over several lines.
local function pieces(lines)
  local out, open = {}, nil
  for _, line in ipairs(lines) do
    open = open and open .. "\n" .. line or line
    local code = open:match "^(.-)%s*%-%->[^\n]*$"
    local _, why = loadstring(code and "return " .. code or open)
    if not (why and why:match "<eof>'?$") then out[#out + 1], open = open, nil end
  end
  out[#out + 1] = open
  return out
end

--- The globals of an example.
function example.globals()
  return setmetatable({ gm = gm, nn = gm.nn, ops = gm.ops }, { __index = _G })
end

function example.run(entry, globals)
  globals = globals or example.globals()
  gm.scope(function()
    for _, piece in ipairs(pieces(entry.example)) do run_line(entry.name, piece, globals) end
  end)
end

return example
