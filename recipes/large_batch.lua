-- large_batch.lua - the same epochs with batches 1 to 64 times as large: LAMB and LARS beside AdamW and SGD.
--
--     ./ganymede run recipes/large_batch.lua
--     ./ganymede run recipes/large_batch.lua --set times=64
--     ./ganymede run recipes/large_batch.lua --set times=64 --set rule=AdamW
--
-- Rates grow with the batch, rise in a warm-up and then fall linearly. LAMB (You et al. 2020, arXiv:1904.00962): the
-- rate with the square root of the batch, the warm-up linearly, from 1/320 of the run to 1/5 of it at 64 times the
-- batch. AdamW: the same. SGD (Goyal et al. 2017, arXiv:1706.02677): the rate linearly, after a warm-up of 5 epochs of
-- 90. LARS (You et al. 2017, arXiv:1708.03888) has the warm-up of SGD, and here the root: its ratio divides by the norm
-- of the gradient, and a rate that grows linearly makes steps too long (docs/optimizers.md).
--
-- Expect: test accuracy 0.89; 30 seconds of two cores with batches of 32, 10 with 2048.
-- Data: Fashion-MNIST (Debian package dataset-fashion-mnist).
local gm = require "ganymede"

local config = gm.launch { rule = "LAMB", times = 1, lr = 0, epochs = 16, seed = 11 } -- lr: 0 means that of the rule

local function root(times) return math.sqrt(times) end
local function linear(times) return times end

-- options at a batch of 32, how the rate grows, and the share of the run that warms up
local rules = {
  LAMB = { { lr = 3e-3, weight_decay = 0.01 }, root, function(times) return times / 320 end },
  AdamW = { { lr = 1e-3, weight_decay = 0.01 }, root, function(times) return times / 320 end },
  LARS = { { lr = 0.15, trust_coefficient = 0.02, weight_decay = 1e-4 }, root, function() return 5 / 90 end },
  SGD = { { lr = 0.01, momentum = 0.9, weight_decay = 1e-4 }, linear, function() return 5 / 90 end },
}
local rule = rules[config.rule] or error("rule is LAMB, LARS, AdamW or SGD")
local given, grows, warms = unpack(rule)
local optimizer = { type = config.rule }
for name, value in pairs(given) do optimizer[name] = value end
optimizer.lr = (config.lr > 0 and config.lr or given.lr) * grows(config.times)

local batch = 32 * config.times
local steps = config.epochs * math.ceil(60000 / batch)

local function loader(split, size)
  return gm.data.loader { dataset = { type = "FashionMNIST", split = split }, batch_size = size, seed = config.seed,
    shuffle = split == "train" }
end

local engine, train, test = gm.initialize {
  model = gm.models.MLP { inputs = 28 * 28, hidden = { 128 }, classes = 10 },
  optimizer = optimizer,
  criterion = { type = "CrossEntropyLoss" },
  lr_scheduler = { type = "LinearWarmupLR", total_steps = steps,
    warmup_steps = math.max(1, math.floor(warms(config.times) * steps + 0.5)) },
  train_dataloader = loader("train", batch),
  test_dataloader = loader("test", 1000),
}
local metrics = gm.trainer(engine):fit {
  train_dataloader = train, test_dataloader = test, epochs = config.epochs, test_interval = config.epochs,
  hooks = { { type = "AccuracyHook", train = false } },
}
if gm.context.get_local_rank "GLOBAL" == 0 then
  print(("%s, batches of %d, rate %.4g: test accuracy %.4f"):format(config.rule, batch, optimizer.lr,
    metrics.test.accuracy))
end
