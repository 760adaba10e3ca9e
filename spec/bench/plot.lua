--- Pictures of curves as SVG, for the scripts here that write into docs/pictures.
--
--     local p = plot.new(760, 500, 74, 150)                -- width, height, margins to the left and right
--     local at_x, at_y = p:panel { top = 32, height = 240, low = 0, high = 1, ticks = { 0, 0.5, 1 }, format = "%.1f",
--       label = "accuracy", x = { 0, 75, 150 } }            -- place = function(x) -> 0 to 1; say = function(x) -> text
--     p:curve(1, { 0, 75, 150 }, { 0.1, 0.5, 0.7 }, at_x, at_y)
--     p:legend { "serial" }
--     p:write "docs/pictures/x.svg"
-- Curves are told apart by colour and by circles of growing size, also where they coincide.
local shell = require "spec.support.shell"

local plot = {}

local colours = { "#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#8a6d00" }

local Plot = {}
Plot.__index = Plot

function plot.new(width, height, left, right)
  local self = setmetatable({ out = {}, width = width, left = left, right = right, inner = width - left - right }, Plot)
  self:put('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" %s>', width, height,
    width, height, 'font-family="sans-serif" font-size="12" fill="#222"')
  self:put '<rect width="100%%" height="100%%" fill="#fff"/>'
  return self
end

function Plot:put(fmt, ...) self.out[#self.out + 1] = fmt:format(...) end

function Plot:text(x, y, said, more) self:put('<text x="%.1f" y="%.1f" %s>%s</text>', x, y, more or "", said) end

function Plot:mark(i, x, y)
  self:put('<circle cx="%.1f" cy="%.1f" r="%.1f" fill="none" stroke="%s" stroke-width="1.4"/>', x, y, 1.4 + 1.1 * i,
    colours[i])
end

--- A frame with ticks -> functions from x and from a value to a place on the picture.
function Plot:panel(p)
  local last, left, inner = p.x[#p.x], self.left, self.inner
  local place = p.place or function(x) return x / last end
  local function at_x(x) return left + inner * place(x) end
  local function at_y(value) return p.top + p.height * (p.high - value) / (p.high - p.low) end
  self:put('<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>', left, p.top, inner, p.height)
  for _, tick in ipairs(p.ticks) do
    self:put('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>', left, left + inner, at_y(tick), at_y(tick))
    self:text(left - 8, at_y(tick) + 4, p.format:format(tick), 'text-anchor="end"')
  end
  for _, x in ipairs(p.x) do
    self:put('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#888"/>', at_x(x), at_x(x), p.top + p.height,
      p.top + p.height + 4)
    self:text(at_x(x), p.top + p.height + 18, (p.say or tostring)(x), 'text-anchor="middle"')
  end
  self:text(0, 0, p.label, ('text-anchor="middle" transform="translate(18 %d) rotate(-90)"'):format(
    p.top + p.height / 2))
  return at_x, at_y
end

function Plot:curve(i, xs, values, at_x, at_y)
  local points = {}
  for k, x in ipairs(xs) do points[k] = ("%.1f,%.1f"):format(at_x(x), at_y(values[k])) end
  self:put('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.2"/>', table.concat(points, " "), colours[i])
  for k, x in ipairs(xs) do self:mark(i, at_x(x), at_y(values[k])) end
end

function Plot:legend(names)
  local x = self.width - self.right
  for i, name in ipairs(names) do
    local y = 46 + 22 * (i - 1)
    self:put('<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="1.2"/>', x + 14, x + 44, y, y, colours[i])
    self:mark(i, x + 29, y)
    self:text(x + 50, y + 4, name)
  end
end

function Plot:write(path)
  self:put "</svg>"
  shell.write(path, table.concat(self.out, "\n") .. "\n")
end

--- Multiples of `by` from low to high.
function plot.ticks(low, high, by)
  local list = {}
  for k = math.ceil(low / by - 1e-9), math.floor(high / by + 1e-9) do list[#list + 1] = k * by end
  return list
end

return plot
