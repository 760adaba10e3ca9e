--- Runs of recipes with and without graphs of training steps, and what is compared of them.
--
--     local result = graph_runs.run(home, "out", { "--set", "cuda_graph=true" })   -- { code, out, err, stats }
local assert = require "luassert"
local emulation = require "spec.cuda.emulation"
local support = require "spec.cli.support"

local graph_runs = {}

--- Runs a recipe of the folder home into its folder `out`, whose name files of stats and of the driver's record have,
-- too. more: { recipe, env, timeout }
function graph_runs.run(home, out, words, more)
  more = more or {}
  local all = { "run", more.recipe or "recipe.lua", "--device", "cuda", "--threads", "1", "--stats", out .. ".json",
    "--out", out }
  for _, word in ipairs(words) do all[#all + 1] = word end
  local env = emulation.environment()
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
