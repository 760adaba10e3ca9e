--- Pipeline stages under a repl: lines train a model in two stages; one that fails on either stage ends on both, and
-- the next one trains on as if it had not been. Losses are those of the same steps on one rank, in f32 to 1e-5.
local core = require "ganymede.core"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local lines = [[
require("ganymede.core").set_seed(11)
parallel = assert(require("ganymede.job.parallel").resolve({ pipeline = 2 }, world))
require("ganymede.job.context").install(parallel)
schedule = require("ganymede.schedules").PipelineSchedule { num_microbatches = 3, order = "zb-h1" }
function fail(on) return function(x) if bad == on then error("no luck on " .. on) end return x end end
layers = { nn.Linear { inputs = 4, outputs = 8 }, fail(0), fail(1), nn.Linear { inputs = 8, outputs = 3 } }
model = gm.build_pipeline_model(layers, { schedule = schedule, split = "uniform" })
given = { model = model, schedule = schedule, criterion = { type = "CrossEntropyLoss" } }
given.optimizer = { type = "SGD", lr = 0.1 }
engine = gm.initialize(given)
x = gm.arange(32, { dtype = "f32" }):reshape(8, 4) * 0.05
y = gm.tensor({ 0, 1, 2, 0, 1, 2, 2, 1 }, { dtype = "i64" })
function once() local done return function() if not done then done = true return x, y end end end
function run() local _, _, loss = engine:execute_schedule(once()) return loss:item() end
function step() engine:zero_grad() local loss = run() engine:step() return loss end
step()
bad = 0
step()
bad = 1
step()
bad = nil
step()
step()
]]

-- The losses of the first three steps on one rank.
local function wanted()
  local seed = core.seed()
  finally(function() core.set_seed(seed) end)
  core.set_seed(11)
  local layers = gm.nn.Sequential { gm.nn.Linear { inputs = 4, outputs = 8 }, gm.nn.Identity(), gm.nn.Identity(),
    gm.nn.Linear { inputs = 8, outputs = 3 } }
  local engine = gm.initialize { model = layers, criterion = { type = "CrossEntropyLoss" },
    optimizer = { type = "SGD", lr = 0.1 } }
  local x = gm.arange(32, { dtype = "f32" }):reshape(8, 4) * 0.05
  local y = gm.tensor({ 0, 1, 2, 0, 1, 2, 2, 1 }, { dtype = "i64" })
  local losses = {}
  for i = 1, 3 do
    engine:zero_grad()
    local loss = engine:criterion(engine(x), y)
    engine:backward(loss)
    engine:step()
    losses[i] = loss:item()
  end
  return losses
end

describe("a repl on the stages of a pipeline", function()
  it("goes on after a line that failed on one of them", function()
    local folder = shell.temporary_folder()
    shell.write(folder .. "/lines", lines)
    local result = shell.run(("cd %s && GANYMEDE_ROOT=%s timeout 60 %s -n 2 --threads 1 <lines"):format(folder,
      shell.quote(GANYMEDE_ROOT), shell.program "repl"))
    shell.remove(folder)
    assert.equal(0, result.code, result.err)
    local losses, failures = {}, {}
    for line in result.out:gmatch "[^\n]+" do
      losses[#losses + 1] = tonumber(line:match "^%[0%-1%] ([%d.]+)$")
      failures[#failures + 1] = line:match "^%[%d%] .*no luck on %d"
    end
    assert.equal(2, #failures, result.out)
    for stage = 0, 1 do assert.matches(("^%%[%d%%].*no luck on %d"):format(stage, stage), failures[stage + 1]) end
    local expected = wanted()
    assert.equal(3, #losses, result.out)
    for i = 1, 3 do assert.near(expected[i], losses[i], 1e-5 * expected[i]) end
  end)
end)
