-- What every source file keeps to: a head that says what it is, a length a reader can hold, no traces of a machine.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local tree = require "spec.support.tree"

local sources = tree.files("%.[ch]$", "%.cuh?$", "%.def$", "%.lua$", "%.py$", "%.sh$", "^ganymede$", "^%.ci/%a+$",
  "^CMakeLists%.txt$")

--- A list of complaints, one for each source for which complain(path, text) returns a string.
local function over_sources(complain)
  local wrong = {}
  for _, path in ipairs(sources) do
    local complaint = complain(path, tree.read(path))
    if complaint then wrong[#wrong + 1] = path .. ": " .. complaint end
  end
  tree.none(wrong)
end

describe("each source file", function()
  it("is found", function() assert(#sources > 50) end)

  it("opens with a comment that says what it is", function()
    over_sources(function(path, text)
      local first = text:gsub("^#![^\n]*\n", "")
      local opening = path:find "%.lua$" and "^%-%-" or path:find "%.[chd]%w*$" and "^/%*" or "^#"
      if path:find "%.py$" then opening = '^["#]' end
      if not first:find(opening) then return "opens with " .. (first:match "^[^\n]*" or "nothing") end
      if #first:match "^[^\n]*" < 12 then return "its first line says next to nothing" end
    end)
  end)

  it("has under 500 lines", function()
    over_sources(function(_, text)
      local lines = select(2, text:gsub("\n", "\n"))
      if lines >= 500 then return lines .. " lines" end
    end)
  end)

  it("has lines of at most 120 characters, no tabs, no spaces at the end, a line end at its end", function()
    over_sources(function(_, text)
      local number = 0
      for line in text:gmatch "([^\n]*)\n" do
        number = number + 1
        local characters = select(2, line:gsub("[^\128-\191]", ""))
        if characters > 120 then return ("line %d has %d characters"):format(number, characters) end
        if line:find "\t" then return ("line %d has a tab"):format(number) end
        if line:find "[ \r]$" then return ("line %d ends in a space"):format(number) end
      end
      if text:sub(-1) ~= "\n" then return "does not end in a line end" end
    end)
  end)

  it("promises nothing for later", function()
    local words = { "TO" .. "DO", "FIX" .. "ME", "XX" .. "X", "HA" .. "CK" }
    over_sources(function(_, text)
      for _, word in ipairs(words) do
        if text:find("%f[%w]" .. word .. "%f[%W]") then return "contains " .. word end
      end
    end)
  end)
end)

describe("the tree", function()
  it("names no path of a machine that it was made on", function()
    local wrong = {}
    local paths = { "/wo" .. "rk/", "/ho" .. "me/", "/ro" .. "ot/", "/tmp/" .. "build" }
    for _, path in ipairs(tree.files("%.[%a]+$", "^ganymede$", "^%.ci/")) do
      if not path:find "%.safetensors$" then
        local text = tree.read(path)
        for _, word in ipairs(paths) do
          if text:find("%f[%w/]" .. word) and not text:find("%w" .. word) then
            wrong[#wrong + 1] = path .. " names " .. word
          end
        end
      end
    end
    tree.none(wrong)
  end)

  it("computes golden numbers of files that are there for it, not of pages that people edit", function()
    local scripts = tree.files "^spec/golden/.*%.py$"
    assert.is_true(#scripts > 10)
    for _, path in ipairs(scripts) do assert.is_nil(tree.read(path):match "docs/[%w_]+%.md", path) end
  end)

  it("has shell scripts that sh accepts", function()
    local shell = require "spec.support.shell"
    for _, path in ipairs { "ganymede", ".ci/install", ".ci/kernels" } do
      assert.equal("", shell.run("sh -n " .. path).err)
    end
    assert.equal("", shell.run("bash -n .ci/run").err)
  end)
end)
