--- Writes rows of numbers as CSV (RFC 4180): a line of names, then a line for each row, each whole.
--
--     local file = CSVFile("runs/x/steps.csv", { "step", "loss" }, 1200)   -- keeps the rows up to step 1200
--     file:write { step = 1201, loss = 0.3 }
--     file:close()
--
-- The first column is the step. Numbers keep all digits; a value that a row lacks is empty; what is not finite is
-- written as nan, inf and -inf. If the disk is full, rows wait in memory until there is room.
-- A value under a new name becomes a column more, at the end; the file is then written anew, and older rows are empty
-- there. So are the columns of an older run's file that this one does not have.
-- @module ganymede.observe.csv_file
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local WaitingFile = require "ganymede.observe.waiting_file"

local CSVFile = {}
CSVFile.__index = CSVFile

local WAIT_AT_MOST = 100000 -- rows

local function field(value)
  if value == nil then return "" end
  if type(value) ~= "number" then
    local text = tostring(value)
    return text:find '[",\r\n]' and '"' .. text:gsub('"', '""') .. '"' or text
  end
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  local short = ("%.15g"):format(value)
  return tonumber(short) == value and short or ("%.17g"):format(value)
end

local function line(list, columns)
  local out = {}
  for i = 1, columns do out[i] = field(list[i]) end
  return table.concat(out, ",") .. "\r\n"
end

-- A field of the first line -> its text, where it ends; nil: it has no end.
local function name_at(text, at)
  if text:sub(at, at) ~= '"' then return text:match("^([^,\r\n]*)()", at) end
  local parts = {}
  repeat
    local part, after = text:match('^"([^"]*)"()', at)
    if not part then return nil end
    parts[#parts + 1], at = part, after
  until text:sub(at, at) ~= '"'
  return table.concat(parts, '"'), at
end

-- The names in the first line, where the rows begin; nil: there is no such line.
local function names_of(text)
  local names, at, name = {}, 1
  repeat
    name, at = name_at(text, at)
    names[#names + 1] = name
    if not name or text:sub(at, at + 1) == "\r\n" then return name and names, name and at + 2 end
    at = at + 1
  until text:sub(at - 1, at - 1) ~= ","
end

-- A list of names, and those of another list that it lacks.
local function joined(names, more)
  local out, has = { unpack(names) }, {}
  for _, name in ipairs(names) do has[name] = true end
  for _, name in ipairs(more) do
    if not has[name] then out[#out + 1] = name end
  end
  return out
end

-- Returns the columns of a file that has these, too, and its text, with the whole rows up to that step.
local function kept(path, columns, step)
  local text = step > 0 and core.is_file(path) and assert(machine.read(path)) or ""
  if text == "" then return columns, line(columns, #columns) end
  local had, first = names_of(text)
  if not had or had[1] ~= columns[1] then
    failure(2, "%s does not begin with the names of its columns, the first of them %s; move it away, or give the hook "
      .. "another directory", path, columns[1])
  end
  columns = joined(had, columns)
  local rows, rest = { line(columns, #columns) }, (","):rep(#columns - #had) .. "\r\n"
  for row in text:sub(first):gmatch "([^\r\n]*)\r\n" do
    local at = tonumber(row:match "^[^,]*")
    if at and at <= step then rows[#rows + 1] = row .. rest end
  end
  return columns, table.concat(rows)
end

--- Opens the file. columns: list of names, the first is the step; step: the number of steps that the run has made; 0:
-- the old contents are dropped.
local function new(_, path, columns, step)
  local all, text = kept(path, columns, step)
  core.write_whole(path, text)
  return setmetatable({ path = path, columns = all,
    file = WaitingFile { path = path, what = "rows", most = WAIT_AT_MOST } }, CSVFile)
end

-- Gives the file the columns that it lacks. Without room for that it stays as it is, and the next row tries again.
local function widen(self, names)
  local all = joined(self.columns, names)
  if #all == #self.columns or not self.file:is_written() then return end
  local ok, wide = failure.try(new, nil, self.path, all, math.huge)
  if not ok then
    local why = failure.text(wide):gsub("^%S+%.lua:%d+: ", "")
    if not self.said then log.warn("%s goes on without new columns: %s", self.path, why) end
    self.said = true
    return
  end
  self.file:close()
  self.columns, self.file, self.said = wide.columns, wide.file, nil
end

--- Adds a row: a table of values by column.
function CSVFile:write(values)
  widen(self, options.sorted_keys(values))
  local list = {}
  for i, name in ipairs(self.columns) do list[i] = values[name] end
  self.file:write(line(list, #self.columns))
end

--- Closes the file, and warns if rows could not be written.
function CSVFile:close() self.file:close() end

return setmetatable(CSVFile, { __call = new })
