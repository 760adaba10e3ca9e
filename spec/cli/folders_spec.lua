--- Folders for results: one that cannot be made, or in which nothing can be written, is refused with status 2 by every
-- verb that takes one, before its work; a disk that gets full is an error of status 1 (hub/carry_spec.lua).
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local LLAMA = "spec/golden/hub/llama"

-- Root may write anywhere, unless its capabilities are taken away.
local function without_rights()
  return shell.lines("id -u")[1] == "0" and "setpriv --bounding-set=-all --inh-caps=-all " or ""
end

describe("a folder for results", function()
  local home
  setup(function()
    home = shell.temporary_folder()
    shell.write(home .. "/text", ("some words of a text\n"):rep(50))
    local made = shell.run(("%s import %s %s/kept"):format(shell.quote(shell.executable()), LLAMA, home))
    assert.equal(0, made.code, made.err)
    shell.write(home .. "/recipe.lua", support.recipe:gsub("hooks = {",
      '%0 { type = "CSVHook", directory = os.getenv "CSV_FOLDER" },'))
  end)
  teardown(function() shell.remove(home) end)

  for verb, words in pairs {
    import = "import " .. LLAMA .. " @FOLDER", export = "export @HOME/kept @FOLDER",
    ["export --plain"] = "export @HOME/kept @FOLDER --plain", tokenize = "tokenize @HOME/text --train 260 -o @FOLDER",
    docs = "docs --out @FOLDER", ["docs --luals"] = "docs --luals @FOLDER",
    ["simulate --keep"] = "simulate @HOME/recipe.lua --machine cpu_ethernet --keep @FOLDER",
    run = "run @HOME/recipe.lua --out @FOLDER", sweep = "sweep @HOME/recipe.lua --set seed=1,2 --out @FOLDER",
  } do
    local function refused(folder, reason)
      local line = words:gsub("@%w+", { ["@HOME"] = home, ["@FOLDER"] = folder })
      local result = shell.run(("export CSV_FOLDER=%s/csv; %s%s %s"):format(home, without_rights(),
        shell.quote(shell.executable()), line))
      assert.equal(2, result.code, result.out .. result.err)
      assert.matches(reason, result.err, 1, true)
      assert.not_matches("traceback", result.err)
    end

    it("of " .. verb .. " is refused where it cannot be made", function() refused("/proc/none", "/proc/none") end)

    it("of " .. verb .. " is refused where nothing can be written in it", function()
      local folder = home .. "/closed"
      shell.run(("mkdir -p %s && chmod 555 %s"):format(folder, folder))
      refused(folder, "ermission denied")
      assert.same({}, shell.lines("ls -A " .. folder))
    end)
  end

  it("of a hook is refused where nothing can be written in it", function()
    shell.run(("mkdir -p %s/shut && chmod 555 %s/shut"):format(home, home))
    local result = shell.run(("export CSV_FOLDER=%s/shut; %s%s run %s/recipe.lua --out %s/none"):format(home,
      without_rights(), shell.quote(shell.executable()), home, home))
    assert.equal(2, result.code, result.err)
    assert.matches("CSVHook: directory: ", result.err, 1, true)
    assert.matches("ermission denied", result.err, 1, true)
  end)
end)
