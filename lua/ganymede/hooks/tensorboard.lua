--- TensorBoardHook writes what TensorBoard shows of a run into tensorboard/ of the run's folder: loss, learning rate,
-- gradient norm, rates and metrics of training by step, metrics of evaluations, the settings as a text and on the
-- HParams page, and with `histograms` how large parameters and gradients are. `tensorboard --logdir runs` then shows
-- all runs.
--
-- Rank 0 writes, in files of their own for each start of the run. Steps that are made again after a crash replace those
-- of before. A number that is not finite is written as it is: TensorBoard marks it.
local base = require "ganymede.hooks.base"
local core = require "ganymede.core"
local flat = require "ganymede.observe.flat"
local histograms = require "ganymede.observe.histograms"
local options = require "ganymede.base.options"

local TensorBoardHook = base.class("TensorBoardHook", {
  interval = { type = "integer", min = 1, default = 1, doc = "the number of steps between two points of a curve" },
  histograms = { type = "integer", min = 1, optional = true, doc = "the number of steps between two histograms of "
    .. "every trained parameter, after its update, and of its gradient, before clipping; default: there are none" },
  directory = { type = "string", optional = true,
    doc = "the folder of the event files; default: tensorboard in the run's folder" },
}, { -- after hooks that measure
  priority = 11, needs_output = false, needs_loss = false, saves = true, adds_metrics = false })

local function add_settings(events, config)
  local values, lines = flat(config), { "| setting | value |", "|---|---|" }
  for _, path in ipairs(options.sorted_keys(values)) do
    local value = tostring(values[path]):gsub("|", "\\|"):gsub("%s+", " ")
    lines[#lines + 1] = ("| %s | %s |"):format(path, value)
  end
  events:text("settings", table.concat(lines, "\n"))
  events:settings(values, type(config.name) == "string" and config.name or "run")
end

function TensorBoardHook:before_train(trainer)
  local folder = base.folder(self, trainer) .. (self.opt.directory and "" or "/tensorboard")
  if core.rank() > 0 then return end
  local TensorBoard = require "ganymede.observe.tensorboard"
  self.events = TensorBoard(folder, trainer.step)
  if trainer.settings then add_settings(self.events, trainer.settings) end
end

-- Adds histograms of parameters and gradients. Gradients of f16 carry the scale of the losses.
local function add_histograms(self, trainer)
  local engine = trainer.engine
  local items, scaling = engine.optimizer.items, engine.loss_scaling
  for _, of in ipairs { { "parameters/", {} },
    { "gradients/", { gradients = true, scale = scaling and 1 / scaling.carried or 1 } } } do
    local list = histograms.of(items, of[2])
    if list and self.events then self.events:histograms(trainer.step, of[1], list) end
  end
end

function TensorBoardHook:after_train_iter(trainer) -- on all ranks
  if not self.opt.histograms or trainer.step % self.opt.histograms ~= 0 then return end
  trainer:settle()
  add_histograms(self, trainer)
end

local of_step = { { "loss", "loss" }, { "gradient_norm", "gradient_norm" }, { "lr", "lr" } }
local of_noise = { "gradient_noise", "gradient_variance", "gradient_square" } -- in steps that measure it
local of_states = { "samples_per_second", "tokens_per_second", "mfu", "memory_live", "memory_peak",
  "float8_clipped" }

function TensorBoardHook:after_train_loss(trainer, step)
  if not self.events or step.step % self.opt.interval ~= 0 and not step.gradient_variance then return end
  local list = {}
  local function add(tag, value)
    if type(value) == "number" then list[#list + 1] = { tag, value } end
  end
  for _, pair in ipairs(of_step) do add("train/" .. pair[1], step[pair[2]]) end
  for _, name in ipairs(of_noise) do add("train/" .. name, step[name]) end
  for _, name in ipairs(of_states) do add("run/" .. name, trainer.states[name]) end
  add("run/epoch", step.epoch)
  self.events:scalars(step.step, list)
end

-- The numbers of a table of metrics, by name.
local function numbers(prefix, metrics)
  local list = {}
  for _, name in ipairs(options.sorted_keys(metrics)) do
    if type(metrics[name]) == "number" then list[#list + 1] = { prefix .. name, metrics[name] } end
  end
  return list
end

function TensorBoardHook:after_train_epoch(trainer)
  if self.events then self.events:scalars(trainer.step, numbers("epoch/", trainer.metrics.train)) end
end

function TensorBoardHook:after_test(trainer)
  if self.events then self.events:scalars(trainer.step, numbers("test/", trainer.metrics.test)) end
end

local function close(self, status)
  if self.events then self.events:close(status) end
  self.events = nil
end

function TensorBoardHook:after_train(trainer) close(self, trainer.stopped and "failure" or "success") end

function TensorBoardHook:after_failure() close(self, "failure") end

return TensorBoardHook
