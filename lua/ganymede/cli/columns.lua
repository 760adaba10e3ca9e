--- Rows of texts as lines of a table, whose columns are two blanks apart.
--
--     columns.lines({ { "ranks", "4" }, { "memory", "512" } }, columns.numbers) -> { "ranks     4", "memory  512" }
--
-- @module ganymede.cli.columns
local columns = {}

--- Columns that lie to the right: those of numbers. The first row has their names; "-" stands for no number.
function columns.numbers(rows, column)
  for i = 2, #rows do
    local text = rows[i][column]
    if text and text ~= "-" and not tonumber(text) then return false end
  end
  return true
end

--- Columns that lie to the right: all but the first.
function columns.behind_first(_, column) return column > 1 end

local function padded(text, width, right)
  local room = (" "):rep(width - #text)
  return right and room .. text or text .. room
end

--- rows: a list of lists of texts -> a list of lines, without blanks at their ends.
-- to_right(rows, column): whether a column lies to the right; default: none does.
function columns.lines(rows, to_right)
  local width, right, lines = {}, {}, {}
  for _, row in ipairs(rows) do
    for column, text in ipairs(row) do width[column] = math.max(width[column] or 0, #text) end
  end
  for column = 1, #width do right[column] = to_right and to_right(rows, column) or false end
  for i, row in ipairs(rows) do
    local parts = {}
    for column, text in ipairs(row) do parts[column] = padded(text, width[column], right[column]) end
    lines[i] = table.concat(parts, "  "):gsub("%s+$", "")
  end
  return lines
end

return columns
