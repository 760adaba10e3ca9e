-- The README says what is true of the tree: recipes are listed, paths exist.
local tree = require "spec.support.tree"

describe("README.md", function()
  local text = tree.read "README.md"

  it("lists every recipe", function()
    local wrong = {}
    for _, path in ipairs(tree.files "^recipes/.*%.lua$") do
      if not text:find(path, 1, true) then wrong[#wrong + 1] = path .. " is not listed" end
    end
    tree.none(wrong)
  end)

  it("and docs/ name only paths that exist", function()
    local wrong = {}
    for _, page in ipairs(tree.files("^README%.md$", "^CONTRIBUTING%.md$", "^docs/.*%.md$")) do
      for span in tree.read(page):gmatch "`([^`\n]+)`" do
        for path in span:gmatch "[%w_%.%-/]+" do
          local folder = path:match "^(%a+)/"
          local ours = folder and ("kernels host bindings lua recipes spec docs"):find("%f[%a]" .. folder .. "%f[%A]")
          if ours and not path:find "%.%.%." then
            local file = io.open((path:gsub("[%.,]$", "")))
            if file then file:close() else wrong[#wrong + 1] = ("%s names %s"):format(page, path) end
          end
        end
      end
    end
    tree.none(wrong)
  end)

  it("has a CHANGELOG.md beside it that opens with the version of the program", function()
    local version = require("ganymede.version"):match "^%d+%.%d+%.%d+"
    assert.equal(version, tree.read "CHANGELOG.md":match "\n## ([%d.]+)")
  end)

  it("shows the two commands", function()
    assert.truthy(text:find("./ganymede demo", 1, true))
    assert.truthy(text:find("./ganymede test", 1, true))
  end)
end)

describe("each recipe", function()
  for _, path in ipairs(tree.files "^recipes/.*%.lua$") do
    it(path .. " opens with its command and what to expect of it", function()
      local head = tree.read(path):match "^(.-)\n[^%-\n]"
      assert.truthy(head:find("./ganymede run " .. path, 1, true), "no command in its head")
      assert.truthy(head:find "%-%- Expect: ", "no 'Expect:' in its head")
    end)
  end
end)

describe("the examples of README.md", function()
  local run_host = require "spec.support.run_host"
  local shell = require "spec.support.shell"
  local examples = {}
  for _, block in ipairs(require("spec.support.page").blocks(tree.read "README.md")) do
    examples[#examples + 1] = block.text
  end
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  it("are a recipe that can be checked, and overridden as the text says", function()
    shell.write(folder .. "/first.lua", examples[1])
    local result = run_host({ "check", "first.lua", "--set", "optimizer.lr=3e-3" }, { cwd = folder })
    assert.equal("", result.err)
    assert.equal(0, result.code)
    assert.truthy(result.out:find "optimizer%.lr%s+0%.003%s+%-%-set")
  end)

  it("and a loop in code that finds y = 3 x - 1", function()
    shell.write(folder .. "/loop.lua", examples[2])
    local result = run_host({ "run", "loop.lua" }, { cwd = folder })
    assert.equal("", result.err)
    assert.equal(0, result.code)
    local weight, bias = result.out:match "%[%[([%-%d.]+)%]%].-%[([%-%d.]+)%]%s*$"
    assert.near(3, tonumber(weight), 1e-3) -- the loss falls below 1e-10 in 200 steps: both are right to 1e-5
    assert.near(-1, tonumber(bias), 1e-3)
    assert.equal(2, #examples)
  end)
end)

describe("docs/command_line.md", function()
  local text = tree.read "docs/command_line.md"
  local cli = require "ganymede.cli"

  it("has a line for each verb, and no other", function()
    local documented, listed = {}, {}
    for name in text:gmatch "`ganymede (%l+)" do documented[name] = true end
    for _, name in ipairs(cli.verbs) do listed[name] = true end
    assert.same(listed, documented)
  end)

  it("names what is reserved", function()
    for _, name in ipairs(cli.reserved) do assert.truthy(text:find(name, 1, true), name) end
  end)

  it("lists the fields of --stats", function()
    local document = require("ganymede.observe.stats").document({}, { exit_code = 0 })
    for name in pairs(document) do assert.truthy(text:find("`" .. name .. "`", 1, true), name) end
  end)
end)
