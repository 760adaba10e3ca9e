--- CSVHook writes steps.csv and evaluations.csv into the run's folder, for spreadsheets and other programs.
--
-- steps.csv has step, epoch, loss, lr, gradient_norm, samples, tokens and targets of every `interval`-th step;
-- evaluations.csv has step and the metrics of each evaluation. Rank 0 writes. A run that resumes keeps the rows up to
-- its step, so each step is there once. Metrics that come later become columns at the end.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local options = require "ganymede.base.options"

local CSVHook = base.class("CSVHook", {
  interval = { type = "integer", min = 1, default = 1, doc = "the number of steps between two rows" },
  directory = { type = "string", optional = true, doc = "the folder of the files; default: the run's folder" },
}, { priority = 11, needs_output = false, needs_loss = false, saves = true, adds_metrics = false })

local COLUMNS = { "step", "epoch", "loss", "lr", "gradient_norm", "samples", "tokens", "targets" }

-- step: rows up to it stay.
local function open(self, name, columns, step)
  return require "ganymede.observe.csv_file"(self.folder .. "/" .. name, columns, step)
end

function CSVHook:before_train(trainer)
  local folder = base.folder(self, trainer)
  if core.rank() > 0 then return end
  core.make_folders(folder)
  self.folder, self.began = folder, trainer.step
  self.steps = open(self, "steps.csv", COLUMNS, self.began)
end

function CSVHook:after_train_loss(_, step)
  if not self.steps or step.step % self.opt.interval ~= 0 then return end
  local row = { epoch = step.epoch + 1, samples = step.total_samples }
  for _, name in ipairs { "step", "loss", "lr", "gradient_norm", "tokens", "targets" } do row[name] = step[name] end
  self.steps:write(row)
end

function CSVHook:after_test(trainer)
  if not self.steps then return end
  local row, columns = { step = trainer.step }, { "step" }
  for _, name in ipairs(options.sorted_keys(trainer.metrics.test)) do
    local value = trainer.metrics.test[name]
    if type(value) == "number" then columns[#columns + 1], row[name] = name, value end
  end
  self.evaluations = self.evaluations -- a run that resumes may evaluate once more at its first step
    or open(self, "evaluations.csv", columns, math.min(self.began, trainer.step - 1))
  self.evaluations:write(row)
end

function CSVHook:after_failure() self:after_train() end

function CSVHook:after_train()
  for _, name in ipairs { "steps", "evaluations" } do
    if self[name] then self[name]:close() end
    self[name] = nil
  end
end

return CSVHook
