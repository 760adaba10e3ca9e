-- fit_line.lua - the smallest training run: a straight line, y = 3 x - 1, everything in code.
--
--     ./ganymede run recipes/fit_line.lua
--     ./ganymede run recipes/fit_line.lua --set lr=0.05 --steps 400
--
-- Expect: weight 3.0000, bias -1.0000, loss below 1e-10 after 200 steps; under a second.
local gm = require "ganymede"

local config = gm.launch { seed = 1, steps = 200, batch = 32, lr = 0.2 }

local model = gm.nn.Linear { inputs = 1, outputs = 1 }
local engine = gm.initialize {
  model = model,
  optimizer = { type = "SGD", lr = config.lr },
  criterion = { type = "MSELoss" },
}

local function step(i)
  local x = gm.uniform({ config.batch, 1 }, { low = -1, high = 1, seed = i })
  engine:zero_grad()
  local loss = engine:criterion(engine(x), 3 * x - 1)
  engine:backward(loss)
  engine:step()
  return loss:item() -- a number: every tensor of this step is released here
end

for i = 1, config.steps do
  local loss = gm.scope(step, i)
  if i % 50 == 0 then print(("step %d  loss %.2e"):format(i, loss)) end
end
print(("weight %.4f  bias %.4f"):format(model.weight:get(1, 1), model.bias:get(1)))
