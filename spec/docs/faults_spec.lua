--- docs/faults.md: each of the 47 faults stands there once, and the specs that it names are there.
-- sanitizers: no, it reads a page
local shell = require "spec.support.shell"

describe("docs/faults.md", function()
  local rows = {}
  for line in (shell.read "docs/faults.md"):gmatch "[^\n]+" do
    local numbers = line:match "^| ([%d, ]+) |"
    if numbers then rows[#rows + 1] = { numbers = numbers, text = line } end
  end

  it("has every fault once", function()
    local seen = {}
    for _, row in ipairs(rows) do
      for number in row.numbers:gmatch "%d+" do
        assert.is_nil(seen[tonumber(number)], number)
        seen[tonumber(number)] = true
      end
    end
    assert.equal(47, #seen)
  end)

  it("names specs that are there, or says that it names none", function()
    for _, row in ipairs(rows) do
      local named = row.text:find("**not shown**", 1, true) or row.text:find("`.ci/run`", 1, true)
      for path in row.text:gmatch "`([%w_]+/[%w_]+%.%a+)`" do
        local file = io.open("spec/" .. path)
        assert.is_truthy(file, path)
        file:close()
        named = true
      end
      assert.is_truthy(named, row.text)
    end
  end)
end)
