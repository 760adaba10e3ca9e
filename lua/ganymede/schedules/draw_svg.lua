--- Draws a schedule as SVG: one row for each rank, with time going to the right. The colour is the kind of work, the
-- shade the chunk, the number the micro-batch; grey is idle time. The tooltip of a block says what it is and when.
--
--     local text = svg(schedule, simulation)    -- simulation: ganymede.schedules.simulate's; default: equal costs
--
-- A measured step (ganymede.observe.trace) is drawn in the same way: simulation.time_unit names the unit on the axis,
-- simulation.said is added to the title, and simulation.unit is the time that is as wide as the usual action.
-- @module ganymede.schedules.draw_svg
local draw = require "ganymede.schedules.draw"
local geometry = require "ganymede.job.geometry"
local simulate = require "ganymede.schedules.simulate"

local ROW, BAR, LEFT, TOP, UNIT = 30, 24, 64, 58, 22 -- pixels; UNIT: width of the shortest action
local FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'
local COLOUR = {
  forward = { 64, 112, 196 }, backward = { 40, 148, 98 }, backward_input = { 40, 148, 98 },
  backward_weight = { 232, 152, 48 },
}
local SAID = {
  { "forward", "forward" }, { "backward", "backward" }, { "backward_input", "backward, gradient of the input" },
  { "backward_weight", "backward, gradients of the weights" },
}

local function escaped(text)
  return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

local function number(n) return (("%.2f"):format(n):gsub("%.?0+$", "")) end

-- Returns the colour of a block (chunk 1 has the full colour, the last one the lightest shade), and one that can be
-- read on it.
local function shade(kind, chunk, chunks)
  local white = chunks > 1 and 0.6 * (chunk - 1) / (chunks - 1) or 0
  local c, mixed = COLOUR[kind], {}
  for i = 1, 3 do mixed[i] = math.floor(c[i] + (255 - c[i]) * white + 0.5) end
  local light = 0.3 * mixed[1] + 0.59 * mixed[2] + 0.11 * mixed[3]
  return ("#%02x%02x%02x"):format(unpack(mixed)), light > 140 and "#101010" or "#ffffff"
end

local function rectangle(x, y, width, height, fill, tip)
  local head = ('<rect x="%s" y="%s" width="%s" height="%s" fill="%s"'):format(number(x), number(y), number(width),
    number(height), fill)
  if not tip then return head .. "/>" end
  return ('%s stroke="#ffffff"><title>%s</title></rect>'):format(head, tip)
end

local function words(x, y, text, more)
  return ('<text x="%s" y="%s" %s>%s</text>'):format(number(x), number(y), more or 'font-size="12"', escaped(text))
end

-- Returns the time between two marks on the axis: 1, 2, 5, 10, ... units, so that they are at least 60 pixels apart.
local function step_of(scale)
  local step = 1
  for _, factor in ipairs { 1, 2, 5 } do
    local power = math.ceil(math.log10(60 / (scale * factor)))
    local candidate = factor * 10 ^ power
    if factor == 1 or candidate < step then step = candidate end
  end
  return step
end

local Picture = {}
Picture.__index = Picture

function Picture:add(text) self.out[#self.out + 1] = text end

function Picture:x(time) return LEFT + (time - self.first) * self.scale end

function Picture:block(i, k, action)
  local schedule, begin, finish = self.schedule, self.simulation.begins[i][k], self.simulation.finishes[i][k]
  local fill, ink = shade(action[1], action[3], schedule.chunks)
  local x, y, width = self:x(begin), TOP + (i - 1) * ROW, (finish - begin) * self.scale
  self:add(rectangle(x, y, width, BAR, fill, ("%s: %.4g to %.4g"):format(geometry.describe(action), begin, finish)))
  local style = ('text-anchor="middle" font-size="11" fill="%s"'):format(ink)
  self:add(words(x + width / 2, y + 16, tostring(action[2]), style))
  self.used[action[1]] = true
end

function Picture:rows()
  for i, actions in ipairs(self.schedule.actions) do
    local y = TOP + (i - 1) * ROW
    self:add(words(LEFT - 8, y + 16, ("rank %d"):format(i - 1), 'text-anchor="end" font-size="12"'))
    self:add(rectangle(LEFT, y, self.simulation.time * self.scale, BAR, "#e4e4e4"))
    for k, action in ipairs(actions) do
      if geometry.is_computing(action) then self:block(i, k, action) end
    end
  end
end

function Picture:axis(y)
  local right = LEFT + self.simulation.time * self.scale
  local line = '<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="#606060"/>'
  self:add(line:format(number(LEFT), number(y), number(right), number(y)))
  local step = step_of(self.scale)
  for k = 0, math.floor(self.simulation.time / step + 1e-9) do
    local x = LEFT + k * step * self.scale
    self:add(line:format(number(x), number(y), number(x), number(y + 5)))
    self:add(words(x, y + 18, ("%.4g"):format(k * step), 'text-anchor="middle" font-size="11"'))
  end
  self:add(words(LEFT - 8, y + 18, self.simulation.time_unit or "time", 'text-anchor="end" font-size="11"'))
end

function Picture:legend(y)
  local x, chunks = LEFT, self.schedule.chunks
  local function entry(fill, text)
    self:add(rectangle(x, y, 14, 14, fill))
    self:add(words(x + 20, y + 11, text))
    x = x + 38 + 6.6 * #text
  end
  for _, kind in ipairs(SAID) do
    if self.used[kind[1]] then entry(shade(kind[1], 1, 1), kind[2]) end
  end
  entry("#e4e4e4", "idle")
  for chunk = 1, chunks > 1 and chunks or 0 do entry(shade("forward", chunk, chunks), "chunk " .. chunk) end
  return x
end

--- Returns the picture as the text of an SVG file.
return function(schedule, simulation)
  simulation = simulation or simulate(schedule)
  local first = math.huge
  for i, actions in ipairs(schedule.actions) do
    for k, action in ipairs(actions) do
      if geometry.is_computing(action) then first = math.min(first, simulation.begins[i][k]) end
    end
  end
  local picture = setmetatable({ schedule = schedule, simulation = simulation, out = {}, used = {}, first = first,
    scale = UNIT / draw.unit(schedule, simulation) }, Picture)
  local bottom = TOP + schedule.stages * ROW
  local title, held = draw.summary(schedule, simulation)
  picture:add(words(LEFT, 24, title, 'font-size="13" font-weight="bold"'))
  picture:add(words(LEFT, 44, held))
  picture:rows()
  picture:axis(bottom + 4)
  local right = picture:legend(bottom + 36)
  local width = math.max(LEFT + simulation.time * picture.scale + 24, right, LEFT + 24 + 7.8 * #title)
  local head = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" %s fill="#202020">'
  local height = bottom + 64
  return table.concat({ head:format(width, height, width, height, FONT), rectangle(0, 0, width, height, "#ffffff"),
    table.concat(picture.out, "\n"), "</svg>", "" }, "\n")
end
