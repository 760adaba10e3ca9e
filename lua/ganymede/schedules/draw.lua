--- A schedule as text: one line a rank, time to the right, as the papers draw it.
--
--     print(draw.text(schedule))
--     --> 1f1b, 3 stages, 4 micro-batches: bubble 50 % of the ideal time; micro-batches held, by rank: 3 2 1
--         rank 0 | F1 F2 F3          B1--- F4 B2---    B3---    B4---
--         ...
--
-- F forward, B backward, or of the input only where W, the gradient of the weights, follows; then the micro-batch, and
-- the chunk as a letter where a rank has several. An action fills the time that it takes (-), what is blank is idle.
-- draw.summary and draw.percent word what pictures say; the SVG is in draw_svg.lua.
-- @module ganymede.schedules.draw
local geometry = require "ganymede.job.geometry"
local simulate = require "ganymede.schedules.simulate"

local draw = {}

local LETTER = { forward = "F", backward = "B", backward_input = "B", backward_weight = "W" }

--- "37.5 %"
function draw.percent(share) return ("%.4g %%"):format(100 * share) end

local function joined(list)
  local said = {}
  for i, n in ipairs(list) do said[i] = ("%.4g"):format(n) end
  return table.concat(said, " ")
end

--- Which schedule, its bubble, and what simulation.said adds; how many micro-batches each rank holds.
function draw.summary(schedule, simulation)
  local bubble = ("bubble %s of the ideal time"):format(draw.percent(simulation.bubble))
  if simulation.bubble_with_barrier > simulation.bubble then
    bubble = bubble .. (" (%s where steps end at a barrier)"):format(draw.percent(simulation.bubble_with_barrier))
  end
  local title = geometry.title(schedule) .. (simulation.said and ", " .. simulation.said or "")
  return ("%s: %s"):format(title, bubble),
    "micro-batches held, by rank: " .. joined(simulation.live)
end

--- The unit of both kinds of picture: simulation.unit, or the shortest duration of any computing.
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

-- One rank's line; cell(t) is the column of time t.
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

--- The schedule as lines of text, the last without a line end. simulation: of ganymede.schedules.simulate, default: of
-- equal costs; width: columns after which lines are cut (default: none are).
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
