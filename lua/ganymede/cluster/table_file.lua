--- Reads tables of comma-separated values with one line of names.
--
--     table_file.read "workload.csv" -> { { name = "a", time = 53, ... }, ... }
--
-- A cell that reads as a number becomes one. Cells hold no commas and no quotes: these files are measured figures.
-- @module ganymede.cluster.table_file
local table_file = {}

local function cells(line)
  local list = {}
  for cell in (line .. ","):gmatch "([^,]*)," do list[#list + 1] = cell end
  return list
end

--- path -> a list of rows by name, in the order of the file. Raises an error that names the file and the line.
-- wanted: the names that it must have.
function table_file.read(path, wanted)
  local file, why = io.open(path)
  if not file then error("there is no table to read: " .. why, 0) end
  local names, rows, number = nil, {}, 0
  for line in file:lines() do
    number = number + 1
    local row = cells((line:gsub("\r$", "")))
    if not names then
      names = row
    elseif line:find "%S" then
      if #row ~= #names then
        file:close()
        error(("%s: line %d has %d cells, and the first line names %d"):format(path, number, #row, #names), 0)
      end
      local out = {}
      for i, name in ipairs(names) do out[name] = tonumber(row[i]) or row[i] end
      rows[#rows + 1] = out
    end
  end
  file:close()
  for _, name in ipairs(wanted) do
    if not rows[1] or rows[1][name] == nil then
      error(("%s has no column '%s', or no rows"):format(path, name), 0)
    end
  end
  return rows
end

return table_file
