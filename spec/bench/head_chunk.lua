-- head_chunk.lua - a training step of GPT-2 124M with its head whole and in pieces: seconds and peak bytes.
--
--     [ROUNDS=5] build/ganymede run spec/bench/head_chunk.lua --threads 1
--
-- The cases of step.lua. Rounds go through all sizes of pieces, so that a neighbour slows all of them; seconds are of
-- the processor, not of the wall, medians and the least of all rounds; 0 stands for the whole head. Peak: the most that
-- the pool held in a step beside what it holds between steps (parameters, gradients, moments).
local core = require "ganymede.core"
local gm = require "ganymede"

local ROUNDS = tonumber(os.getenv "ROUNDS") or 5
local cases = { { "4 x 64", 4, 64, { 0, 32, 64, 128, 256 } },
                { "1 x 1024", 1, 1024, { 0, 128, 256, 512, 1024 } } }

local function tokens_of(batch, length)
  local all = gm.uniform({ batch, length + 1 }, { low = 0, high = 50256, seed = 1 }):to("i64")
  return all:narrow(2, 1, length):contiguous():keep(), all:narrow(2, 2, length):contiguous():keep()
end

local function step(model, criterion, optimizer, parameters, x, y)
  core.begin_step()
  core.zero_grad(parameters)
  criterion(model(x), y):backward()
  optimizer:step { lr = 1e-4 }
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

print "tokens     rows a piece   median s    least s   peak beside parameters, MB"
for _, case in ipairs(cases) do
  local name, batch, length, sizes = unpack(case)
  local model = gm.models.GPT { vocabulary = 50257, head_chunk = 1 } -- one set of weights for all sizes
  local parameters, criterion = model:materialize():parameters(), gm.nn.CrossEntropyLoss {}
  local optimizer = core.optimizer("adam", parameters, { eps = 1e-8, weight_decay = 0.01, decoupled = true })
  local x, y = tokens_of(batch, length)
  local seconds, peak = {}, {}
  for round = 0, ROUNDS do -- the first warms up
    for i, rows in ipairs(sizes) do
      model.head.opt.chunk = rows
      local held = gm.memory().live
      gm.memory_reset_peak()
      local from = os.clock()
      gm.scope(step, model, criterion, optimizer, parameters, x, y)
      seconds[i] = seconds[i] or {}
      if round > 0 then
        table.insert(seconds[i], os.clock() - from)
        peak[i] = gm.memory().peak - held
      end
    end
  end
  for i, rows in ipairs(sizes) do
    local middle = median(seconds[i])
    print(("%-10s %12d %10.3f %10.3f %12.1f"):format(name, rows, middle, seconds[i][1], peak[i] / 1e6))
    io.stdout:flush()
  end
end
