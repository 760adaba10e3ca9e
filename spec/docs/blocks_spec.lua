--- The fenced blocks of Lua in the pages run, each by itself, in the folder of Ganymede, as the pages promise.
-- docs/tutorial.md is typed along instead (tutorial_spec.lua), README.md is in spec/tree/readme_spec.lua.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local page = require "spec.support.page"
local tree = require "spec.support.tree"

-- A block sees gm, and what it sets stays with it. What it prints comes back, a line a call.
local function run(text, where)
  local printed = {}
  local function note(...)
    local words = { ... }
    for i = 1, select("#", ...) do words[i] = tostring(words[i]) end
    printed[#printed + 1] = table.concat(words, "\t")
  end
  local chunk = assert(loadstring(text, "=" .. where))
  gm.scope(setfenv(chunk, setmetatable({ gm = gm, print = note }, { __index = _G })))
  return table.concat(printed, "\n")
end

describe("a block of Lua in", function()
  local count = 0
  for _, path in ipairs(tree.files "^docs/.*%.md$") do
    for _, block in ipairs(path == "docs/tutorial.md" and {} or page.blocks(tree.read(path))) do
      if block.language == "lua" then
        count = count + 1
        local where = ("%s:%d"):format(path, block.line)
        it(where .. " runs", function() run(block.text, where) end)
      end
    end
  end

  it("the pages: there are some", function() assert.is_true(count >= 10) end)

  it("a page with a mistake does not run", function()
    assert.has_error(function() run("gm.nn.Linaer(1, 2)", "page.md:1") end)
    assert.equal("1\tnil", run("print(1, nil)", "page.md:1"))
  end)
end)
