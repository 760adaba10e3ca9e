--- Draws what ranks do in a simulated step as SVG: one row for each rank, time to the right. Ops are coloured by the
-- kind of work, waits are grey. The tooltip of a block says what it is and when.
--
--     local text = timeline_svg(spans, ranks, seconds)     -- spans: of ganymede.plan.simulate
--
-- Neighbouring ops of one kind are one block, and what is narrower than a fifth of a pixel is left out.
-- @module ganymede.plan.timeline_svg
local ROW, BAR, LEFT, TOP, WIDTH = 26, 20, 72, 56, 1400 -- pixels; WIDTH: of the step
local FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'
local kinds = { { "products", "#4070c4" }, { "attention", "#289462" }, { "other ops", "#8fb4e8" },
  { "waits", "#d8d8d8" } }
local colours = {}
for _, kind in ipairs(kinds) do colours[kind[1]] = kind[2] end

local function kind_of(span)
  if span.lane == "wait" then return "waits" end
  if span.name:find "^attention" then return "attention" end
  return (span.name:find "^linear" or span.name:find "^matmul" or span.name:find "^bmm") and "products" or "other ops"
end

local function escaped(text)
  return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

local function words(x, y, text, more)
  return ('<text x="%.1f" y="%.1f" %s>%s</text>'):format(x, y, more or 'font-size="12"', escaped(text))
end

-- Returns the blocks of a rank: { kind, begin, finish, names }. A wait keeps the name of what it waits for.
local function blocks_of(spans, rank)
  local out, last = {}, nil
  for _, span in ipairs(spans) do
    if span.rank == rank and span.lane ~= "transfer" then
      local kind = kind_of(span)
      if last and last.kind == kind and last.finish == span.begin and kind ~= "waits" then
        last.finish, last.ops = span.finish, last.ops + 1
      else
        last = { kind = kind, begin = span.begin, finish = span.finish, ops = 1, name = span.name }
        out[#out + 1] = last
      end
    end
  end
  return out
end

local function said(block)
  if block.kind == "waits" then return "waits for " .. block.name end
  return block.ops > 1 and ("%s: %d ops"):format(block.kind, block.ops) or block.name
end

local function row(out, spans, rank, scale)
  local y = TOP + rank * ROW
  out[#out + 1] = words(LEFT - 8, y + 14, ("rank %d"):format(rank), 'text-anchor="end" font-size="12"')
  for _, block in ipairs(blocks_of(spans, rank)) do
    local width = (block.finish - block.begin) * scale
    if width >= 0.2 then
      out[#out + 1] = ('<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s"><title>%s, %.6g to %.6g ms</title>'
        .. "</rect>"):format(LEFT + block.begin * scale, y, width, BAR, colours[block.kind], escaped(said(block)),
        1e3 * block.begin, 1e3 * block.finish)
    end
  end
end

local function axis(out, y, seconds, scale)
  for k = 0, 10 do
    local x = LEFT + k * seconds / 10 * scale
    out[#out + 1] = ('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#606060"/>'):format(x, y, x, y + 5)
    out[#out + 1] = words(x, y + 18, ("%.4g"):format(100 * k * seconds), 'text-anchor="middle" font-size="11"')
  end
  out[#out + 1] = words(LEFT - 8, y + 18, "ms", 'text-anchor="end" font-size="11"')
end

--- title: above the picture. ranks: the number of rows. seconds: of the step. Returns the text of the file.
return function(spans, ranks, seconds, title)
  local scale, out, bottom = WIDTH / math.max(seconds, 1e-12), {}, TOP + ranks * ROW
  out[1] = words(LEFT, 24, title, 'font-size="13" font-weight="bold"')
  local x = LEFT
  for _, kind in ipairs(kinds) do
    out[#out + 1] = ('<rect x="%d" y="34" width="12" height="12" fill="%s"/>'):format(x, kind[2])
    out[#out + 1] = words(x + 17, 44, kind[1])
    x = x + 34 + 7 * #kind[1]
  end
  for rank = 0, ranks - 1 do row(out, spans, rank, scale) end
  axis(out, bottom + 2, seconds, scale)
  local width, height = LEFT + WIDTH + 32, bottom + 32
  return table.concat({ ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" %s '
    .. 'fill="#202020">'):format(width, height, width, height, FONT),
    ('<rect width="%d" height="%d" fill="#ffffff"/>'):format(width, height), table.concat(out, "\n"), "</svg>", "" },
    "\n")
end
