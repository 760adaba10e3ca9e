--- For spec/cuda/suite_spec.lua: `ganymede spec --device X` has X open, and what a spec starts runs on X, which
-- SPEC_DEVICE in the environment names, too: else ranks that ran on the CPU and thought so would be right.
local core = require "ganymede.core"
local device = require "spec.support.device"
local support = require "spec.cli.support"

local home

describe("the device of the specs", function()
  before_each(function() home = support.home "print(require('ganymede.core').device().backend)" end)
  after_each(function() support.shell.run("rm -rf " .. support.shell.quote(home)) end)

  it("is open", function()
    assert.equal(device.name(), core.device().backend:match "^%a+")
    assert.equal(os.getenv "SPEC_DEVICE" or device.name(), device.name())
  end)

  it("is that of programs, unless they name one", function()
    local pattern = "^" .. device.name()
    assert.matches(pattern, support.run(home, { "run", "recipe.lua" }).out)
    assert.matches(pattern, support.shell.run(("cd %s && GANYMEDE_ROOT=%s %s recipe.lua"):format(home,
      support.shell.quote(GANYMEDE_ROOT), support.shell.program "run")).out)
    assert.matches("^cpu", support.run(home, { "run", "--device", "cpu", "recipe.lua" }).out)
  end)
end)
