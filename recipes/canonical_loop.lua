-- canonical_loop.lua - training in code: gm.launch, gm.initialize, and the loop that a config hides.
--
--     ./ganymede run recipes/canonical_loop.lua
--     ./ganymede run recipes/canonical_loop.lua --set width=64 --set gradient_accumulation=4 --steps 400
--
-- Expect: test accuracy 0.84 after 300 steps of 128 images; about 2 seconds on two cores.
-- Data: Fashion-MNIST (Debian package dataset-fashion-mnist).
local gm = require "ganymede"
local nn = gm.nn

local config = gm.launch {
  seed = 7, steps = 300, gradient_accumulation = 1, clip_grad_norm = 1.0, -- keys that recipes have
  width = 128, lr = 2e-3,                                                 -- and two of our own
}

local Net = nn.class "Net"
Net.options = { width = { type = "integer", min = 1, doc = "hidden width" } }

function Net:build(opt)
  self.hidden = nn.Linear { inputs = 28 * 28, outputs = opt.width, activation = "gelu" }
  self.head = nn.Classifier { inputs = opt.width, classes = 10 }
end

-- x (b, 1, 28, 28) -> logits (b, 10)
function Net:forward(x) return self.head(self.hidden(x:reshape(x:size(1), 28 * 28))) end

local function loader(split, options)
  options.dataset = { type = "FashionMNIST", split = split }
  return gm.data.loader(options)
end

local engine, train_loader, test_loader, lr_scheduler = gm.initialize {
  model = Net { width = config.width },
  optimizer = { type = "AdamW", lr = config.lr },
  criterion = { type = "CrossEntropyLoss" },
  train_dataloader = loader("train", { batch_size = 128, shuffle = true }),
  test_dataloader = loader("test", { batch_size = 1000 }),
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 20 },
} -- gradient_accumulation, clip_grad_norm and the number of steps come from gm.launch

local function train_epoch(epoch)
  engine:train()
  train_loader:set_epoch(epoch)
  for x, y in train_loader:batches() do
    engine:zero_grad()
    local loss = engine:criterion(engine(x), y)
    engine:backward(loss)
    if engine:step() and engine.steps_done % 50 == 0 then -- true once in gradient_accumulation turns
      print(("step %d  loss %.4f"):format(engine.steps_done, engine.last_loss))
    end
    lr_scheduler:step()
    if engine.steps_done == config.steps then return true end
  end
end

local epoch = 0
while not train_epoch(epoch) do epoch = epoch + 1 end

engine:eval()
local right, all = 0, 0
for x, y in test_loader:batches() do
  right = right + gm.no_grad(function() return gm.metrics.correct(engine(x), y) end)
  all = all + y:numel()
end
print(("test accuracy %.4f"):format(right / all))
