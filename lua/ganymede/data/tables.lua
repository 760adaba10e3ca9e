--- Datasets of rows: files of separated values or of JSON, columns of which become x and y.
--
--     data = { train = { type = "CSV", path = "train.csv", y = "survived", classes = 2,
--       x = { "fare", { name = "age", missing = "mean" }, { name = "sex", values = { "male", "female" } } } } }
--     data = { train = { type = "JSONL", path = "train.jsonl", y = "label", classes = 10,
--       x = { "user.age", { name = "pixels", length = 784 } } } }
--
-- All rows are read when the dataset is opened, in C (host/data/table_dataset.c).
-- @module ganymede.data.tables
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local native = require "ganymede.data.native"
local options = require "ganymede.base.options"
local paths_of = require "ganymede.data.paths"

local tables = {}

local column_options = {
  name = { type = "string", doc = "the name that the first line gives it; without a header its number, from \"1\"" },
  values = { type = "list", optional = true,
    doc = "the texts that the column may hold, in order; each becomes its place, from 0; default: it holds numbers" },
  missing = { type = { "number", "string" }, default = "refuse",
    doc = "what stands for a missing field: a number; \"mean\", of the rows that have one; \"drop\": the row is left "
      .. "out; \"refuse\": an error" },
}

local key_options = {
  name = { type = "string", doc = "a key, or keys and places in lists (from 1) with dots between: \"user.tags.1\"" },
  length = { type = "integer", min = 1, max = 1e5, optional = true,
    doc = "so many places of a list, from the first on, each a column; default: it is no list" },
  values = column_options.values,
  missing = column_options.missing,
}

local rules = { refuse = true, mean = true, drop = true }

-- A column as C takes it, from a name or { name, values, missing }.
local function column(what, schema, given)
  local opt = options.check(what, schema, type(given) == "string" and { name = given } or given, 4)
  if type(opt.missing) == "number" then
    return { name = opt.name, length = opt.length, values = opt.values, missing = "value", value = opt.missing }
  elseif not rules[opt.missing] then
    error(("%s: missing = %s; a number, \"mean\", \"drop\" or \"refuse\" is possible"):format(what,
      options.literal(opt.missing)), 0)
  end
  return { name = opt.name, length = opt.length, values = opt.values, missing = opt.missing }
end

-- Appends a column, or one for each place of a list.
local function add(list, c)
  if not c.length then list[#list + 1] = c end
  for i = 1, c.length or 0 do
    list[#list + 1] = { name = ("%s.%d"):format(c.name, i), values = c.values, missing = c.missing, value = c.value }
  end
end

local function columns_of(class, schema, opt)
  local x = {}
  if #opt.x == 0 then error(class .. ": x is an empty list of columns", 0) end
  for k, given in ipairs(opt.x) do
    if type(given) ~= "string" and type(given) ~= "table" then
      error(("%s: column %d of x is neither a name nor { name = ... }: %s"):format(class, k, options.literal(given)), 0)
    end
    add(x, column(("%s: column %d of x"):format(class, k), schema, given))
  end
  local y = opt.y and column(class .. ": y", schema, opt.y)
  if y and y.length then error(class .. ": y is one number, so its column has no length", 0) end
  return x, y
end

local function say(class, opt, report)
  if core.rank() ~= 0 then return end
  if report.refused > 0 then
    log.warn("%s: %d rows are left out because they cannot be read; the first: %s", class, report.refused, report.first)
  end
  if report.dropped > 0 then
    log.info("%s: %d rows of %s are left out because a value is missing", class, report.dropped,
      type(opt.path) == "table" and opt.path[1] .. ", ..." or opt.path)
  end
end

-- Opens the files of a dataset of this class. delimiter: nil for lines of JSON.
local function open(class, schema, opt, delimiter)
  local x, y = columns_of(class, schema, opt)
  local about = { classes = opt.classes or y and y.values and #y.values, header = opt.header,
                  skip_damaged = opt.damaged == "skip" }
  local handle, report = checked(nil, core.dataset_table(paths_of(class, opt.path), delimiter, x, y, about))
  say(class, opt, report)
  for k, c in ipairs(report.columns) do c.name = (x[k] or y).name end
  return handle, { columns = report.columns, left_out = report.dropped + report.refused,
                   class_names = y and y.values }
end

local path = { type = { "string", "list" }, doc = "the path of a file, gzipped or not, or a list of paths" }
local classes = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
  doc = "the number of classes; y is then one of 0 to classes - 1; default: the number of the values of y" }
local damaged = { type = "string", one_of = { "stop", "skip" }, default = "stop",
  doc = "what a row does that cannot be read; stop: it is an error that names the line; skip: it is left out, and "
    .. "how many there are is said" }

tables.CSV = native.define("CSV", {
  path = path,
  x = { type = "list", doc = "the list of the columns that make x: names, or { name, values, missing }" },
  y = { type = { "string", "table" }, optional = true,
    doc = "the column that is y, likewise; with classes or values it is a label, else a number; default: y is 0" },
  classes = classes,
  header = { type = "boolean", default = true, doc = "whether the first line names the columns" },
  delimiter = { type = "string", default = ",", doc = "the byte between two fields" },
  damaged = damaged,
}, function(opt) return open("CSV", column_options, opt, opt.delimiter) end)

tables.JSONL = native.define("JSONL", {
  path = path,
  x = { type = "list", doc = "the list of the columns that make x: keys, or { name, length, values, missing }" },
  y = { type = { "string", "table" }, optional = true,
    doc = "the key that is y, likewise; with classes or values it is a label, else a number; default: y is 0" },
  classes = classes,
  damaged = damaged,
}, function(opt) return open("JSONL", key_options, opt) end)

return tables
