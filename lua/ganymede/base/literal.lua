--- Lua literals read from the command line: parsed, never run.
--
--     literal.parse "3e-4"              --> 0.0003
--     literal.parse "{ size = 4, 'a' }" --> { "a", size = 4 }
--     literal.parse "2d"                --> "2d", "a number followed by 'd' at 1"
--
-- Numbers (also hexadecimal and with a sign, and math.huge), quoted and long strings, true, false, nil, and tables of
-- these. What is no literal is the text itself, as a string, with the reason as second result. Refused with an
-- error: text over 64 KiB and tables nested deeper than 32, which nobody types.
local literal = {}

local MAX_TEXT, MAX_DEPTH = 65536, 32

-- Reasons travel as errors of this type, so that a real defect is never taken for "no literal".
local NotLiteral = {}

local function give_up(at, fmt, ...)
  error(setmetatable({ reason = fmt:format(...) .. " at character " .. at }, NotLiteral), 0)
end

local escapes = { a = "\a", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", v = "\v", ["\n"] = "\n" }

local function escape(text, at)
  local c = text:sub(at, at)
  if escapes[c] then return escapes[c], at + 1 end
  if c:match "[\\\"']" then return c, at + 1 end
  local hex = text:match("^x(%x%x)", at)
  if hex then return string.char(tonumber(hex, 16)), at + 3 end
  if c == "z" then return "", text:match("^z%s*()", at) end
  local digits = text:match("^%d%d?%d?", at)
  if digits and tonumber(digits) < 256 then return string.char(tonumber(digits)), at + #digits end
  give_up(at, "an unknown escape '\\%s'", c)
end

local function quoted(text, at)
  local quote, parts = text:sub(at, at), {}
  local i = at + 1
  while true do
    local plain, stop = text:match("^([^\\\"'\n]*)()", i)
    parts[#parts + 1] = plain
    local c = text:sub(stop, stop)
    if c == quote then return table.concat(parts), stop + 1 end
    if c == "" or c == "\n" then give_up(at, "a string without an end") end
    if c == "\\" then parts[#parts + 1], i = escape(text, stop + 1) else parts[#parts + 1], i = c, stop + 1 end
  end
end

local function long_string(text, at)
  local level, start = text:match("^%[(=*)%[\n?()", at)
  local first, last = text:find("]" .. level .. "]", start, true)
  if not first then give_up(at, "a long string without an end") end
  return text:sub(start, first - 1), last + 1
end

local function number(text, at)
  local sign, start = text:match("^(%-?)%s*()", at)
  local word, stop = text:match("^([%w_.]+)()", start)
  if word and word:match "[eEpP]$" and text:match("^[+-]%d", stop) then -- the sign of an exponent
    local rest
    rest, stop = text:match("^([+-]%w+)()", stop)
    word = word .. rest
  end
  local plain = word and (word:match "^%.?%d" and not word:match "[lLiIuU_]$")
  local value = word == "math.huge" and math.huge or plain and tonumber(word)
  if not value then give_up(at, "no number '%s%s'", sign, word or "") end
  if word:match "^%d+$" and value >= 2 ^ 53 and value < 1e300 then -- whole, and perhaps rounded
    local nearest = ("%.0f"):format(value)
    if nearest ~= word:match "^0*(.*)$" then
      give_up(at, "no number is %s%s: the nearest is %s%s", sign, word, sign, nearest)
    end
  end
  return sign == "-" and -value or value, stop
end

local function space(text, at) return text:match("^%s*()", at) end

local words = { ["true"] = true, ["false"] = false }
local value -- forward

local function key(text, at, depth)
  local name, after = text:match("^([%a_][%w_]*)%s*=()", at)
  if name and text:sub(after, after) ~= "=" then return name, after end
  if text:sub(at, at) ~= "[" or text:match("^%[=*%[", at) then return nil, at end
  local k
  k, after = value(text, space(text, at + 1), depth)
  if k == nil or k ~= k then give_up(at, "a key that is nil or NaN") end
  after = text:match("^%s*%]%s*=()", after) or give_up(after, "']=' expected")
  return k, after
end

local function table_(text, at, depth)
  if depth > MAX_DEPTH then error(("a literal nested deeper than %d tables"):format(MAX_DEPTH), 0) end
  local result, position, i = {}, 0, space(text, at + 1)
  while text:sub(i, i) ~= "}" do
    local k, v
    k, i = key(text, i, depth)
    if k == nil then position, k = position + 1, position + 1 end
    if result[k] ~= nil then give_up(i, "the key '%s' for the second time", tostring(k)) end
    v, i = value(text, space(text, i), depth)
    result[k] = v
    i = space(text, i)
    local c = text:sub(i, i)
    if c == "," or c == ";" then
      i = space(text, i + 1)
    elseif c ~= "}" then
      give_up(i, c == "" and "a table without an end" or "'%s' where ',' or '}' belongs", c)
    end
  end
  return result, i + 1
end

function value(text, at, depth)
  local c = text:sub(at, at)
  if c == "{" then return table_(text, at, depth + 1) end
  if c == '"' or c == "'" then return quoted(text, at) end
  if text:match("^%[=*%[", at) then return long_string(text, at) end
  local word, stop = text:match("^([%a_][%w_]*)()", at)
  if word == "nil" then return nil, stop end
  if word and words[word] ~= nil then return words[word], stop end
  if word == "math" and text:match("^%.huge", stop) then return number(text, at) end
  if word or c == "" then give_up(at, word and "the name '%s'" or "nothing", word) end
  return number(text, at)
end

local function whole(text)
  local result, stop = value(text, space(text, 1), 0)
  stop = space(text, stop)
  if stop <= #text then give_up(stop, "more text after the value") end
  return result
end

--- The value of the text; or the text itself and the reason why it is no literal.
function literal.parse(text)
  if #text > MAX_TEXT then error(("a literal of %d bytes; the limit is %d"):format(#text, MAX_TEXT), 0) end
  local ok, result = pcall(whole, text)
  if ok then return result end
  if getmetatable(result) ~= NotLiteral then error(result, 0) end
  return text, result.reason
end

local reserved = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true "
  .. "until while"):gmatch "%a+" do reserved[word] = true end

local function show_number(v)
  if v ~= v then return "0/0" end
  if v == math.huge then return "math.huge" elseif v == -math.huge then return "-math.huge" end
  for digits = 14, 17 do
    local text = ("%." .. digits .. "g"):format(v)
    if tonumber(text) == v then return text end
  end
end

--- Whether literal.show can write this value so that it reads back.
function literal.is_plain(v)
  local kind = type(v)
  return kind == "number" or kind == "string" or kind == "boolean" or (kind == "table" and not getmetatable(v))
end

local function show_key(k)
  if type(k) ~= "string" then return "[" .. tostring(k) .. "]" end
  return k:match "^[%a_][%w_]*$" and not reserved[k] and k or ("[%q]"):format(k)
end

local function sorted(t)
  local keys = {}
  for k in pairs(t) do
    if not (type(k) == "number" and k >= 1 and k <= #t) then keys[#keys + 1] = k end
  end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

--- The value as Lua text over several lines where it is long; what has no literal form (functions, objects)
-- becomes nil with a comment that names it. Same value, same text.
function literal.show(v, indent)
  indent = indent or ""
  if type(v) == "number" then return show_number(v) end
  if type(v) == "string" then return (("%q"):format(v):gsub("\\\n", "\\n"):gsub("\r", "\\r")) end
  if type(v) == "boolean" or v == nil then return tostring(v) end
  if not literal.is_plain(v) then return ("nil --[[ a %s ]]"):format(type(v) == "table" and "Lua object" or type(v)) end
  local inner, parts, nested = indent .. "  ", {}, false
  for i = 1, #v do
    parts[#parts + 1] = literal.show(v[i], inner)
    nested = nested or type(v[i]) == "table"
  end
  for _, k in ipairs(sorted(v)) do
    parts[#parts + 1] = show_key(k) .. " = " .. literal.show(v[k], inner)
    nested = nested or type(v[k]) == "table"
  end
  if #parts == 0 then return "{}" end
  local line = "{ " .. table.concat(parts, ", ") .. " }"
  if not nested and #line + #indent <= 100 then return line end
  return "{\n" .. inner .. table.concat(parts, ",\n" .. inner) .. ",\n" .. indent .. "}"
end

return literal
