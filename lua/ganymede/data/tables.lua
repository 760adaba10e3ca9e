--- Datasets of rows: files of separated values, columns of which become x and y.
--
--     data = { train = { type = "CSV", path = "train.csv", y = "survived", classes = 2,
--       x = { "fare", { name = "age", missing = "mean" }, { name = "sex", values = { "male", "female" } } } } }
--
-- All rows are read when the dataset is opened, in C (host/data/table_dataset.c).
-- @module ganymede.data.tables
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local log = require "ganymede.base.log"
local native = require "ganymede.data.native"
local options = require "ganymede.base.options"

local tables = {}

local column_options = {
  name = { type = "string", doc = "the name that the first line gives it; without a header its number, from \"1\"" },
  values = { type = "table", optional = true,
    doc = "the texts that the column may hold, in order; each becomes its place, from 0; default: it holds numbers" },
  missing = { type = { "number", "string" }, default = "refuse",
    doc = "what stands for a missing field: a number; \"mean\", of the rows that have one; \"drop\": the row is left "
      .. "out; \"refuse\": an error" },
}

local rules = { refuse = true, mean = true, drop = true }

-- A column as C takes it, from a name or { name, values, missing }.
local function column(what, given)
  local opt = options.check("CSV: " .. what, column_options, type(given) == "string" and { name = given } or given, 4)
  if type(opt.missing) == "number" then
    return { name = opt.name, values = opt.values, missing = "value", value = opt.missing }
  elseif not rules[opt.missing] then
    error(("CSV: %s: missing = %s; a number, \"mean\", \"drop\" or \"refuse\" is possible"):format(what,
      options.literal(opt.missing)), 0)
  end
  return { name = opt.name, values = opt.values, missing = opt.missing }
end

local function columns_of(opt)
  local x = {}
  if #opt.x == 0 then error("CSV: x is an empty list of columns", 0) end
  for k, given in ipairs(opt.x) do
    if type(given) ~= "string" and type(given) ~= "table" then
      error(("CSV: column %d of x is neither a name nor { name = ... }: %s"):format(k, options.literal(given)), 0)
    end
    x[k] = column("column " .. k .. " of x", given)
  end
  return x, opt.y and column("y", opt.y)
end

local function say(opt, report)
  if core.rank() ~= 0 then return end
  if report.refused > 0 then
    log.warn("CSV: %d rows are left out because they cannot be read; the first: %s", report.refused, report.first)
  end
  if report.dropped > 0 then
    log.info("CSV: %d rows of %s are left out because a value is missing", report.dropped,
      type(opt.path) == "table" and opt.path[1] .. ", ..." or opt.path)
  end
end

tables.CSV = native.define("CSV", {
  path = { type = { "string", "table" }, doc = "the path of a file, or a list of paths" },
  x = { type = "table", doc = "the list of the columns that make x: names, or { name, values, missing }" },
  y = { type = { "string", "table" }, optional = true,
    doc = "the column that is y, likewise; with classes or values it is a label, else a number; default: y is 0" },
  classes = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of classes; y is then one of 0 to classes - 1; default: the number of the values of y" },
  header = { type = "boolean", default = true, doc = "whether the first line names the columns" },
  delimiter = { type = "string", default = ",", doc = "the byte between two fields" },
  damaged = { type = "string", one_of = { "stop", "skip" }, default = "stop",
    doc = "what a row does that cannot be read; stop: it is an error that names the line; skip: it is left out, and "
      .. "how many there are is said" },
}, function(opt)
  local x, y = columns_of(opt)
  local about = { classes = opt.classes or y and y.values and #y.values, header = opt.header,
                  skip_damaged = opt.damaged == "skip" }
  local paths = type(opt.path) == "table" and opt.path or { opt.path }
  local handle, report = checked(nil, core.dataset_csv(paths, opt.delimiter, x, y, about))
  say(opt, report)
  for k, c in ipairs(report.columns) do c.name = (x[k] or y).name end
  return handle, { columns = report.columns, left_out = report.dropped + report.refused,
                   class_names = y and y.values }
end)

return tables
