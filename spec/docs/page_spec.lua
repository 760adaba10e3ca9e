--- spec.support.page: pages that are right, and pages with one mistake each, which must be found.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local page = require "spec.support.page"
local shell = require "spec.support.shell"

describe("a page", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- Runs a text whose fences are ''' -> the runner
  local function try(text)
    local runner = page.runner("page.md", (text:gsub("'''", "```")), folder, shell.executable())
    for _, title in ipairs(page.sections(runner.list)) do runner:section(title) end
    return runner
  end

  local right = "# Title\n## One\n'''lua file=a.lua\nprint(1.5, 'two')\n'''\n"
    .. "## Two\n'''sh\n# no title\nganymede run a.lua\n'''\n"
    .. "'''text\n1.5 two\n'''\n'''console\n$ ganymede repl\n> 6 * 7\n42\n> 'two'\n\"two\"\n'''\n"

  it("is run in the order of its sections, and every block once", function()
    local runner = try(right)
    assert.equal(4, runner.done)
    assert.same({ "One", "Two" }, page.sections(runner.list))
    assert.equal("print(1.5, 'two')\n", shell.read(folder .. "/a.lua"))
  end)

  it("whose sections before were not run runs them first", function()
    local runner = page.runner("page.md", (right:gsub("'''", "```")), folder, shell.executable())
    runner:section "Two"
    assert.equal(4, runner.done)
  end)

  for what, mistake in pairs {
    ["another number"] = { "1.5 two", "1.6 two", "page.md:11: this line .*:\n  1.6 two" },
    ["another word"] = { "1.5 two", "1.5 too", "page.md:11: this line" },
    ["a line too much"] = { "1.5 two", "1.5 two\nmore", "  more" },
    ["a line too few"] = { "1.5 two\n", "", "%(nothing%)" },
    ["another answer"] = { "\n42", "\n43", "page.md:14: this line is not printed at its place:\n  43" },
    ["a status that is not named"] = { "run a.lua", "run b.lua", "page.md:7: status 2, not 0" },
    ["a status that does not come"] = { "'''sh", "'''sh status=2", "page.md:7: status 0, not 2" },
    ["a failure before the last command"] = { "ganymede run", "false\nganymede run", "status 1, not 0" },
    ["a file without a name"] = { " file=a.lua", "", "a block of Lua needs file=NAME" },
    ["a file with a mistake"] = { "print(1.5", "print 1.5", "status 2, not 0" },
    ["a text of nothing"] = { "'''sh\n# no title\nganymede run a.lua\n'''\n", "", "behind the commands" },
    ["a block of another kind"] = { "'''text", "'''json", "a block of kind 'json' is neither run nor compared" },
    ["a block of no kind"] = { "'''text", "'''", "a block of kind '' is neither run nor compared" },
  } do
    it("with " .. what .. " is refused", function()
      local from, to = right:find(mistake[1], 1, true)
      local ok, why = pcall(try, right:sub(1, from - 1) .. mistake[2] .. right:sub(to + 1))
      assert.is_false(ok)
      assert.matches(mistake[3], why)
    end)
  end

  it("with a block that has no end is refused", function()
    assert.has_error(function() page.blocks "text\n```sh\nls\n" end, "line 2: this block has no end")
  end)
end)

describe("a line of a page", function()
  local function is(wanted, got) assert.is_true(page.is_line(wanted, got), got) end
  local function is_not(wanted, got) assert.is_false(page.is_line(wanted, got), got) end

  it("stands for itself, with any blanks and any end of blanks", function()
    is("a (b) [c] %d + 1", "a   (b) [c]\t%d + 1  ")
    is_not("a b", "ab")
    is_not("a b", "a b c")
    is_not("a", "b a")
  end)

  it("has whole numbers, which are equal, and others that are near", function()
    is("step 300  loss 0.0297", "step 300  loss 0.0298") -- one in the last digit
    is_not("step 300  loss 0.0297", "step 300  loss 0.0299")
    is_not("step 300  loss 0.0297", "step 301  loss 0.0297")
    is("loss 105.7321", "loss 105.8321") -- 1e-3 of itself
    is_not("loss 105.7321", "loss 105.9321")
    is_not("lr 0.01", "lr 0.02") -- set, not rounded
    is_not("loss 0.5", "loss -0.5")
    is_not("loss 0.5", "loss nan")
  end)

  it("leaves out what `...` stands for", function()
    is("run folder runs/first-...", "run folder runs/first-2026-a")
    is("... 0.5 samples/s ...", "12 0.5 samples/s and more")
    is_not("... 0.5 samples/s", "12 0.5 samples/min")
  end)
end)

describe("a text of a page", function()
  local function differs(text, printed) return page.difference(text, printed) end

  it("has all lines, but those that a line `...` stands for", function()
    assert.is_nil(differs("a\nb\n", "a\n\nb\n"))
    assert.is_nil(differs("...\nb\n...\n", "a\nb\nc\n"))
    assert.is_nil(differs("...\nb\n...\n", "b\n"))
    assert.is_nil(differs("...\na\nb\n", "a\nc\na\nb\n")) -- the first a is not the one
    assert.equal("b", differs("a\nb\n", "a\nc\nb\n"))
    assert.equal("b", differs("...\nb\na\n", "a\nc\n"))
    assert.equal("(nothing)", differs("a\n", "a\nb\n"))
    assert.equal("(nothing)", differs("", "a\n"))
  end)
end)
