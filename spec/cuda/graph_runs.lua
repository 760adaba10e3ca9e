--- Runs of recipes with and without graphs of training steps, on a GPU or a CPU, and what is compared of them.
--
--     local result = graph_runs.run(home, "out", { "--set", "graph=true" })   -- { code, out, err, stats }
local assert = require "luassert"
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

local graph_runs = {}

--- Dropout, clipping, a schedule of rates, parameters without decay, an epoch whose last batch is smaller, evaluation,
-- a hook that looks at outputs, checkpoints. It reads the file `text`.
graph_runs.gpt = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 128, sequence_length = 7, width = 8, depth = 1, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "text", split = "train", sequence_length = 7, stride = 7 },
           test = { type = "Text", path = "text", split = "test", sequence_length = 7, stride = 7 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, weight_decay = 0.1, no_decay = "norm_and_bias" },
  lr_scheduler = { type = "CosineAnnealingWarmupLR", warmup_steps = 3 },
  epochs = 3, clip_grad_norm = 0.5,
  hooks = { { type = "AccuracyHook" }, { type = "CheckpointHook", interval = 6 } },
}
]]

local characters = {}
for i = 1, 34 * 7 + 1 do characters[i] = string.char(97 + i * i % 23) end

--- What the file `text` holds.
graph_runs.text = table.concat(characters)

--- Runs a recipe of the folder home into its folder `out`, whose name files of stats and of the driver's record have,
-- too. more: { recipe, env, timeout, device ("cuda") }
function graph_runs.run(home, out, words, more)
  more = more or {}
  local device = more.device or "cuda"
  local all = { "run", more.recipe or "recipe.lua", "--device", device, "--threads", "1", "--stats", out .. ".json",
    "--out", out }
  for _, word in ipairs(words) do all[#all + 1] = word end
  local env = device == "cuda" and emulation.environment() or {}
  env.GANYMEDE_CUDA_RECORD = home .. "/" .. out .. ".record"
  for name, value in pairs(more.env or {}) do env[name] = value end
  local result = support.run(home, all, { env = env, timeout = more.timeout })
  if result.code == 0 then result.stats = support.json(home .. "/" .. out .. ".json") end
  return result
end

--- The run has said this.
function graph_runs.has(result, part)
  assert.is_truthy(result.err:find(part, 1, true), ("no '%s' in: %s"):format(part, result.err))
end

--- The tensors of the checkpoints of a run, as one number.
function graph_runs.tensors(home, out)
  return table.concat(support.shell.lines(("cd %s/%s/checkpoints && cat */*.safetensors | cksum"):format(
    support.shell.quote(home), out)))
end

--- Both runs went well, with equal losses and metrics.
function graph_runs.check_equal(with, without)
  assert.equal(0, with.code, with.err)
  assert.equal(0, without.code, without.err)
  assert.same(without.stats.loss, with.stats.loss)
  assert.same(without.stats.metrics, with.stats.metrics)
end

return graph_runs
