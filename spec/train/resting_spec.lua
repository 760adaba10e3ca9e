--- Where parameters of a run rest is settled for the model of that run, also after a run that has failed before its
-- engine was made.
local gm = require "ganymede"
local offload = require "ganymede.train.offload"
local module = require "ganymede.nn.module"
local resting = require "ganymede.train.resting"
local shell = require "spec.support.shell"
local zero = require "ganymede.optim.zero"

describe("where parameters rest", function()
  it("is not what a run has left that failed", function()
    local folder, before = shell.temporary_folder(), module.made_parameter
    finally(function()
      resting.launch(zero.options(nil))
      module.made_parameter = before
      shell.remove(folder)
    end)
    gm.scope(function()
      local failed, other = gm.nn.Linear(64, 64), gm.nn.Linear(64, 64)
      local config = { offload = { parameters = "disk", disk = folder, least = 1 } }
      local none = offload.options(nil)
      resting.begin(failed, config, 1)
      assert.is_nil(resting.settle(other, zero.options(nil), none, 1))
      resting.begin(failed, config, 1)
      local tier = assert(resting.settle(failed, zero.options(nil), offload.options(config.offload), 1))
      tier:close()
    end)
  end)
end)
