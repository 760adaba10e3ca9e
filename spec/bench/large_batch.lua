-- large_batch.lua - test accuracy against the size of the batch: docs/pictures/large_batch.csv, and the picture of it.
--
--     ganymede run spec/bench/large_batch.lua                     trains, writes both files; 15 minutes of two cores
--     ganymede run spec/bench/large_batch.lua --set draw=true     draws the numbers that are there again
--
-- recipes/large_batch.lua with LAMB, LARS, AdamW and SGD, batches of 32 to 2048, the same epochs and the same seed.
-- Rates and warm-up grow as the recipe says. The base rates of LAMB and LARS were chosen with a look at the largest
-- batch, too.
package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
local gm = require "ganymede"
local plot = require "spec.bench.plot"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local config = gm.launch { draw = false, epochs = 16, timeout = 1800 }
local place = GANYMEDE_ROOT .. "/docs/pictures/large_batch"
local rules, sizes = { "LAMB", "LARS", "AdamW", "SGD" }, { 1, 2, 4, 8, 16, 32, 64 }

-- ---------------------------------------------------------------- numbers

local function accuracy(rule, times)
  local words = { "run", GANYMEDE_ROOT .. "/recipes/large_batch.lua" }
  for key, value in pairs { rule = rule, times = times, epochs = config.epochs } do
    words[#words + 1], words[#words + 2] = "--set", ("%s=%s"):format(key, value)
  end
  local result = run_host(words, { timeout = config.timeout })
  if result.code ~= 0 then error(result.err) end
  print((result.out:match "[^\n]*batches of[^\n]*"))
  io.stdout:flush()
  return assert(tonumber(result.out:match "rate %S+: test accuracy (%S+)"), result.out)
end

local function write_numbers()
  local lines = { "batch," .. table.concat(rules, ",") }
  local cells = {}
  for row, times in ipairs(sizes) do cells[row] = { 32 * times } end
  for column, rule in ipairs(rules) do
    for row, times in ipairs(sizes) do cells[row][column + 1] = ("%.4f"):format(accuracy(rule, times)) end
  end
  for row in ipairs(sizes) do lines[row + 1] = table.concat(cells[row], ",") end
  shell.write(place .. ".csv", table.concat(lines, "\n") .. "\n")
end

-- The file -> list of batches, a list of accuracies of each rule
local function read_numbers()
  local batches, columns = {}, { {}, {}, {}, {} }
  for line in io.lines(place .. ".csv") do
    if line:match "^%d" then
      local cells = {}
      for cell in line:gmatch "[^,]+" do cells[#cells + 1] = tonumber(cell) end
      assert(#cells == #rules + 1, line)
      batches[#batches + 1] = cells[1]
      for i in ipairs(rules) do columns[i][#batches] = cells[i + 1] end
    end
  end
  return batches, columns
end

-- ---------------------------------------------------------------- picture

local function draw()
  local batches, columns = read_numbers()
  local low, high = 1, 0
  for _, column in ipairs(columns) do
    for _, value in ipairs(column) do low, high = math.min(low, value), math.max(high, value) end
  end
  low, high = math.floor(low * 100) / 100, math.ceil(high * 100) / 100
  local picture = plot.new(760, 420, 74, 110)
  picture:text(74, 20, "Perceptron on Fashion-MNIST, 16 epochs: test accuracy by size of the batch", 'font-size="14"')
  local most = math.log(batches[#batches] / batches[1])
  local at_x, at_y = picture:panel { top = 32, height = 330, low = low, high = high,
    ticks = plot.ticks(low, high, 0.01), format = "%.2f", label = "test accuracy", x = batches,
    place = function(batch) return math.log(batch / batches[1]) / most end }
  for i, column in ipairs(columns) do picture:curve(i, batches, column, at_x, at_y) end
  picture:legend(rules)
  picture:text(74 + (760 - 74 - 110) / 2, 404, "samples of a batch", 'text-anchor="middle"')
  picture:write(place .. ".svg")
end

if not config.draw then write_numbers() end
draw()
