-- convergence.lua - test accuracy against steps in every mode: docs/pictures/convergence.csv, and the picture of it.
--
--     ganymede run spec/bench/convergence.lua                     trains, writes both files; 10 minutes of two cores
--     ganymede run spec/bench/convergence.lua --set draw=true     draws the numbers that are there again
--
-- The demo recipe (recipes/vit_fashion_mnist.lua: a vision transformer of width 64, 4 heads, on Fashion-MNIST, f32)
-- with four blocks, the first steps of one epoch, the same seed: serial, and on 4 or 8 ranks of this machine. Our
-- version of the convergence figure of Bian et al. arXiv:2110.14883: weights, batches and masks are the same in every
-- mode, so that the curves can only part by rounding. The lower panel shows how far: the largest relative difference of
-- a step's loss from the serial one, since the evaluation before.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local json = require "ganymede.base.json"
local plot = require "spec.bench.plot"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local config = gm.launch { steps = 450, interval = 75, draw = false, timeout = 1800 }
local place = GANYMEDE_ROOT .. "/docs/pictures/convergence"

local runs = {
  { "serial", 1, "{}" }, { "data, 4 ranks", 4, "{data=4}" },
  { "1D, 4", 4, '{tensor={size=4,mode="1d"}}' }, { "2D, 4", 4, '{tensor={size=4,mode="2d"}}' },
  { "2.5D, 8", 8, '{tensor={size=8,mode="2.5d",depth=2}}' }, { "3D, 8", 8, '{tensor={size=8,mode="3d"}}' },
  { "ring, 4", 4, '{sequence={size=4,mode="ring"}}' }, { "Ulysses, 4", 4, '{sequence={size=4,mode="ulysses"}}' },
}

-- ---------------------------------------------------------------- numbers

-- Trains in one mode -> { accuracies = one every `interval` steps, losses = of all steps }
local function train(ranks, parallel)
  local folder = shell.temporary_folder()
  local words = { "run", GANYMEDE_ROOT .. "/recipes/vit_fashion_mnist.lua", "--steps", config.steps, "--out", "run",
    "--set", "epochs=1", "--set", "model.depth=4", "--set", "model.mlp_ratio=4", "--set", "optimizer.lr=2e-3",
    "--set", "parallel=" .. parallel, "--set",
    ('hooks={{type="AccuracyHook",train=false},{type="EvaluationHook",interval=%d}}'):format(config.interval) }
  if ranks > 1 then words[#words + 1], words[#words + 2] = "-n", ranks end
  local result = run_host(words, { cwd = folder, timeout = config.timeout })
  if result.code ~= 0 then error(result.err) end
  local accuracies, losses = {}, {}
  for line in io.lines(folder .. "/run/metrics.jsonl") do
    local entry = json.decode(line, "metrics.jsonl")
    if entry.test then accuracies[entry.step / config.interval] = entry.test.accuracy end
    if entry.loss then losses[entry.step] = entry.loss end
  end
  shell.remove(folder)
  return { accuracies = accuracies, losses = losses }
end

-- Largest |a - b| / b of the losses before evaluation number `row`.
local function apart(a, b, row)
  local worst = 0
  for step = (row - 1) * config.interval + 1, row * config.interval do
    worst = math.max(worst, math.abs(a[step] - b[step]) / b[step])
  end
  return worst
end

local function write_numbers()
  local done, head, lines = {}, { "step" }, {}
  for i, run in ipairs(runs) do
    done[i] = train(run[2], run[3])
    head[i + 1], head[i + 1 + #runs] = ('"accuracy: %s"'):format(run[1]), ('"loss apart: %s"'):format(run[1])
    print(("%-14s accuracy %.4f after %d steps"):format(run[1], done[i].accuracies[#done[i].accuracies], config.steps))
    io.stdout:flush()
  end
  lines[1] = table.concat(head, ",")
  for row = 1, #done[1].accuracies do
    local cells = { row * config.interval }
    for i, one in ipairs(done) do
      cells[i + 1] = ("%.4f"):format(one.accuracies[row])
      cells[i + 1 + #runs] = ("%.2g"):format(apart(one.losses, done[1].losses, row))
    end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  shell.write(place .. ".csv", table.concat(lines, "\n") .. "\n")
end

-- The file -> list of steps, lists of each run's accuracies and differences of losses
local function read_numbers()
  local steps, accuracies, differences = {}, {}, {}
  for i in ipairs(runs) do accuracies[i], differences[i] = {}, {} end
  for line in io.lines(place .. ".csv") do
    local cells = {}
    for cell in line:gmatch "[^,]+" do cells[#cells + 1] = tonumber(cell) end
    if line:match "^%d" and #cells == 2 * #runs + 1 then
      steps[#steps + 1] = cells[1]
      for i in ipairs(runs) do
        accuracies[i][#steps], differences[i][#steps] = cells[i + 1], cells[i + 1 + #runs]
      end
    end
  end
  assert(#steps > 1, place .. ".csv has no rows of numbers")
  return steps, accuracies, differences
end

-- ---------------------------------------------------------------- picture

local function draw_accuracies(picture, steps, columns)
  local low, high = 1, 0
  for _, column in ipairs(columns) do
    for _, accuracy in ipairs(column) do low, high = math.min(low, accuracy), math.max(high, accuracy) end
  end
  low, high = math.floor(low * 20) / 20, math.ceil(high * 20) / 20
  local at_x, at_y = picture:panel { top = 32, height = 240, low = low, high = high,
    ticks = plot.ticks(low, high, 0.05), format = "%.2f", label = "test accuracy", x = steps }
  for i, column in ipairs(columns) do picture:curve(i, steps, column, at_x, at_y) end
end

-- On a logarithmic scale from 1e-8; what is less, or nothing, is drawn there.
local function draw_differences(picture, steps, columns)
  local low, high, logs = -8, -5, {}
  for i = 2, #columns do
    logs[i] = {}
    for k, difference in ipairs(columns[i]) do
      logs[i][k] = math.max(low, math.log10(difference))
      high = math.max(high, math.ceil(logs[i][k]))
    end
  end
  local at_x, at_y = picture:panel { top = 312, height = 130, low = low, high = high,
    ticks = plot.ticks(low, high, 1), format = "1e%d", label = "loss, from serial", x = steps }
  for i = 2, #columns do picture:curve(i, steps, logs[i], at_x, at_y) end
end

local function draw()
  local steps, accuracies, differences = read_numbers()
  local picture, names = plot.new(760, 500, 74, 150), {}
  picture:text(74, 20, "Vision transformer on Fashion-MNIST: test accuracy in every mode", 'font-size="14"')
  draw_accuracies(picture, steps, accuracies)
  draw_differences(picture, steps, differences)
  for i, run in ipairs(runs) do names[i] = run[1] end
  picture:legend(names)
  picture:text(74 + (760 - 74 - 150) / 2, 484, "optimizer steps (batches of 64)", 'text-anchor="middle"')
  picture:write(place .. ".svg")
end

if not config.draw then write_numbers() end
draw()
