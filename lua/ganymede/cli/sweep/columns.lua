--- Prints rows of texts as a table: columns two blanks apart, numbers to the right and words to the left.
-- @module ganymede.cli.sweep.columns

-- Whether every text of a column reads as a number, or says that there is none.
local function is_numeric(rows, column)
  for _, row in ipairs(rows) do
    if not tonumber(row[column]) and row[column] ~= "-" then return false end
  end
  return true
end

local function padded(text, width, right)
  local room = (" "):rep(width - #text)
  return right and room .. text or text .. room
end

return function(head, rows)
  local width, right = {}, {}
  for column, text in ipairs(head) do
    width[column], right[column] = #text, is_numeric(rows, column)
    for _, row in ipairs(rows) do width[column] = math.max(width[column], #row[column]) end
  end
  for _, row in ipairs { head, unpack(rows) } do
    local parts = {}
    for column, text in ipairs(row) do parts[column] = padded(text, width[column], right[column]) end
    print((table.concat(parts, "  "):gsub("%s+$", "")))
  end
end
