--- docs/tutorial.md, typed along: every block is run in a folder of its own, in order, and what it prints is compared
-- (spec/support/page.lua says how). An example a section; each needs what those before it have written.
-- sanitizers: no, what a page says is compared; the specs of what it shows look at the same code
local device = require "spec.support.device"
local page = require "spec.support.page"
local shell = require "spec.support.shell"

describe("docs/tutorial.md", function()
  local name = "docs/tutorial.md"
  local folder, runner

  setup(function()
    folder = shell.temporary_folder()
    runner = page.runner(name, shell.read(name), folder, shell.executable())
  end)
  teardown(function() shell.remove(folder) end)

  local titles = page.sections(page.blocks(shell.read(name)))
  for _, title in ipairs(titles) do
    it(title, function()
      if not device.is_cpu() then return pending "the page shows runs on the CPU" end
      runner:section(title)
    end)
  end

  it("has no block that is left over", function()
    if not device.is_cpu() then return pending "the page shows runs on the CPU" end
    assert.is_true(#titles > 10)
    assert.equal(#runner.list, runner.done)
  end)
end)
