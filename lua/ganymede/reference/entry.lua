--- An entry of the reference: what is known of one public name, made of a declaration and a text.
--
--     { kind = "op", name = "gm.ops.sum", names = { "gm.ops.sum", "ops.sum", ... }, short = "sum",
--       calls = { "gm.ops.sum(x tensor, ...)", "x:sum(...)" }, summary, more, arguments = list of { name, allowed,
--       default, text }, options = the same, parts = list of { label, text }, example = lines, see = names, place }
--
-- Everything that prints entries (plain, html, man, luals) reads these fields and nothing else.
-- @module ganymede.reference.entry
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"
local source = require "ganymede.reference.source"
local text = require "ganymede.reference.text"
local texts = require "ganymede.reference.texts"

local entry = {}

--- The last part of a name: "sum" of "gm.ops.sum" and of "tensor:sum".
function entry.short(name) return name:match "[^.:]+$" end

-- What tags say, in the order of text.shown.
local function parts_of(doc)
  local parts = {}
  for _, shown in ipairs(text.shown) do
    for _, said in ipairs(doc.tags[shown[1]] or {}) do parts[#parts + 1] = { label = shown[2], text = said } end
  end
  return parts
end

--- Options of a table of ganymede.base.options, in alphabetical order; hidden ones say so in their declaration.
function entry.options(spec)
  local list = {}
  for _, name in ipairs(options.sorted_keys(spec or {})) do
    local o = spec[name]
    local default = o.default ~= nil and "default " .. options.literal(o.default)
      or o.initial and "default " .. o.initial or o.optional and "optional" or "required"
    list[#list + 1] = { name = name, allowed = options.allowed(o), default = default, text = o.doc, entry = o }
  end
  return list
end

-- The lines of `setup` that an example needs, before it: those whose first word stands in what follows.
local function put_before(example, setup)
  for i = #setup, 1, -1 do
    local name = setup[i]:match "^[%a_]+"
    if table.concat(example, "\n"):find("%f[%w_]" .. name .. "%f[^%w_]") then table.insert(example, 1, setup[i]) end
  end
end

--- A new entry from a text. about: kind, name, names (others), calls, place, ...
function entry.new(about, given)
  local added, setup = texts.of(about.name)
  local doc = text.parse(texts.joined(given, added))
  if doc.example then put_before(doc.example, setup or {}) end
  local made = { parts = parts_of(doc), example = doc.example, see = doc.see, summary = doc.summary, more = doc.more,
    arguments = {}, options = {}, calls = {}, doc = doc }
  for key, value in pairs(about) do made[key] = value end
  made.short = about.short or entry.short(about.name)
  made.names = { about.name }
  for _, name in ipairs(about.names or {}) do made.names[#made.names + 1] = name end
  return made
end

-- Types in words: "a tensor or a number". What nobody has typed says it in its text: "(a string) the folder".
local function allowed(argument) return options.allowed { type = argument.types } end

local function arguments_of(sig, doc, from)
  local list = {}
  for i = from, #sig.arguments do
    local argument = sig.arguments[i]
    local said, typed = doc.params[argument.name], nil
    if said and argument.types[1] == "any" then
      typed = said:match "^%((.-)%)"
      if typed then said = said:match "^%(.-%)%s*(.*)$" end
    end
    list[#list + 1] = { name = argument.name, allowed = typed or allowed(argument), text = said,
      types = argument.types, typed = typed, default = argument.optional and not typed and "may be left out" or nil,
      rest = sig.rest and i == #sig.arguments or nil, optional = argument.optional }
  end
  return list
end

-- The text that a function carries, and its place. What a call like define("zeros", ...) declares has its comment above
-- that call.
local function text_of(sig, name)
  if sig.doc then return sig.doc, nil end
  local path = source.path(sig.source)
  local found = path and source.definition(entry.short(name), path)
  if found then return found.text, source.place(path, found.line) end
  return source.of_function(sig.source)
end

-- "x tensor, dim integer|table?, options?"; what nobody has typed is a name alone.
local function listed(sig, first)
  local out = {}
  for i = first, #sig.arguments do
    local a = sig.arguments[i]
    local bare = a.types[1] == "any" and a.name or a.written:match "^%S+ options(%??)$" and a.name
    out[#out + 1] = bare and bare .. (a.written:match " options%?$" and "?" or "") or a.written
  end
  if sig.rest then out[#out + 1] = "..." end
  return table.concat(out, ", ")
end

--- How a function is called under a name: "gm.ops.sum(x tensor, dim integer|table?)"; of an object with a colon.
function entry.call(sig, name)
  local first = name:find(":", 1, true) and 2 or 1
  return ("%s(%s)"):format(name, listed(sig, first))
end

--- The entry of a function that is declared (ganymede.base.signature).
-- about: kind, name; names: other full names.
function entry.of_function(fn, about)
  local sig = signature.of(fn)
  if not sig then error(("%s is not declared: ganymede.signature"):format(about.name), 2) end
  local given, place = text_of(sig, about.name)
  local made = entry.new(about, given)
  local method = about.name:find(":", 1, true) ~= nil
  made.calls[1] = entry.call(sig, about.name)
  made.arguments = arguments_of(sig, made.doc, (method and not sig.bound) and 2 or 1)
  made.options, made.place, made.signature = entry.options(sig.options or sig.inside), place, sig
  made.value = fn
  if sig.instead then made.parts[#made.parts + 1] = { label = "note", text = sig.instead } end
  return made
end

return entry
