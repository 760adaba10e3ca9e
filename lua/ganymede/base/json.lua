--- JSON: encode and decode, strict both ways (bindings/lua_json.c says what is refused).
-- Numbers keep all their bits (17 digits); NaN and the infinities are written as the strings "nan",
-- "inf", "-inf". Decoded lists carry the mark of json.array, so that an empty list stays a list.
-- @module ganymede.base.json
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"
local missing = require "ganymede.base.missing"
local signature = require "ganymede.base.signature"

local json = { null = core.json_null }

local array_mt = core.json_array_mt

--- Marks t (default: a new table) as a list: without the mark an empty table is written as {}.
function json.array(t)
  t = t or {}
  local mt = getmetatable(t)
  if mt ~= nil and mt ~= array_mt then error("json.array: the table has a metatable of its own", 2) end
  return setmetatable(t, array_mt)
end

--- Is t marked as a list?
function json.is_array(t) return type(t) == "table" and getmetatable(t) == array_mt end

--- The object in a file of others -> table (whole numbers beyond 2^53 are rounded); nil: the file cannot be read.
-- Status 2: it is damaged, or no object.
function json.of_file(path)
  local text = machine.read(path)
  if not text then return nil end
  local value = failure.about(path, core.json_decode, text, path, true)
  if type(value) ~= "table" or json.is_array(value) then failure(2, "%s: is no object", path) end
  return value
end

--- Calls each(object, line) for the lines of a file of which each is an object of its own. A line that a process which
-- was killed has left incomplete, or damaged, is left out. No file: no lines.
function json.each_line(path, each)
  if not core.is_file(path) then return end
  for line in io.lines(path) do
    local ok, value = failure.try(json.decode, line, path)
    if ok and type(value) == "table" and not json.is_array(value) then each(value, line) end
  end
end

--- value without the marks that lists from JSON carry; tables are copied.
function json.plain(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, entry in pairs(value) do out[key] = json.plain(entry) end
  return out
end

-- value -> text.
json.encode = signature.declare("json.encode", "value any, options options?", {
  indent = { type = { "integer", "boolean" }, default = 0, doc = "the number of spaces for each level; true means 2" },
  sort = { type = "boolean", default = true, doc = "whether names are sorted, so that equal tables give equal texts" },
}, function(value, opt)
  local indent = opt.indent == true and 2 or opt.indent or 0
  local ok, text = pcall(core.json_encode, value, indent, opt.sort)
  if not ok then error(text, 2) end
  return text
end)

--- text -> value; null becomes json.null. name is what errors call the text: "name:line:column: ...".
-- rounded: whole numbers beyond 2^53, which files of others have, are rounded; otherwise they are refused.
function json.decode(text, name, rounded)
  local ok, value = pcall(core.json_decode, text, name, rounded)
  if not ok then error(value, 2) end
  return value
end

--- The value of one line of a file of others, as json.decode with `rounded`. Status 2: it is damaged.
-- place: what errors call the line, such as "talks.jsonl: line 7".
function json.of_line(text, place)
  local ok, value = failure.try(core.json_decode, text, "line", true)
  if not ok then failure(2, "%s: %s", place, (failure.text(value):gsub("^line:%d+:(%d+): ", "column %1: "))) end
  return value
end

return missing.guard("json", signature.export("json", json))
