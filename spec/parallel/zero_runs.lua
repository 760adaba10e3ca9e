--- Runs under ZeRO, for specs: a small GPT, and what two runs differ by in losses, gradients, weights and moments.
--
--     local home = zero.home()
--     local plain, mine = home:run({ ranks = 3 }, 0), home:run({ ranks = 3 }, 2)
--     zero.difference(mine, plain, 50)  -- { losses =, gradients =, weights = }: shares of the largest numbers
--     home:remove()
--
-- A case is { ranks =, set = { "key=value", ... } or nil }. A stage is 0 to 3, or "greedy": stage 3 that keeps and
-- fetches more than one parameter. Batches of 22 and dimensions of 261, 31 and 24 divide by none of 3, 5 and 8 evenly.
-- Weights and moments are those of a checkpoint after the last step; gradients are those of the last step.
local job = require "spec.parallel.job"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"
local tables = require "spec.support.tables"

local zero = {}

zero.recipe = [[
local gm = require "ganymede"
local Gradients = gm.hooks.class("GradientsHook", { at = { type = "integer", min = 1, doc = "the step" } })
function Gradients:after_train_iter(trainer)
  if trainer.step ~= self.opt.at then return end
  local list = {}
  for _, p in ipairs(trainer.engine.model:named_parameters()) do
    list[#list + 1] = { name = p.name, tensor = p.tensor:grad() }
  end
  gm.checkpoint.save("gradients", { tensors = list, meta = { step = trainer.step } })
end
return gm.recipe {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1, window = { 7, 0 }, attention_softcap = 2 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 3, clip_grad_norm = 1.0,
}
]]

local STEPS = job.steps(50)
zero.steps = STEPS

--- Stage 3 divides every parameter, however small, and keeps and fetches as few as it can: "greedy" lets it have more.
function zero.setting(stage)
  if stage == "greedy" then return "zero={stage=3,whole_below=0}" end
  return stage == 3 and "zero={stage=3,whole_below=0,keep=0,ahead=0}" or "zero=" .. stage
end

local Home = {}
Home.__index = Home

--- A folder for runs, which remove() removes.
function zero.home() return setmetatable({ folder = shell.temporary_folder(), runs = 0 }, Home) end

function Home:remove() shell.remove(self.folder) end

--- STEPS steps of a case -> the document of --stats, with the folders `weights` and `gradients`.
function Home:run(case, stage, recipe)
  self.runs = self.runs + 1
  local folder = ("%s/%d"):format(self.folder, self.runs)
  shell.run("mkdir " .. shell.quote(folder))
  local set = tables.joined({ zero.setting(stage), "checkpoint={interval=" .. STEPS .. "}",
    "hooks={{type='GradientsHook',at=" .. STEPS .. "}}" }, case.set)
  local stats = job.run_in(folder, recipe or zero.recipe, case.ranks, { steps = STEPS, set = set,
    flags = { "--no-eval", "--out", "run" } })
  local step = ("/step-%08d"):format(STEPS)
  stats.weights, stats.gradients = folder .. "/run/checkpoints" .. step, folder .. "/gradients" .. step
  return stats
end

--- What two runs differ by: each the largest of all differences, as a share of the number that is the truth (losses) or
-- of the largest number of its tensor.
function zero.difference(mine, truth)
  return { losses = job.largest_difference(truth, mine, STEPS),
    gradients = stored.difference(mine.gradients, truth.gradients),
    weights = stored.difference(mine.weights, truth.weights) }
end

return zero
