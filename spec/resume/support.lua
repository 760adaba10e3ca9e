--- What the specs of resuming share: a config with everything that could differ after a resume.
local core = require "ganymede.core"

local support = {}

--- A config: dropout, shuffling, accumulation, schedule with warm-up, moments, metrics of a whole epoch.
-- 13 batches of 7 steps an epoch: steps 10 and 20 lie inside epochs.
function support.config(changes)
  local config = {
    name = "resume", seed = 5, dtype = "f32", clip_grad_norm = 1, gradient_accumulation = 2, epochs = 4,
    model = { type = "MLP", inputs = 6, hidden = { 16 }, classes = 4, dropout = 0.3 },
    data = {
      train = { type = "Synthetic", length = 100, shape = { 6 }, classes = 4, split = "train" },
      test = { type = "Synthetic", length = 32, shape = { 6 }, classes = 4, split = "test" }, batch_size = 8,
    },
    loss = { type = "CrossEntropyLoss" },
    optimizer = { type = "AdamW", lr = 0.02, weight_decay = 0.1 },
    lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 12 },
    hooks = { { type = "LossHook" }, { type = "AccuracyHook" }, { type = "GradientNormHook" },
              { type = "CheckpointHook", interval = 5, keep_last = 9 } },
  }
  for key, value in pairs(changes or {}) do config[key] = value end
  return config
end

local made = 0

--- A new empty folder, removed by support.clean().
function support.folder()
  made = made + 1
  local path = ("%s/ganymede-resume-%d-%d"):format(os.getenv "TMPDIR" or "/tmp", core.process().pid, made)
  os.execute("rm -rf '" .. path .. "' && mkdir -p '" .. path .. "'")
  support.folders = support.folders or {}
  table.insert(support.folders, path)
  return path
end

function support.clean()
  for _, path in ipairs(support.folders or {}) do os.execute("rm -rf '" .. path .. "'") end
  support.folders = {}
end

function support.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

function support.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

--- Two lists, one after the other.
function support.joined(a, b)
  local out = {}
  for _, v in ipairs(a) do out[#out + 1] = v end
  for _, v in ipairs(b) do out[#out + 1] = v end
  return out
end

return support
