--- Verbs that write into a folder refuse one that cannot be made with status 2: by its name, and before their work.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local failure = require "ganymede.base.failure"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local RECIPE = [[
local gm = require "ganymede"
return gm.recipe {
  name = "places", model = { type = "Linear", inputs = 2, outputs = 2 },
  data = { train = { type = "Synthetic", length = 8, shape = { 2 }, classes = 2 }, batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
  checkpoint = { interval = 1 },
}
]]

describe("a folder that cannot be made", function()
  local folder
  setup(function()
    folder = shell.temporary_folder()
    shell.write(folder .. "/file", "")
    shell.write(folder .. "/text.txt", "some words in a text\n")
    shell.write(folder .. "/r.lua", RECIPE)
  end)
  teardown(function() shell.remove(folder) end)

  -- What a verb says where the folder that it shall write lies below a file.
  local function refused(...)
    local result = run_host({ ... }, { cwd = folder })
    assert.equal(2, result.code, result.out .. result.err)
    assert.is_nil(result.err:find("lua/ganymede/", 1, true), result.err)
    return result.err
  end

  it("is refused by name", function()
    for _, words in ipairs {
      { "docs", "--out", "file/x" }, { "docs", "--luals", "file/x" }, { "run", "r.lua", "--out", "file/x" },
      { "tokenize", "text.txt", "--train", "300", "-o", "file/x" },
      { "sweep", "r.lua", "--set", "seed=1,2", "--out", "file/x", "--steps", "1" },
    } do
      assert.matches("cannot make the folder file: a file has this name", refused(unpack(words)))
    end
  end)

  it("is refused by export, also where it is a file", function()
    assert.equal(0, run_host({ "run", "r.lua", "--out", "run", "--steps", "1" }, { cwd = folder }).code)
    assert.matches("cannot read the folder file", refused("export", "run", "file"))
    assert.matches("cannot make the folder /proc/x", refused("export", "run", "/proc/x", "--plain"))
  end)

  it("is told without lines of Ganymede, whatever it is told about", function()
    local ours = assert(loadstring("error 'cannot write /proc/x: no'", "@/x/lua/ganymede/observe/stats.lua"))
    for _, about in ipairs { "/proc/x", "--stats" } do
      local ok, err = pcall(failure.about, about, ours)
      assert.is_false(ok)
      assert.matches(about == "/proc/x" and "^cannot write /proc/x: " or "^%-%-stats: cannot write /proc/x: ",
        failure.text(err))
      assert.equal(2, failure.code(err))
    end
  end)

  it("is said once of a file of statistics", function()
    local said = refused("run", "r.lua", "--steps", "1", "--stats", "file/x")
    assert.matches("%-%-stats: cannot write file/x", said)
    assert.is_nil(said:find("warning", 1, true), said)
  end)

  it("is no file: a folder in the place of one is refused before the work", function()
    for _, words in ipairs { { "--stats" }, { "--trace" }, { "--profile" }, { "--step-file" } } do
      local said = refused("run", "r.lua", "--steps", "1", "--out", "never", words[1], ".")
      assert.matches(words[1]:gsub("%-", "%%-") .. ": cannot write %.: it is a folder; name a file in it", said)
      assert.is_nil((io.open(folder .. "/never/config.lua")))
    end
    assert.matches("%-%-out: cannot write %.: it is a folder", refused("bench", "machine", "--out", "."))
  end)
end)
