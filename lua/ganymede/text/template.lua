--- Evaluates templates of chats (ganymede.text.template_parse) as transformers does with Jinja.
--
--     local render = template(text, "chat template")
--     render { messages = { { role = "user", content = "Hi" } }, add_generation_prompt = true }
--
-- Values are texts, numbers, booleans, lists (1, 2, ... in Lua, from 0 in a template), tables with names, and
-- json.null for none. A name that is not given is undefined: it prints nothing and is false. What is not known here is
-- refused; the work of a template is bounded.
-- @module ganymede.text.template
local json = require "ganymede.base.json"
local parse = require "ganymede.text.template_parse"
local values = require "ganymede.text.template_values"

local undefined, none, fail, step, charge, size_of = values.undefined, values.none, values.fail, values.step,
  values.charge, values.size_of
local is_list, is_table, is_text, truth, printed = values.is_list, values.is_table, values.is_text, values.truth,
  values.printed
local most_bytes, most_depth = values.most_bytes, values.most_depth

local evaluate, run

-- ---------------------------------------------------------------- expressions

local function equal(state, node, a, b, depth)
  if type(a) == "string" and type(b) == "string" then charge(state, node, #a) end
  if type(a) ~= "table" or type(b) ~= "table" or a == none or b == none or a == undefined or b == undefined then
    return a == b
  end
  depth = (depth or 0) + 1
  if depth > most_depth then fail(state, node, "a comparison of what is nested too deeply") end
  charge(state, node, 64)
  for k, v in pairs(a) do if b[k] == nil or not equal(state, node, v, b[k], depth) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end

local function contains(state, node, part, whole)
  charge(state, node, size_of(whole))
  if is_text(whole) and is_text(part) then return whole:find(part, 1, true) ~= nil end
  if is_list(whole) then
    for _, item in ipairs(whole) do if equal(state, node, item, part) then return true end end
    return false
  end
  if is_table(whole) then return whole[part] ~= nil end
  fail(state, node, "'in' needs a text, a list or a table")
end

local function numbers(state, node, a, b)
  if type(a) ~= "number" or type(b) ~= "number" then fail(state, node, "'%s' needs numbers", node.operator) end
end

local operators = {
  ["=="] = equal,
  ["!="] = function(...) return not equal(...) end,
  ["in"] = contains,
  ["~"] = function(state, node, a, b)
    a, b = printed(state, node, a), printed(state, node, b)
    charge(state, node, #a + #b)
    return a .. b
  end,
  ["+"] = function(state, node, a, b)
    charge(state, node, size_of(a) + size_of(b))
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
  if is_text(of) and values.methods[index] then return { method = values.methods[index], of = of, name = index } end
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
    return { of = of, name = index, method = { 0, 0, function()
      return json.array { name ~= nil and json.array { name, value } or nil }
    end } }
  elseif index == "get" and is_table(of) and of.get == nil then
    return { of = of, name = index, method = { 1, 2, function(_, _, t, name, other)
      if t[name] ~= nil then return t[name] end
      return other == nil and none or other
    end } }
  end
  if type(index) == "number" then index = index < 0 and #of + index + 1 or index + 1 end
  local v = of[index]
  return v == nil and undefined or v
end

local function slice(state, node, of, from, to, stride)
  if not is_list(of) and not is_text(of) then fail(state, node, "a part [from:to] of what is no list and no text") end
  if is_text(of) and of:find "[\128-\255]" then fail(state, node, "a part of a text that is not ASCII") end
  stride = stride or 1
  if stride ~= 1 and stride ~= -1 then
    fail(state, node, "a step of %s; 1 and -1 are known here", tostring(stride))
  end
  for _, place in ipairs { from == nil and 0 or from, to == nil and 0 or to } do
    if place ~= none and (type(place) ~= "number" or place % 1 ~= 0) then
      fail(state, node, "a part [from:to] needs whole numbers")
    end
  end
  charge(state, node, size_of(of))
  local n, out = #of, json.array {}
  local function place(v, otherwise, low, high)
    if v == nil or v == none then return otherwise end
    return math.max(low, math.min(v < 0 and n + v or v, high))
  end
  local first, last
  if stride == 1 then first, last = place(from, 0, 0, n), place(to, n, 0, n) - 1
  else first, last = place(from, n - 1, -1, n - 1), place(to, -1, -1, n - 1) + 1 end
  for i = first, last, stride do out[#out + 1] = is_text(of) and of:sub(i + 1, i + 1) or of[i + 1] end
  return is_text(of) and table.concat(out) or out
end

local function arguments(state, node)
  local list = {}
  for i, argument in ipairs(node.list) do list[i] = evaluate(state, argument) end
  return list, #node.list
end

local function namespace(state, node)
  local named = {}
  if #node.list > 0 then fail(state, node, "namespace takes names here") end
  for name, value in pairs(node.named) do named[name] = evaluate(state, value) end
  return setmetatable({}, { __index = named, __namespace = true })
end

local function call(state, node)
  if node.of.kind == "name" and node.of.name == "namespace" then return namespace(state, node) end
  local fn, of, kind
  if node.of.kind == "name" and state.scope[node.of.name] == nil then
    local own = values.functions[node.of.name] or fail(state, node, "the function '%s' is not known here", node.of.name)
    fn, kind = own, own[3]
  else
    local method = evaluate(state, node.of)
    local index = node.of.index
    if type(method) ~= "table" or not rawget(method, "method") then
      fail(state, node, "the method '%s' is not known here", tostring(index and index.value))
    end
    fn, of, kind = method.method, method.of, is_text(method.of) and "string" or nil
  end
  local what = ("'%s'"):format(of and "." .. tostring(node.of.index and node.of.index.value) or node.of.name)
  if next(node.named) then fail(state, node, "%s with names of arguments", what) end
  local list, n = arguments(state, node)
  values.check_arguments(state, node, what, list, n, fn[1], fn[2], kind)
  if of == nil then return fn[4](state, node, unpack(list, 1, n)) end
  charge(state, node, size_of(of))
  return fn[3](state, node, of, unpack(list, 1, n))
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
    for i, name in ipairs(node.names) do
      name = evaluate(state, name)
      if not is_text(name) then fail(state, node, "the names of a table are texts here") end
      out[name] = evaluate(state, node.values[i])
    end
    return out
  end,
  filter = function(state, node)
    local v = evaluate(state, node.of)
    local filter = values.filters[node.name] or fail(state, node, "the filter '%s' is not known here", node.name)
    local what = ("the filter '%s'"):format(node.name)
    if next(node.named) then fail(state, node, "arguments with names of %s", what) end
    if not filter[1](v) then fail(state, node, "%s cannot take this value", what) end
    local list, n = arguments(state, node)
    local kind = filter[1] ~= values.any and "string" or nil
    values.check_arguments(state, node, what, list, n, filter[2], filter[3], kind)
    charge(state, node, size_of(v))
    if n == 0 then return filter[4](state, node, v) end
    return filter[4](state, node, v, unpack(list, 1, n))
  end,
  test = function(state, node)
    local test = values.tests[node.name] or fail(state, node, "the test '%s' is not known here", node.name)
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
  step(state, node)
  state.depth = state.depth + 1
  if state.depth > most_depth then fail(state, node, "is nested too deeply") end
  local value = kinds[node.kind](state, node)
  state.depth = state.depth - 1
  return value
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
    step(state, node)
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
      step(state, node)
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
    step(state, node)
    statements[node.kind](state, node)
  end
end

--- Reads a template -> a function from a table of values to the text. name is what errors call it.
return function(text, name)
  local nodes = parse(text, name)
  return function(given)
    local scope = {}
    for key, value in pairs(given) do scope[key] = value end
    local state = { name = name, scope = scope, out = {}, steps = 0, bytes = 0, work = 0, depth = 0 }
    run(state, nodes)
    return table.concat(state.out)
  end
end
