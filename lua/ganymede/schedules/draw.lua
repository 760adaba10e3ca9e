--- Draws a schedule as text, like the papers: one line for each rank, with time going to the right.
--
--     print(draw.text(schedule))
--     --> 1f1b, 3 stages, 4 micro-batches: bubble 50 % of the ideal time; micro-batches held, by rank: 3 2 1
--         rank 0 | F1 F2 F3          B1--- F4 B2---    B3---    B4---
--         ...
--
-- F is a forward pass, B a backward pass. If W follows, B is the gradient of the input alone, and W that of the
-- weights. The number is the micro-batch; a letter after it is the chunk, if a rank has several. An action fills the
-- time that it takes (-); blanks are idle time. draw.summary and draw.percent make the words of pictures; draw_svg.lua
-- makes SVG.
-- @module ganymede.schedules.draw
local geometry = require "ganymede.job.geometry"
local simulate = require "ganymede.schedules.simulate"

local draw = {}

local LETTER = { forward = "F", backward = "B", backward_input = "B", backward_weight = "W" }

--- Returns a share as a percentage: "37.5 %".
function draw.percent(share) return ("%.4g %%"):format(100 * share) end

local function joined(list)
  local said = {}
  for i, n in ipairs(list) do said[i] = ("%.4g"):format(n) end
  return table.concat(said, " ")
end

--- Returns two texts: the schedule with its bubble and simulation.said; and the micro-batches that each rank holds.
function draw.summary(schedule, simulation)
  local bubble = ("bubble %s of the ideal time"):format(draw.percent(simulation.bubble))
  if simulation.bubble_with_barrier > simulation.bubble then
    bubble = bubble .. (" (%s where steps end at a barrier)"):format(draw.percent(simulation.bubble_with_barrier))
  end
  local title = geometry.title(schedule) .. (simulation.said and ", " .. simulation.said or "")
  return ("%s: %s"):format(title, bubble),
    "micro-batches held, by rank: " .. joined(simulation.live)
end

--- Returns the unit of time of both kinds of pictures: simulation.unit, or the duration of the shortest computing.
function draw.unit(schedule, simulation)
  if simulation.unit then return simulation.unit end
  local unit = math.huge
  for i, actions in ipairs(schedule.actions) do
    for k, action in ipairs(actions) do
      if geometry.is_computing(action) then
        unit = math.min(unit, simulation.finishes[i][k] - simulation.begins[i][k])
      end
    end
  end
  return unit
end

local function label(schedule, action)
  local chunk = schedule.chunks > 1 and (action[3] <= 26 and string.char(96 + action[3]) or "." .. action[3]) or ""
  return LETTER[action[1]] .. action[2] .. chunk
end

local function longest_label(schedule)
  local length = 0
  for _, actions in ipairs(schedule.actions) do
    for _, action in ipairs(actions) do
      if geometry.is_computing(action) then length = math.max(length, #label(schedule, action)) end
    end
  end
  return length
end

-- Returns the line of one rank; cell(t) is the column of time t.
local function line(schedule, i, simulation, cell)
  local parts, column = {}, 0
  for k, action in ipairs(schedule.actions[i]) do
    if geometry.is_computing(action) then
      local from, to = cell(simulation.begins[i][k]), cell(simulation.finishes[i][k])
      local text = label(schedule, action)
      parts[#parts + 1] = (" "):rep(from - column) .. text .. ("-"):rep(to - from - 1 - #text) .. " "
      column = to
    end
  end
  return (table.concat(parts):gsub(" +$", ""))
end

--- Returns the schedule as lines of text, the last without a line end. simulation: that of ganymede.schedules.simulate;
-- default: one with equal costs. width: the number of columns after which lines are cut; default: lines are not cut.
function draw.text(schedule, simulation, width)
  simulation = simulation or simulate(schedule)
  local unit, wide = draw.unit(schedule, simulation), longest_label(schedule) + 1
  local function cell(time) return math.floor(time / unit + 0.5 + 1e-9) * wide end
  local lines = { ("%s; %s"):format(draw.summary(schedule, simulation)) }
  local margin = #tostring(schedule.stages - 1)
  for i = 1, schedule.stages do
    local text = ("rank %" .. margin .. "d | %s"):format(i - 1, line(schedule, i, simulation, cell))
    lines[#lines + 1] = width and #text > width and text:sub(1, width - 4) .. " ..." or text
  end
  return table.concat(lines, "\n")
end

return draw
