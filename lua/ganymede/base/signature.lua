--- What functions take: a declaration each, from which checks, messages, help and specs follow.
--
--     M.zeros = signature.declare("gm.zeros", "shape table, options options?", { dtype = { ... } }, fn)
--     return signature.export("comm", comm)
--
-- The text lists the arguments, each a name and a type or several ("dim integer|table?"); ? says that it may be left
-- out, "..." that more of the last follow. Types: number integer string boolean table function tensor object any, and
-- `options`: a table that is checked as ganymede.base.options does it, so that the function gets it with its defaults.
-- Functions of C are declared in C in the same words (bindings/declare.h); signature.of reads both.
-- The trap: what is declared is a function around the other one, so the module's own calls by a local name skip it.
-- @module ganymede.base.signature
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local options = require "ganymede.base.options"

local signature = {}
local declared = setmetatable({}, { __mode = "k" }) -- function -> what signature.of gives

-- ---------------------------------------------------------------- reading declarations

local function add_argument(sig, text)
  local name, types = text:match "^(%S+) (%S+)$"
  if not name then error(("signature of %s: '%s' is no name and type"):format(sig.name, text), 0) end
  local argument = { name = name, types = {}, optional = types:sub(-1) == "?", written = text }
  for word in types:gmatch "[%a]+" do
    argument.types[#argument.types + 1] = word == "options" and "table" or word
    if word == "options" then sig.options_at = #sig.arguments + 1 end
  end
  sig.arguments[#sig.arguments + 1] = argument
  if not argument.optional then sig.least = #sig.arguments end
end

local function parse(name, text)
  local sig = { name = name, text = text, arguments = {}, least = 0 }
  for part in text:gmatch "[^,]+" do
    part = part:match "^%s*(.-)%s*$"
    if part == "..." then sig.rest = true else add_argument(sig, part) end
  end
  sig.most = sig.rest and math.huge or #sig.arguments
  return sig
end

-- "[0,1)" as the fields of an entry of ganymede.base.options
local function set_range(entry, range)
  local open, low, high, close = range:match "^([%[%(])(.-),(.-)([%]%)])$"
  if tonumber(low) then entry[open == "[" and "min" or "above"] = tonumber(low) end
  if tonumber(high) and tonumber(high) < math.huge then
    entry[close == "]" and "max" or "below"] = tonumber(high)
  end
end

-- What C declares, in the form of signature.of.
local function from_c(given)
  local sig = parse(given.name, given.arguments)
  sig.instead, sig.doc = given.instead, given.doc
  if not given.options then return sig end
  sig.options = {}
  for _, o in ipairs(given.options) do
    local entry = { type = { o.type:match "^(%a+)|(%a+)$" }, optional = true, initial = o.initial, doc = o.doc }
    if not entry.type[1] then entry.type = o.type end
    if o.range then set_range(entry, o.range) end
    sig.options[o.name] = entry
  end
  return sig
end

-- Declarations that nobody has written: names as in the source, any values, as many as there are names.
local function text_of(fn)
  local about, parts = debug.getinfo(fn, "u"), {}
  for i = 1, about.nparams do parts[i] = (debug.getlocal(fn, i) or "value") .. " any?" end
  if about.isvararg then parts[#parts + 1] = about.nparams > 0 and "..." or "values any?, ..." end
  return table.concat(parts, ", ")
end

-- A declaration of signature.export, read when somebody asks: a program begins with hundreds of them.
local function complete(sig)
  if sig and not sig.arguments then
    for key, value in pairs(parse(sig.name, text_of(sig.fn))) do sig[key] = value end
    sig.source = debug.getinfo(sig.fn, "S")
  end
  return sig
end

--- What a function takes: { name, text, arguments = list of { name, types, optional, written }, least, most
-- (arguments), options (as ganymede.options has them) or nil, options_at, inside (options that the function checks
-- itself), instead, source (debug.getinfo of the Lua function inside), doc (the text of a C function for the
-- reference) }; nil: nothing is declared.
function signature.of(fn)
  local given = core.signature(fn)
  return given and from_c(given) or complete(declared[fn])
end

--- "sum(x tensor, dim integer|table?)"; as a method "x:sum(dim integer|table?)".
function signature.show(sig, method)
  local first, rest = sig.text:match "^(%S+) [^,]*,? ?(.*)$"
  if method and first then return ("%s:%s(%s)"):format(first, sig.name:match "[^.:]+$", rest) end
  return ("%s(%s)"):format(sig.name, sig.text)
end

-- ---------------------------------------------------------------- saying what is wrong

local function plural(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

local function surplus(sig, method, n, values)
  local less = method and 1 or 0
  local i = sig.most + 1
  while values[i] == nil do i = i + 1 end
  local extra = options.brief(values[i])
  local said = ("%s takes %s; got %d, and %s is one too many: %s"):format(sig.name,
    plural(sig.most - less, "argument"), n - less, extra, signature.show(sig, method))
  return sig.instead and said .. "; " .. sig.instead or said
end

local function holds(argument, value)
  if value == nil then return argument.optional or argument.types[1] == "any" end
  for _, word in ipairs(argument.types) do
    if options.is_of_type(word, value) then return true end
  end
  return false
end

local function wrong_argument(sig, method, i, argument, value, missing)
  local got = missing and "no value" or options.brief(value)
  local said = ("bad argument #%d to '%s' (%s must be %s; got %s): %s"):format(i - (method and 1 or 0), sig.name,
    argument.name, options.allowed { type = argument.types }, got, signature.show(sig, method))
  return sig.instead and said .. "; " .. sig.instead or said
end

local function wrong_options(sig, given)
  local _, problems = options.inspect(sig.options, given)
  local first = problems[1]
  return first and sig.name .. (first.unknown and " has " or ": ") .. first.message
end

--- Why a call is refused; nil: it is not.
-- @param method was it called as object:name()?
function signature.explain(sig, method, ...)
  local n, values = select("#", ...), { ... }
  while n > sig.most and values[n] == nil do n = n - 1 end
  if n > sig.most then return surplus(sig, method, n, values) end
  for i = 1, math.max(n, #sig.arguments) do
    local argument = sig.arguments[math.min(i, #sig.arguments)]
    if not holds(argument, values[i]) and not (i > #sig.arguments and values[i] == nil) then
      return wrong_argument(sig, method, i, argument, values[i], i > n)
    end
  end
  local given = sig.options_at and values[sig.options_at]
  return given and sig.options and wrong_options(sig, given) or nil
end

--- For the entry of C functions: what `core.signature` gives, and the arguments that were refused.
function signature.explain_call(given, method, ...)
  local why = signature.explain(from_c(given), method, ...)
  return why or ("%s refuses these arguments, and no reason can be found"):format(given.name)
end

-- ---------------------------------------------------------------- functions of Lua

local lua_types = { tensor = "userdata", object = "table", integer = "number" }
local every_type = {}
for name in ("nil boolean number string table function userdata thread cdata"):gmatch "%a+" do
  every_type[name] = true
end

-- The types of Lua that each of the first six arguments may have: a set each.
local function allowed_types(sig)
  local all = {}
  for i = 1, 6 do
    local argument, set = sig.arguments[i] or sig.rest and sig.arguments[#sig.arguments], nil
    if argument then
      set = { ["nil"] = argument.optional or nil }
      for _, word in ipairs(argument.types) do
        if word == "any" then set = every_type break end
        if word == "function" then set.table = true end -- it may be a table that can be called
        if word == "object" then set.userdata = true end
        set[lua_types[word] or word] = true
      end
    end
    all[i] = set or { ["nil"] = true }
  end
  return all
end

local function method_call(level)
  local info = debug.getinfo(level, "n")
  return info ~= nil and info.namewhat == "method"
end

local function refuse(sig, ...)
  local why = signature.explain(complete(sig), method_call(3), ...)
  if why then error(why, 3) end
end

-- Options without a fault, with the defaults; nil: there may be one. What options.check does, without its order. Where
-- there are no defaults it is the user's own table, which nobody writes into.
local function filled(sig, given)
  local tests, defaults = sig.tests, sig.initial
  local out = defaults and {} or given
  for key, value in pairs(given) do
    local test = tests[key]
    if not test or not test(value) then return nil end
    if defaults then out[key] = value end
  end
  if not defaults then return not getmetatable(given) and given or nil end
  for i = 1, #defaults do
    local name = defaults[i]
    if out[name] == nil then
      out[name] = sig.options[name].default
      if out[name] == nil then return nil end
    end
  end
  return out
end

local function checked_options(sig, given)
  if given == nil and sig.defaults then return sig.defaults end
  local good = given ~= nil and filled(sig, given)
  if good then return good end
  local opt = options.check(sig.name, sig.options, given, 3) -- no tail call: levels count frames
  return opt
end

local function testers(spec)
  local tests = {}
  for name, entry in pairs(spec) do tests[name] = options.tester(entry) end
  return tests
end

-- The names of options that have a default or must be given, or nil.
local function to_fill_in(spec)
  local names = {}
  for _, name in ipairs(options.sorted_keys(spec)) do
    if spec[name].default ~= nil or not spec[name].optional then names[#names + 1] = name end
  end
  return names[1] and names
end

-- What is called. Ops and constructors go through here, so there is no table made and no call that need not be:
-- what is wrong is found again when it is said. Surplus arguments that are nil say nothing (refuse returns).

local function entry_of_one(sig, fn) -- the type of the first alone
  local one, most = sig.kinds[1], sig.most
  return function(...)
    if not one[type((...))] or select("#", ...) > most then refuse(sig, ...) end
    return fn(...)
  end
end

local function entry_of_few(sig, fn) -- the types of three at most; options are the last, if there are any
  local one, two, three = unpack(sig.kinds)
  local k, most = sig.options_at, math.max(sig.most, 3) -- up to three the types tell
  return function(...)
    local a, b, c = ...
    if select("#", ...) > most or not (one[type(a)] and two[type(b)] and three[type(c)]) then refuse(sig, ...) end
    if not k then return fn(...) end
    if k == 2 then return fn(a, checked_options(sig, b)) end
    if k == 1 then return fn(checked_options(sig, a)) end
    return fn(a, b, checked_options(sig, c))
  end
end

local function entry_of_five(sig, fn) -- the types of five, of which the fourth or the fifth are options, the last
  local one, two, three, four, five = unpack(sig.kinds)
  local k, most = sig.options_at, sig.most
  return function(...)
    local a, b, c, d, e = ...
    if select("#", ...) > most or not (one[type(a)] and two[type(b)] and three[type(c)] and four[type(d)]
      and five[type(e)]) then refuse(sig, ...) end
    if k == 4 then return fn(a, b, c, checked_options(sig, d)) end
    return fn(a, b, c, d, checked_options(sig, e))
  end
end

local function entry_of_many(sig, fn) -- the types of six
  local kinds, k, most = sig.kinds, sig.options_at, sig.most
  return function(...)
    local good = select("#", ...) <= most
    for i = 1, 6 do good = good and kinds[i][type((select(i, ...)))] end
    if not good then refuse(sig, ...) end
    if not k then return fn(...) end
    local values = { ... }
    values[k] = checked_options(sig, values[k])
    return fn(unpack(values, 1, most))
  end
end

local function entry_of_any(sig, fn) -- values, which are counted only
  local most = sig.most
  return function(...)
    if select("#", ...) > most then refuse(sig, ...) end
    return fn(...)
  end
end

local function entry_for(sig)
  local last = 0 -- argument whose type matters
  for i = 1, math.min(#sig.arguments, 6) do
    if sig.kinds[i] ~= every_type then last = i end
  end
  if last == 0 then return entry_of_any end
  if last == 1 and not sig.options_at then return entry_of_one end
  if sig.options_at and sig.options_at < sig.most then return entry_of_many end
  if sig.options_at == 4 or sig.options_at == 5 then return entry_of_five end
  return last <= 3 and entry_of_few or entry_of_many
end

--- A function that takes what `text` says and then is fn. spec: the options, where an argument has that type.
function signature.declare(name, text, spec, fn, instead)
  local sig = parse(name, text)
  sig.options, sig.instead, sig.kinds = spec, instead, allowed_types(sig)
  sig.source = debug.getinfo(failure.inside(fn), "S")
  if (sig.options_at ~= nil) ~= (spec ~= nil) then
    error(("signature of %s: options without an argument"):format(name), 2)
  end
  if spec then sig.tests, sig.initial = testers(spec), to_fill_in(spec) end
  sig.defaults = spec and filled(sig, {}) -- nil: something must be given
  local entry = entry_for(sig)(sig, fn)
  declared[entry] = sig
  return entry
end

--- Declares every function of a module, or every method of a class, that is not declared yet: from here on a surplus
-- argument is refused. Returns the module. separator: "." (default), or ":" for a class; except: a list of methods that
-- classes below override with more arguments; inside: options by function, of those that check them themselves.
function signature.export(name, module, separator, except, inside)
  local left_out = {}
  for _, key in ipairs(except or {}) do left_out[key] = true end
  for key, fn in pairs(module) do
    if type(fn) == "function" and type(key) == "string" and key:sub(1, 2) ~= "__" and not left_out[key]
      and not declared[fn] and not core.signature(fn) then
      local about = debug.getinfo(failure.inside(fn), "u")
      local most = about.isvararg and math.huge or about.nparams
      local sig = { name = name .. (separator or ".") .. key, fn = failure.inside(fn), most = most,
        inside = inside and inside[key] }
      module[key] = entry_of_any(sig, fn)
      declared[module[key]] = sig
    end
  end
  return module
end

--- The __call of classes whose objects are made by fn(class, ...), where ... is what `text` lists. Messages name the
-- class.
function signature.constructor(text, fn)
  local sig = parse("a constructor", text)
  local function made(class, ...)
    local n = select("#", ...)
    if n > sig.most or sig.least > 0 then -- options check themselves
      local own = setmetatable({ name = class.name }, { __index = sig })
      local why = signature.explain(own, false, ...)
      if why then error(why, 2) end
    end
    return fn(class, ...)
  end
  declared[made] = sig
  return made
end

return signature
