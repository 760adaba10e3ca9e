--- Writes rows of numbers as CSV (RFC 4180): a line of names, then a line for each row, each whole.
--
--     local file = CSVFile("runs/x/steps.csv", { "step", "loss" }, 1200)   -- keeps the rows up to step 1200
--     file:write { step = 1201, loss = 0.3 }
--     file:close()
--
-- The first column is the step. Numbers keep all digits; a value that a row lacks is empty; what is not finite is
-- written as nan, inf and -inf. If the disk is full, rows wait in memory until there is room.
-- @module ganymede.observe.csv_file
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"
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

-- Returns the rows of an older run that one which continues from that step keeps: those up to it, that are whole.
local function kept(path, head, step)
  if step == 0 or not core.is_file(path) then return {} end
  local text = assert(machine.read(path))
  if text:sub(1, #head) ~= head and #text > 0 then
    failure(2, "%s has other columns than %s; give the hook another directory", path, (head:gsub("%s+$", "")))
  end
  local rows = {}
  for row in text:sub(#head + 1):gmatch "([^\r\n]*)\r\n" do
    local at = tonumber(row:match "^[^,]*")
    if at and at <= step then rows[#rows + 1] = row .. "\r\n" end
  end
  return rows
end

--- Opens the file. columns: list of names, the first is the step; step: the number of steps that the run has made; 0:
-- the old contents are dropped.
local function new(_, path, columns, step)
  local head = line(columns, #columns)
  core.write_whole(path, head .. table.concat(kept(path, head, step)))
  return setmetatable({ columns = columns,
    file = WaitingFile { path = path, what = "rows", most = WAIT_AT_MOST } }, CSVFile)
end

--- Adds a row: a table of values by column.
function CSVFile:write(values)
  local list = {}
  for i, name in ipairs(self.columns) do list[i] = values[name] end
  self.file:write(line(list, #self.columns))
end

--- Closes the file, and warns if rows could not be written.
function CSVFile:close() self.file:close() end

return setmetatable(CSVFile, { __call = new })
