--- The specs of layers, models, training, checkpoints and faults on `--device cuda`: on a GPU, or under the emulation.
--
--     ganymede spec --slow spec/cuda/suite_spec.lua          all of them, on the ranks that they ask for
--
-- Without --slow a part that fits into a CI run. Each line is a `ganymede spec --device cuda` of its own: what its
-- files say of the CPU holds there, and what they start (runs, jobs, repls) runs there too (spec/support/device.lua).
-- Left out: what says nothing about tensors (config, json, cli of check and plan, schedules as tables), kernels
-- (spec/kernels has a backend "cuda" of its own), recipes, which are too large for an emulation, and text pairs, whose
-- thousands of samples a spec fetches from the device one by one.
-- sanitizers: no, it runs files of other folders again, over kernels that are compiled without sanitizers
local emulation = require "spec.cuda.emulation"
local run_host = require "spec.support.run_host"

if emulation.lacks(pending) then return end

-- { what, files, ranks (nil: as the files say), the least number of examples that must pass }
local short = {
  { "layers and models against PyTorch", "spec/golden", 1, 120 },
  { "layers, their errors and losses", "spec/nn/errors_spec.lua spec/nn/losses_spec.lua spec/nn/containers_spec.lua "
    .. "spec/nn/initializers_spec.lua", 1, 50 },
  { "the tape", "spec/autograd/tape_spec.lua spec/autograd/taken_tapes_spec.lua spec/autograd/shared_gradient_spec.lua",
    1, 24 },
  { "optimizers, engine, trainer", "spec/optim/optimizers_spec.lua spec/train/engine_spec.lua "
    .. "spec/train/trainer_spec.lua spec/train/gradcheck_spec.lua", 1, 55 },
  { "checkpoints and resuming", "spec/resume/in_process_spec.lua spec/checkpoint/roundtrip_spec.lua", 1, 10 },
  { "tensors cut, redistributed, pipelined", "spec/layout/redistribute_spec.lua spec/tensor/placements_spec.lua "
    .. "spec/pipeline/executor_spec.lua", 2, 20 },
  { "experts", "spec/experts/experts_spec.lua spec/experts/layer_spec.lua spec/experts/routers_spec.lua "
    .. "spec/experts/halves_spec.lua spec/experts/narrow_spec.lua", 1, 70 },
  { "experts on ranks", "spec/experts/traffic_spec.lua spec/experts/halves_spec.lua spec/experts/narrow_spec.lua", 2,
    20 },
}

local long = {
  { "layers", "spec/nn spec/autograd spec/golden", nil, 250 },
  { "models", "spec/models", nil, 40 },
  { "tensor parallelism", "spec/tensor", nil, 1800 },
  { "layouts", "spec/layout", nil, 1000 },
  { "collectives", "spec/comm/collectives_spec.lua spec/comm/sections_spec.lua", nil, 80 },
  { "sequences", "spec/sequence", nil, 60 },
  { "experts", "spec/experts", nil, 300 },
  { "pipelines", "spec/pipeline/build_spec.lua spec/pipeline/engine_spec.lua spec/pipeline/execute_spec.lua "
    .. "spec/pipeline/executor_spec.lua spec/pipeline/recover_spec.lua spec/pipeline/sections_spec.lua "
    .. "spec/pipeline/sections_modes_spec.lua spec/pipeline/stage_spec.lua", nil, 60 },
  { "training", "spec/train/engine_spec.lua spec/train/trainer_spec.lua spec/train/hooks_spec.lua "
    .. "spec/train/gradcheck_spec.lua spec/train/precision_spec.lua spec/train/energy_spec.lua "
    .. "spec/train/check_ranks_spec.lua spec/train/ranks_spec.lua spec/train/samplers_spec.lua "
    .. "spec/train/late_spec.lua spec/optim spec/memory", nil, 270 },
  { "checkpoints and resuming", "spec/checkpoint spec/resume", nil, 140 },
  { "loaders", "spec/data/loader_spec.lua spec/data/pieces_spec.lua", nil, 70 },
  { "equality of layouts", "spec/parallel", nil, 60 },
  { "faults, runs, repl", "spec/faults spec/cli/run_spec.lua spec/cli/run_on_ranks_spec.lua "
    .. "spec/cli/run_pipeline_spec.lua spec/repl", nil, 100 },
}

-- Runs the specs of a line: none fails, and they are there.
-- filter: only examples of this name
local function check(files, ranks, least, slow, filter)
  local words, env = { "spec", "--device", "cuda" }, emulation.environment()
  if ranks then words[#words + 1], words[#words + 2] = "-n", tostring(ranks) end
  if filter then words[#words + 1], words[#words + 2] = "-f", filter end
  env.SPEC_DEVICE = "cuda"
  for file in files:gmatch "%S+" do words[#words + 1] = GANYMEDE_ROOT .. "/" .. file end
  local result = run_host(words, { cwd = GANYMEDE_ROOT, env = env, timeout = slow and 3600 or 600 })
  assert.equal(0, result.code, result.out .. result.err)
  local passed, failed = result.out:match "(%d+) passed, (%d+) failed[^\n]*\n$"
  assert.equal(0, tonumber(failed), result.out)
  assert.is_true(tonumber(passed) >= least, result.out)
end

describe("the specs on --device cuda:", function()
  for _, line in ipairs(short) do
    it(line[1], function() check(line[2], line[3], line[4]) end)
  end
  for _, line in ipairs(long) do
    it(line[1] .. ", all of it #slow", function() check(line[2], line[3], line[4], true) end)
  end

  it("run on the device, and so does what they start", function()
    check("spec/cuda/where_spec.lua", 1, 2)
    check("spec/cuda/where_spec.lua", 2, 1, false, "is open")
  end)
end)
