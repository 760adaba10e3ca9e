--- What templates of chats work with: their values, and the filters, methods, tests and functions that they may name
-- (ganymede.text.template). Each checks what it is given, and counts the bytes that it reads or makes.
-- @module ganymede.text.template_values
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"

local undefined = setmetatable({}, { __tostring = function() return "undefined" end })
local none = json.null
-- Steps; bytes of a text; bytes of all texts and lists (16 an item) that are read or made on the way, so that no text
-- doubles without end; how deep an expression is nested.
local most_steps, most_bytes, most_work, most_depth = 1e6, 2 ^ 26, 2 ^ 28, 500

local function fail(state, node, fmt, ...)
  failure(2, "%s: line %d: %s", state.name, node.line or 0, fmt:format(...))
end

local function step(state, node)
  state.steps = state.steps + 1
  if state.steps > most_steps then fail(state, node, "the template does not come to an end") end
end

-- Counts what an operation reads or makes.
local function charge(state, node, bytes)
  state.work = state.work + bytes
  if bytes > most_bytes then fail(state, node, "a text or list of more than %d bytes", most_bytes) end
  if state.work > most_work then fail(state, node, "the template works on more than %d bytes", most_work) end
end

local function size_of(v) return type(v) == "string" and #v or type(v) == "table" and 16 * #v or 0 end

local function is_list(v)
  return type(v) == "table" and v ~= undefined and v ~= none and (v[1] ~= nil or next(v) == nil)
end
local function is_table(v) return type(v) == "table" and v ~= undefined and v ~= none and not is_list(v) end
local function is_text(v) return type(v) == "string" end

local function truth(v)
  if v == undefined or v == none or v == false or v == nil or v == "" or v == 0 then return false end
  return not (type(v) == "table" and next(v) == nil and getmetatable(v) == nil or json.is_array(v) and #v == 0)
end

local function printed(state, node, v)
  if v == undefined then return "" end
  if v == none then return "None" end
  if type(v) == "boolean" then return v and "True" or "False" end
  if type(v) == "number" then return v % 1 == 0 and ("%.0f"):format(v) or ("%.17g"):format(v) end
  if type(v) == "string" then return v end
  fail(state, node, "a list or a table cannot be printed; tojson writes it")
end

-- ---------------------------------------------------------------- filters, methods, tests, functions

-- What Python takes for white space: ASCII, U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F,
-- U+3000. Each has the space of ASCII.
local spaces = {}
for character in ("\t\n\v\f\r\28\29\30\31 "):gmatch "." do spaces[character] = " " end
for _, wide in ipairs { "\194\133", "\194\160", "\225\154\128", "\226\128\168", "\226\128\169", "\226\128\175",
  "\226\129\159", "\227\128\128" } do spaces[wide] = " " end
for last = 128, 138 do spaces["\226\128" .. string.char(last)] = " " end

local function set_of(characters)
  local set = {}
  for character in characters:gmatch "[^\128-\191][\128-\191]*" do set[character] = true end
  return set
end

-- Without the characters at its ends that are in a set of some, or are white space.
local function strip(text, which, characters)
  local set, first, last = characters and set_of(characters) or spaces, 1, #text
  while which ~= "right" and first <= last do
    local character = text:match("^[^\128-\191][\128-\191]*", first)
    if not set[character] then break end
    first = first + #character
  end
  while which ~= "left" and first <= last do
    local at = last
    while at > first and text:find("^[\128-\191]", at) do at = at - 1 end
    if not set[text:sub(at, last)] then break end
    last = at - 1
  end
  return text:sub(first, last)
end

-- May a character beyond ASCII have capital and small forms? Those of Chinese, Japanese, Korean, Indic and Thai texts,
-- general punctuation and emoji have none.
local function may_have_case(character)
  local a, b, c = character:byte(1, 3)
  if a == 0xc2 then return b == 0xb5 end -- of U+0080 to U+00BF the micro sign alone
  if a == 0xe2 then return b > 0x83 end
  if a == 0xea then return b < 0xb0 end
  if a == 0xef and b == 0xbc then return c >= 0xa1 and c <= 0xba end -- full width A to Z
  if a == 0xef and b == 0xbd then return c >= 0x81 and c <= 0x9a end -- and a to z
  if a == 0xef then return b == 0xac end -- ligatures
  if a == 0xf0 then return b < 0x9f end
  return not (a == 0xe0 or a >= 0xe3 and a <= 0xee)
end

-- In capital or small letters; of letters beyond ASCII these are not known here.
local function recased(change)
  return function(state, node, text)
    for character in text:gmatch "[\194-\244][\128-\191]+" do
      if may_have_case(character) then fail(state, node, "upper and lower of a letter that is not ASCII") end
    end
    return change(text)
  end
end

local function replaced(state, node, text, from, to)
  if from == "" then fail(state, node, "replace of an empty text") end
  local plain, count = from:gsub("%W", "%%%0"), select(2, text:gsub(from:gsub("%W", "%%%0"), ""))
  charge(state, node, #text + count * #to)
  return (text:gsub(plain, (to:gsub("%%", "%%%%"))))
end

local function split(state, node, text, separator)
  local out = json.array {}
  if not separator then
    local plain = text:gsub("[%c\194\225-\227][\128-\191]*", spaces)
    for word in plain:gmatch "[^ ]+" do out[#out + 1] = word end
    charge(state, node, 16 * #out)
    return out
  end
  if separator == "" then fail(state, node, "split by an empty text") end
  local at = 1
  while true do
    local from, to = text:find(separator, at, true)
    out[#out + 1] = text:sub(at, (from or #text + 1) - 1)
    if not from then
      charge(state, node, 16 * #out)
      return out
    end
    at = to + 1
  end
end

-- As Python writes it: hexadecimal digits of control characters are small letters there.
local function json_text(v)
  return (json.encode(v):gsub("\\(.)([^\\]*)", function(kind, rest)
    if kind == "u" then return "\\u" .. rest:sub(1, 4):lower() .. rest:sub(5) end
  end))
end

-- Objects of several names have no order here, so their text could be another than Python's.
local function to_json(state, node, v, depth)
  depth = (depth or 0) + 1
  if depth > most_depth then fail(state, node, "tojson of what is nested too deeply") end
  charge(state, node, 64 + size_of(v))
  if is_table(v) then
    local name, value = next(v)
    if next(v, name) ~= nil then fail(state, node, "tojson of a table with several names, whose order is not kept") end
    return "{" .. json_text(name) .. ": " .. to_json(state, node, value, depth) .. "}"
  elseif is_list(v) then
    local parts = {}
    for i, item in ipairs(v) do parts[i] = to_json(state, node, item, depth) end
    return "[" .. table.concat(parts, ", ") .. "]"
  elseif v == undefined then
    fail(state, node, "tojson of what is undefined")
  end
  return json_text(v)
end

-- Methods of texts: how many texts each takes, and the function.
local methods = {
  strip = { 0, 1, function(_, _, text, characters) return strip(text, "both", characters) end },
  lstrip = { 0, 1, function(_, _, text, characters) return strip(text, "left", characters) end },
  rstrip = { 0, 1, function(_, _, text, characters) return strip(text, "right", characters) end },
  upper = { 0, 0, recased(string.upper) },
  lower = { 0, 0, recased(string.lower) },
  startswith = { 1, 1, function(_, _, text, part) return text:sub(1, #part) == part end },
  endswith = { 1, 1, function(_, _, text, part) return part == "" or text:sub(-#part) == part end },
  replace = { 2, 2, replaced },
  split = { 0, 1, split },
}

local function any() return true end
local function is_sized(v) return is_text(v) or is_list(v) or is_table(v) end

local function length(_, _, v)
  if is_text(v) then return select(2, v:gsub("[^\128-\191]", "")) end
  local n = 0
  for _ in pairs(v) do n = n + 1 end
  return n
end

local function join(state, node, v, separator)
  local parts, bytes = {}, 0
  for i, item in ipairs(v) do
    parts[i] = printed(state, node, item)
    bytes = bytes + #parts[i] + #(separator or "")
  end
  charge(state, node, bytes)
  return table.concat(parts, separator or "")
end

-- Filters: what each takes, how many more arguments (texts, unless it takes any), and the function.
local filters = {
  trim = { is_text, 0, 0, function(_, _, v) return strip(v, "both") end },
  upper = { is_text, 0, 0, recased(string.upper) },
  lower = { is_text, 0, 0, recased(string.lower) },
  replace = { is_text, 2, 2, replaced },
  tojson = { any, 0, 0, to_json },
  string = { any, 0, 0, printed },
  length = { is_sized, 0, 0, length },
  count = { is_sized, 0, 0, length },
  join = { is_list, 0, 1, join },
  first = { is_list, 0, 0, function(_, _, v) return v[1] == nil and undefined or v[1] end },
  last = { is_list, 0, 0, function(_, _, v) return v[#v] == nil and undefined or v[#v] end },
  list = { is_list, 0, 0, function(_, _, v) return v end },
  default = { any, 1, 1, function(_, _, v, other) return v == undefined and other or v end },
  safe = { any, 0, 0, function(_, _, v) return v end },
}

-- Refuses arguments that are too few, too many, or no texts (kind nil: any will do).
local function check_arguments(state, node, what, list, n, least, most, kind)
  if n < least or n > most then
    fail(state, node, "%s takes %s here, not %d", what, least == most and ("%d arguments"):format(least)
      or ("%d to %d arguments"):format(least, most), n)
  end
  for i = 1, n do
    if kind and type(list[i]) ~= kind then fail(state, node, "%s takes a %s here", what, kind) end
    charge(state, node, size_of(list[i]))
  end
end

local tests = {
  defined = function(v) return v ~= undefined end,
  undefined = function(v) return v == undefined end,
  none = function(v) return v == none end,
  string = is_text,
  number = function(v) return type(v) == "number" end,
  boolean = function(v) return type(v) == "boolean" end,
  mapping = is_table,
  sequence = is_sized,
  iterable = is_sized,
  ["true"] = function(v) return v == true end,
  ["false"] = function(v) return v == false end,
}

-- Functions: how many arguments of which type each takes, and the function.
local functions = {
  raise_exception = { 1, 1, "string", function(state, _, message) failure(2, "%s: %s", state.name, message) end },
  strftime_now = { 1, 1, "string", function(state, node, format)
    if format:find "^!?%*t" or #format > 200 then fail(state, node, "strftime_now cannot write '%.20s'", format) end
    return os.date(format)
  end },
  range = { 1, 2, "number", function(state, node, from, to)
    local out = json.array {}
    if not to then from, to = 0, from end
    if to - from > 1e5 then fail(state, node, "a range of %.0f numbers; at most 100000 are possible", to - from) end
    for i = from, to - 1 do out[#out + 1] = i end
    charge(state, node, size_of(out))
    return out
  end },
}

return { undefined = undefined, none = none, most_bytes = most_bytes, most_depth = most_depth, fail = fail, step = step,
  charge = charge, size_of = size_of, is_list = is_list, is_table = is_table, is_text = is_text, truth = truth,
  printed = printed, methods = methods, filters = filters, any = any, check_arguments = check_arguments, tests = tests,
  functions = functions }
