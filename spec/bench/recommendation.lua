--- Steps of DLRM with tables of a million rows, beside PyTorch: recommendation.py starts this and reads what it prints.
--
--     OPTIMIZER=SparseAdam SPARSE=1 ./ganymede run --threads 2 spec/bench/recommendation.lua
--
-- Prints the median seconds of a step (forward, loss, backward, update), and the median of the update alone.
local core = require "ganymede.core"
local gm = require "ganymede"

local TABLES, ROWS, WIDTH, DENSE, BATCH = 4, tonumber(os.getenv "ROWS" or 1000000), 16, 13, 2048
local STEPS, BATCHES = tonumber(os.getenv "STEPS" or 20), 8
local sparse = os.getenv "SPARSE" == "1"

local counts = {}
for t = 1, TABLES do counts[t] = ROWS end
local model = gm.models.DLRM { dense = DENSE, counts = counts, width = WIDTH, bottom = { 64, 32 }, top = { 64, 32 },
  sparse = sparse }
local engine = gm.initialize { model = model, criterion = { type = "BCEWithLogitsLoss" },
  optimizer = { type = os.getenv "OPTIMIZER" or "Adagrad", lr = 0.01 } }

-- The same formula as in recommendation.py: rows spread over the tables, and labels.
local inputs, labels = {}, {}
for b = 1, BATCHES do
  local x, y = {}, {}
  for i = 0, BATCH - 1 do
    local row, n = {}, (b - 1) * BATCH + i
    for d = 1, DENSE do row[d] = (n * d) % 31 end
    for t = 1, TABLES do row[DENSE + t] = (n * 7919 + t * 104729) * 31 % ROWS end
    x[i + 1], y[i + 1] = row, n % 2
  end
  inputs[b], labels[b] = gm.tensor(x, { dtype = "i64" }):keep(), gm.tensor(y, { dtype = "i64" }):keep()
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local all, updates = {}, {}
for step = 1, STEPS + 3 do
  gm.scope(function()
    local b = step % BATCHES + 1
    local begin = core.now()
    engine:zero_grad()
    local loss = engine:criterion(engine(inputs[b]), labels[b])
    engine:backward(loss)
    local middle = core.now()
    engine:step()
    local last = loss:item() -- waits
    assert(last == last)
    local done = core.now()
    if step > 3 then all[#all + 1], updates[#updates + 1] = done - begin, done - middle end
  end)
end
print(("step %.6f update %.6f"):format(median(all), median(updates)))
