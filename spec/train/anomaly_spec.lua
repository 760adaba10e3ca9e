--- detect_anomaly in a recipe: weights that a step has made huge overflow in the first product that meets them.
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

describe("a run with detect_anomaly = true", function()
  local home = shell.temporary_folder()
  shell.write(home .. "/recipe.lua", [[
return {
  seed = 1, steps = 5, model = { type = "MLP", inputs = 12, hidden = { 8 }, classes = 3 },
  data = { train = { type = "Synthetic", length = 8, shape = { 3, 2, 2 }, classes = 3 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 1e30 },
}
]])
  local function run(...)
    return run_host({ "run", home .. "/recipe.lua", "--no-eval", "--quiet", "--set", ... }, { cwd = home })
  end

  it("ends with status 8 at the op that made the first number that is not finite", function()
    local result = run "detect_anomaly=true"
    assert.equal(8, result.code, result.err)
    assert.matches("anomaly: linear in head made %-?%a+: element %d+ of y, f32 %(8, 3%)", result.err)
  end)

  it("is what the message of a run that diverged speaks of", function()
    local result = run "detect_anomaly=false"
    assert.equal(8, result.code, result.err)
    assert.matches("diverged: .*detect_anomaly = true ends the same run at the op", result.err)
  end)
end)
