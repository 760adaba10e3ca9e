-- dlrm_clicks.lua - DLRM on made-up clicks: counts and categories say whether a user clicks.
--
--     ./ganymede run recipes/dlrm_clicks.lua
--     ./ganymede run recipes/dlrm_clicks.lua -n 2          the ranks share the rows of the tables
--
-- Expect: AUC of the test 0.82 after the first epoch and 0.83 after the second; about 10 seconds on two cores.
-- Data: made-up; nothing is read. Criteo's logs, which you bring, are { type = "ClickLog", path = ..., rows = ... };
-- the model then has dense = 13 and counts of 26 tables (docs/recommendation.md).
local gm = require "ganymede"

local rows = { 2000, 1000, 500, 200, 100, 50, 20, 10 }

return gm.recipe {
  name = "dlrm-clicks",
  model = { type = "DLRM", dense = 6, counts = rows, width = 8, bottom = { 32 }, top = { 64, 32 } },
  data = {
    train = { type = "Clicks", length = 200000, dense = 6, rows = rows, split = "train" },
    test = { type = "Clicks", length = 20000, dense = 6, rows = rows, split = "test" },
    batch_size = 256, test_batch_size = 2000,
  },
  loss = { type = "BCEWithLogitsLoss" },
  optimizer = { type = "Adagrad", lr = 0.02 },
  epochs = 2,
  metrics = { { type = "AUC" }, { type = "Accuracy" } },
  hooks = { { type = "LossHook", interval = 200 }, { type = "ThroughputHook", ignored_steps = 1 } },
}
