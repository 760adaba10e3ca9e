--- Draws curves of several runs, and bars, as SVG that takes its colours from the page (classes, CSS variables).
--
--     chart.curves { title = "loss", series = { { name = "a", class = "s1", points = { { 1, 2.3 }, ... } } } }
--     chart.bars { { name = "rank 0", parts = { { "parameters", 4096 }, ... } }, ... }
--
-- A curve of more points than fit keeps the least and the largest value of each piece, so peaks stay. Points that are
-- not finite leave a gap. Every curve has a dash of its own, so that paper without colours tells them apart.
-- @module ganymede.observe.report.chart
local chart = {}

local WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 250, 58, 12, 12, 30
local PIECES = 250

function chart.escaped(text)
  return (tostring(text):gsub("[&<>\"']", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
    ["'"] = "&#39;" }))
end

local function is_finite(x) return type(x) == "number" and x == x and math.abs(x) ~= math.huge end

local function number(x) return (("%.1f"):format(x):gsub("%.0$", "")) end

--- Returns at most 2 * pieces points of a list of { x, y }: the least and the largest y of each piece, in order.
function chart.thinned(points, pieces)
  if #points <= 2 * pieces then return points end
  local out = {}
  for p = 0, pieces - 1 do
    local low, high
    for i = math.floor(p * #points / pieces) + 1, math.floor((p + 1) * #points / pieces) do
      local y = points[i][2]
      if is_finite(y) then
        if not low or y < points[low][2] then low = i end
        if not high or y > points[high][2] then high = i end
      end
    end
    if low then
      out[#out + 1] = points[math.min(low, high)]
      if low ~= high then out[#out + 1] = points[math.max(low, high)] end
    end
  end
  return out
end

--- Returns marks of an axis from low to high: 1, 2 or 5 times a power of ten apart, some four of them.
function chart.marks(low, high)
  local span = high - low
  local power = 10 ^ math.floor(math.log10(span / 4))
  local step = power
  for _, factor in ipairs { 1, 2, 5, 10 } do
    if span / (factor * power) <= 5 then
      step = factor * power
      break
    end
  end
  local out = {}
  for k = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do out[#out + 1] = k * step end
  return out
end

local function limits(series, at)
  local low, high = math.huge, -math.huge
  for _, s in ipairs(series) do
    for _, point in ipairs(s.points) do
      if is_finite(point[at]) then low, high = math.min(low, point[at]), math.max(high, point[at]) end
    end
  end
  if low > high then return nil end
  if low == high then
    local room = low ~= 0 and math.abs(low) * 0.1 or 1
    low, high = low - room, high + room
  end
  return low, high
end

-- Returns the path of a curve, with gaps.
local function path_of(points, x_of, y_of)
  local out, pen = {}, "M"
  for _, point in ipairs(points) do
    if is_finite(point[2]) then
      out[#out + 1] = ("%s%s %s"):format(pen, number(x_of(point[1])), number(y_of(point[2])))
      pen = "L"
    else
      pen = "M"
    end
  end
  if #out == 1 then out[2] = "h0.1" end -- a dot
  return table.concat(out)
end

--- Returns the SVG of curves; nil if no point is finite.
function chart.curves(opt)
  local x_low, x_high = limits(opt.series, 1)
  local y_low, y_high = limits(opt.series, 2)
  if not x_low or not y_low then return nil end
  local function x_of(x) return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT) end
  local function y_of(y) return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM) end
  local out = { ('<svg viewBox="0 0 %d %d" role="img" aria-label="%s">'):format(WIDTH, HEIGHT,
    chart.escaped(opt.title)) }
  local function add(fmt, ...) out[#out + 1] = fmt:format(...) end
  for _, y in ipairs(chart.marks(y_low, y_high)) do
    add('<line class="grid" x1="%d" x2="%d" y1="%s" y2="%s"/>', LEFT, WIDTH - RIGHT, number(y_of(y)), number(y_of(y)))
    add('<text class="mark" text-anchor="end" x="%d" y="%s">%.5g</text>', LEFT - 6, number(y_of(y) + 4), y)
  end
  for _, x in ipairs(chart.marks(x_low, x_high)) do
    add('<text class="mark" text-anchor="middle" x="%s" y="%d">%.6g</text>', number(x_of(x)), HEIGHT - 10, x)
  end
  for _, s in ipairs(opt.series) do
    add('<path class="curve %s" d="%s"><title>%s</title></path>', s.class,
      path_of(chart.thinned(s.points, PIECES), x_of, y_of), chart.escaped(s.name))
  end
  add "</svg>"
  return table.concat(out)
end

--- Returns the SVG of bars, one a row, made of parts. said(value) gives the text of a value.
function chart.bars(rows, said)
  local most = 0
  for _, row in ipairs(rows) do
    row.sum = 0
    for _, part in ipairs(row.parts) do row.sum = row.sum + part[2] end
    most = math.max(most, row.sum)
  end
  if most == 0 then return nil end
  local left, bar, step = 170, 14, 22
  local out = { ('<svg viewBox="0 0 %d %d" role="img">'):format(WIDTH, step * #rows + 4) }
  for i, row in ipairs(rows) do
    local x, y = left, (i - 1) * step + 4
    out[#out + 1] = ('<text class="mark" text-anchor="end" x="%d" y="%d">%s</text>'):format(left - 8, y + 11,
      chart.escaped(row.name))
    for p, part in ipairs(row.parts) do
      local width = part[2] / most * (WIDTH - left - 90)
      out[#out + 1] = ('<rect class="p%d" x="%s" y="%d" width="%s" height="%d"><title>%s: %s</title></rect>'):format(p,
        number(x), y, number(width), bar, chart.escaped(part[1]), chart.escaped(said(part[2])))
      x = x + width
    end
    out[#out + 1] = ('<text class="mark" x="%s" y="%d">%s</text>'):format(number(x + 6), y + 11,
      chart.escaped(said(row.sum)))
  end
  out[#out + 1] = "</svg>"
  return table.concat(out)
end

return chart
