--- Evaluates templates of chats (ganymede.text.template_parse) as transformers does with Jinja.
--
--     local render = template(text, "chat template")
--     render { messages = { { role = "user", content = "Hi" } }, add_generation_prompt = true }
--
-- Values are texts, numbers, booleans, lists (1, 2, ... in Lua, from 0 in a template), tables with names, and
-- json.null for none. A name that is not given is undefined: it prints nothing and is false. What is not known here is
-- refused; the work of a template is bounded.
-- @module ganymede.text.template
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local parse = require "ganymede.text.template_parse"

local undefined = setmetatable({}, { __tostring = function() return "undefined" end })
local none = json.null
local most_steps, most_bytes = 1e6, 2 ^ 26

local evaluate, run

local function fail(state, node, fmt, ...)
  failure(2, "%s: line %d: %s", state.name, node.line or 0, fmt:format(...))
end

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
  if type(v) == "number" then return v % 1 == 0 and ("%d"):format(v) or ("%.17g"):format(v) end
  if type(v) == "string" then return v end
  fail(state, node, "a list or a table cannot be printed; tojson writes it")
end

-- ---------------------------------------------------------------- filters, methods, tests, functions

local function strip(text, which, characters)
  local set = characters and "[" .. characters:gsub("%W", "%%%0") .. "]" or "%s"
  if characters == "" then return text end
  if which ~= "right" then text = text:gsub("^" .. set .. "+", "") end
  if which ~= "left" then text = text:gsub(set .. "+$", "") end
  return text
end

local function replaced(text, from, to)
  if from == "" then return text end
  return (text:gsub(from:gsub("%W", "%%%0"), (to:gsub("%%", "%%%%"))))
end

local function split(text, separator)
  local out = json.array {}
  if not separator then
    for word in text:gmatch "%S+" do out[#out + 1] = word end
    return out
  end
  local at = 1
  while true do
    local from, to = text:find(separator, at, true)
    out[#out + 1] = text:sub(at, (from or #text + 1) - 1)
    if not from then return out end
    at = to + 1
  end
end

-- Objects of several names have no order here, so their text could be another than Python's.
local function to_json(state, node, v)
  if is_table(v) then
    local name, value = next(v)
    if next(v, name) ~= nil then fail(state, node, "tojson of a table with several names, whose order is not kept") end
    return "{" .. json.encode(name) .. ": " .. to_json(state, node, value) .. "}"
  elseif is_list(v) then
    local parts = {}
    for i, item in ipairs(v) do parts[i] = to_json(state, node, item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  elseif v == undefined then
    fail(state, node, "tojson of what is undefined")
  end
  return json.encode(v)
end

local methods = {
  strip = function(text, characters) return strip(text, "both", characters) end,
  lstrip = function(text, characters) return strip(text, "left", characters) end,
  rstrip = function(text, characters) return strip(text, "right", characters) end,
  upper = function(text) return text:upper() end,
  lower = function(text) return text:lower() end,
  startswith = function(text, part) return text:sub(1, #part) == part end,
  endswith = function(text, part) return part == "" or text:sub(-#part) == part end,
  replace = replaced,
  split = split,
}

local filters = {
  trim = function(_, _, v) return strip(v, "both") end,
  upper = function(_, _, v) return v:upper() end,
  lower = function(_, _, v) return v:lower() end,
  replace = function(_, _, v, from, to) return replaced(v, from, to) end,
  tojson = to_json,
  string = function(state, node, v) return printed(state, node, v) end,
  length = function(_, _, v)
    if is_text(v) then return select(2, v:gsub("[^\128-\191]", "")) end
    local n = 0
    for _ in pairs(v) do n = n + 1 end
    return n
  end,
  join = function(state, node, v, separator)
    local parts = {}
    for i, item in ipairs(v) do parts[i] = printed(state, node, item) end
    return table.concat(parts, separator or "")
  end,
  first = function(_, _, v) return v[1] == nil and undefined or v[1] end,
  last = function(_, _, v) return v[#v] == nil and undefined or v[#v] end,
  list = function(_, _, v) return v end,
  default = function(_, _, v, other) return v == undefined and other or v end,
  safe = function(_, _, v) return v end,
}
filters.count = filters.length
-- What a filter takes; others are refused before it runs.
local takes = { trim = is_text, upper = is_text, lower = is_text, replace = is_text, join = is_list, first = is_list,
  last = is_list, list = is_list, length = function(v) return is_text(v) or is_list(v) or is_table(v) end }
takes.count = takes.length

local tests = {
  defined = function(v) return v ~= undefined end,
  undefined = function(v) return v == undefined end,
  none = function(v) return v == none end,
  string = is_text,
  number = function(v) return type(v) == "number" end,
  boolean = function(v) return type(v) == "boolean" end,
  mapping = is_table,
  sequence = function(v) return is_text(v) or is_list(v) or is_table(v) end,
  iterable = function(v) return is_text(v) or is_list(v) or is_table(v) end,
  ["true"] = function(v) return v == true end,
  ["false"] = function(v) return v == false end,
}

local functions = {
  raise_exception = function(state, _, message) failure(2, "%s: %s", state.name, tostring(message)) end,
  namespace = function(_, _, named) return setmetatable({}, { __index = named, __namespace = true }) end,
  strftime_now = function(_, _, format) return os.date(format) end,
  range = function(_, _, from, to)
    local out = json.array {}
    if not to then from, to = 0, from end
    for i = from, math.min(to, from + 1e5) - 1 do out[#out + 1] = i end
    return out
  end,
}

-- ---------------------------------------------------------------- expressions

local function equal(a, b)
  if type(a) ~= "table" or type(b) ~= "table" or a == none or b == none or a == undefined or b == undefined then
    return a == b
  end
  for k, v in pairs(a) do if b[k] == nil or not equal(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end

local function contains(state, node, part, whole)
  if is_text(whole) and is_text(part) then return whole:find(part, 1, true) ~= nil end
  if is_list(whole) then
    for _, item in ipairs(whole) do if equal(item, part) then return true end end
    return false
  end
  if is_table(whole) then return whole[part] ~= nil end
  fail(state, node, "'in' needs a text, a list or a table")
end

local function numbers(state, node, a, b)
  if type(a) ~= "number" or type(b) ~= "number" then fail(state, node, "'%s' needs numbers", node.operator) end
end

local operators = {
  ["=="] = function(_, _, a, b) return equal(a, b) end,
  ["!="] = function(_, _, a, b) return not equal(a, b) end,
  ["in"] = contains,
  ["~"] = function(state, node, a, b) return printed(state, node, a) .. printed(state, node, b) end,
  ["+"] = function(state, node, a, b)
    if is_text(a) and is_text(b) then return a .. b end
    if is_list(a) and is_list(b) then
      local out = json.array {}
      for _, list in ipairs { a, b } do
        for _, item in ipairs(list) do out[#out + 1] = item end
      end
      return out
    end
    if type(a) ~= "number" or type(b) ~= "number" then
      fail(state, node, "'+' needs two texts, two lists or two numbers")
    end
    return a + b
  end,
}
for operator, compute in pairs {
  ["-"] = function(a, b) return a - b end, ["*"] = function(a, b) return a * b end,
  ["/"] = function(a, b) return a / b end, ["//"] = function(a, b) return math.floor(a / b) end,
  ["%"] = function(a, b) return a % b end,
} do
  operators[operator] = function(state, node, a, b)
    numbers(state, node, a, b)
    if b == 0 and operator ~= "-" and operator ~= "*" then fail(state, node, "a division by zero") end
    return compute(a, b)
  end
end
for operator, compare in pairs {
  ["<"] = function(a, b) return a < b end, [">"] = function(a, b) return a > b end,
  ["<="] = function(a, b) return a <= b end, [">="] = function(a, b) return a >= b end,
} do
  operators[operator] = function(state, node, a, b)
    if not (is_text(a) and is_text(b)) then numbers(state, node, a, b) end
    return compare(a, b)
  end
end

local function item(state, node, of, index)
  if of == undefined then fail(state, node, "a part of what is undefined") end
  if is_text(of) and methods[index] then return { method = methods[index], of = of } end
  if is_text(of) and type(index) == "number" then
    if of:find "[\128-\255]" then fail(state, node, "an index into a text that is not ASCII") end
    local at = index < 0 and #of + index + 1 or index + 1
    return at >= 1 and at <= #of and of:sub(at, at) or undefined
  end
  if type(of) ~= "table" or of == none then return undefined end
  if index == "items" and is_table(of) and of.items == nil then
    local name, value = next(of)
    if name ~= nil and next(of, name) ~= nil then
      fail(state, node, "items of a table with several names, whose order is not kept")
    end
    return { method = function() return json.array { name ~= nil and json.array { name, value } or nil } end, of = of }
  elseif index == "get" and is_table(of) and of.get == nil then
    return { method = function(t, name, other)
      if t[name] ~= nil then return t[name] end
      return other == nil and none or other
    end, of = of }
  end
  if type(index) == "number" then index = index < 0 and #of + index + 1 or index + 1 end
  local v = of[index]
  return v == nil and undefined or v
end

local function slice(state, node, of, from, to, step)
  if not is_list(of) and not is_text(of) then fail(state, node, "a part [from:to] of what is no list and no text") end
  if is_text(of) and of:find "[\128-\255]" then fail(state, node, "a part of a text that is not ASCII") end
  step = step or 1
  if step ~= 1 and step ~= -1 then fail(state, node, "a step of %s; 1 and -1 are known here", tostring(step)) end
  local n, out = #of, json.array {}
  local function place(v, otherwise, low, high)
    if v == nil or v == none then return otherwise end
    return math.max(low, math.min(v < 0 and n + v or v, high))
  end
  local first, last
  if step == 1 then first, last = place(from, 0, 0, n), place(to, n, 0, n) - 1
  else first, last = place(from, n - 1, -1, n - 1), place(to, -1, -1, n - 1) + 1 end
  for i = first, last, step do out[#out + 1] = is_text(of) and of:sub(i + 1, i + 1) or of[i + 1] end
  return is_text(of) and table.concat(out) or out
end

local function arguments(state, node)
  local list = {}
  for i, argument in ipairs(node.list) do list[i] = evaluate(state, argument) end
  return list, #node.list
end

local function call(state, node)
  if node.of.kind == "name" and state.scope[node.of.name] == nil then
    local fn = functions[node.of.name] or fail(state, node, "the function '%s' is not known here", node.of.name)
    if node.of.name == "namespace" then
      local named = {}
      for name, value in pairs(node.named) do named[name] = evaluate(state, value) end
      return fn(state, node, named)
    end
    local list, n = arguments(state, node)
    return fn(state, node, unpack(list, 1, n))
  end
  local method = evaluate(state, node.of)
  if type(method) ~= "table" or not method.method then
    fail(state, node, "the method '%s' is not known here", tostring(node.of.index and node.of.index.value))
  end
  if next(node.named) then fail(state, node, "a method with names of arguments") end
  local list, n = arguments(state, node)
  for i = 1, n do
    if is_text(method.of) and not is_text(list[i]) then fail(state, node, "a method of a text takes texts here") end
  end
  return method.method(method.of, unpack(list, 1, n))
end

local kinds = {
  constant = function(_, node) return node.value end,
  ["true"] = function() return true end,
  ["false"] = function() return false end,
  none = function() return none end,
  name = function(state, node)
    local v = state.scope[node.name]
    return v == nil and undefined or v
  end,
  ["not"] = function(state, node) return not truth(evaluate(state, node.of)) end,
  minus = function(state, node)
    local v = evaluate(state, node.of)
    if type(v) ~= "number" then fail(state, node, "'-' needs a number") end
    return -v
  end,
  call = call,
  item = function(state, node) return item(state, node, evaluate(state, node.of), evaluate(state, node.index)) end,
  slice = function(state, node)
    local function part(p) if p then return evaluate(state, p) end end
    return slice(state, node, evaluate(state, node.of), part(node.from), part(node.to), part(node.step))
  end,
  list = function(state, node)
    local out = json.array {}
    for i, entry in ipairs(node.items) do out[i] = evaluate(state, entry) end
    return out
  end,
  dictionary = function(state, node)
    local out = {}
    for i, name in ipairs(node.names) do out[evaluate(state, name)] = evaluate(state, node.values[i]) end
    return out
  end,
  filter = function(state, node)
    local v = evaluate(state, node.of)
    local filter = filters[node.name] or fail(state, node, "the filter '%s' is not known here", node.name)
    if next(node.named) then fail(state, node, "arguments with names of the filter '%s'", node.name) end
    if takes[node.name] and not takes[node.name](v) then
      fail(state, node, "the filter '%s' cannot take this value", node.name)
    end
    local list, n = arguments(state, node)
    return filter(state, node, v, unpack(list, 1, n))
  end,
  test = function(state, node)
    local test = tests[node.name] or fail(state, node, "the test '%s' is not known here", node.name)
    return test(evaluate(state, node.of))
  end,
  choice = function(state, node)
    if truth(evaluate(state, node.condition)) then return evaluate(state, node.yes) end
    return node.no and evaluate(state, node.no) or undefined
  end,
  binary = function(state, node)
    return operators[node.operator](state, node, evaluate(state, node.left), evaluate(state, node.right))
  end,
}
kinds["and"] = function(state, node)
  local left = evaluate(state, node.left)
  return truth(left) and evaluate(state, node.right) or (not truth(left) and left)
end
kinds["or"] = function(state, node)
  local left = evaluate(state, node.left)
  if truth(left) then return left end
  return evaluate(state, node.right)
end

function evaluate(state, node)
  state.steps = state.steps + 1
  if state.steps > most_steps then fail(state, node, "the template does not come to an end") end
  return kinds[node.kind](state, node)
end

-- ---------------------------------------------------------------- statements

local function put(state, node, text)
  state.bytes = state.bytes + #text
  if state.bytes > most_bytes then fail(state, node, "the text is longer than %d bytes", most_bytes) end
  state.out[#state.out + 1] = text
end

local function entries_of(state, node)
  local of = evaluate(state, node.of)
  if of == undefined or not is_list(of) then fail(state, node, "'for' needs a list") end
  if not node.condition then return of end
  local outer, kept = state.scope, {}
  for _, entry in ipairs(of) do
    state.scope = setmetatable({ [node.names[1]] = entry }, { __index = outer })
    if truth(evaluate(state, node.condition)) then kept[#kept + 1] = entry end
  end
  state.scope = outer
  return kept
end

local statements = {
  text = function(state, node) put(state, node, node.text) end,
  print = function(state, node) put(state, node, printed(state, node, evaluate(state, node.of))) end,
  group = function(state, node) run(state, node.body) end,
  set = function(state, node)
    local value = evaluate(state, node.value)
    if not node.field then
      state.scope[node.name] = value
      return
    end
    local space = state.scope[node.name]
    if not (type(space) == "table" and (getmetatable(space) or {}).__namespace) then
      fail(state, node, "'%s' is no namespace", node.name)
    end
    space[node.field] = value
  end,
  ["for"] = function(state, node)
    local outer, entries = state.scope, entries_of(state, node)
    local n = #entries
    for i, entry in ipairs(entries) do
      local scope = { loop = { index = i, index0 = i - 1, first = i == 1, last = i == n, length = n,
        revindex = n - i + 1, revindex0 = n - i, previtem = entries[i - 1] or undefined,
        nextitem = entries[i + 1] or undefined } }
      if node.names[2] then
        if not is_list(entry) or #entry ~= 2 then fail(state, node, "'for' of two names needs pairs") end
        scope[node.names[1]], scope[node.names[2]] = entry[1], entry[2]
      else
        scope[node.names[1]] = entry
      end
      state.scope = setmetatable(scope, { __index = outer })
      run(state, node.body)
    end
    state.scope = outer
  end,
}
statements["if"] = function(state, node)
  for i, condition in ipairs(node.conditions) do
    if truth(evaluate(state, condition)) then return run(state, node.bodies[i]) end
  end
  if node.otherwise then run(state, node.otherwise) end
end

function run(state, nodes)
  for _, node in ipairs(nodes) do
    state.steps = state.steps + 1
    if state.steps > most_steps then fail(state, node, "the template does not come to an end") end
    statements[node.kind](state, node)
  end
end

--- Reads a template -> a function from a table of values to the text. name is what errors call it.
return function(text, name)
  local nodes = parse(text, name)
  return function(values)
    local scope = {}
    for key, value in pairs(values) do scope[key] = value end
    local state = { name = name, scope = scope, out = {}, steps = 0, bytes = 0 }
    run(state, nodes)
    return table.concat(state.out)
  end
end
