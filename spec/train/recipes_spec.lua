--- Every recipe says how it is run, what to expect, and runs.
-- sanitizers: no, whole recipes; what they are made of is looked at by other specs
local run_host = require "spec.support.run_host"
local made = require "spec.data.made"
local shell = require "spec.support.shell"
local tree = require "spec.support.tree"

-- Why the data of a recipe is not here, or nil.
local function missing(text)
  local package = text:match "Debian package ([%w-]+)"
  local probe = package and io.open "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
  if probe then probe:close() end
  return package and not probe and package .. " is not installed" or nil
end

describe("recipes", function()
  local folder
  before_each(function()
    folder = shell.temporary_folder()
    shell.run("mkdir " .. shell.quote(folder .. "/cifar-10-batches-bin"))
    made.cifar10(folder .. "/cifar-10-batches-bin") -- in the place of the real one, which no package has
  end)
  after_each(function() shell.remove(folder) end)

  local function succeeds(...)
    local result = run_host({ ... }, { cwd = folder })
    assert.equal(0, result.code, result.err)
  end

  for _, path in ipairs(tree.files "^recipes/.*%.lua$") do
    local name = path:match "([^/]+)$"
    local text = tree.read(path)
    path = GANYMEDE_ROOT .. "/" .. path

    it(name .. " opens with its command and what to expect, and keeps to the public interface", function()
      local head = text:match "^(%-%- .-)\n[^-]"
      assert.matches("^%-%- " .. name:gsub("%W", "%%%0") .. " %- ", head)
      assert.matches("./ganymede run recipes/" .. name, head, 1, true)
      assert.matches("Expect: ", head, 1, true)
      assert.is_nil(text:find "require%s*%(?[\"']ffi[\"']")
      assert.is_nil(text:find "collectgarbage")
      assert.is_nil(text:find "require%s*%(?[\"']ganymede%.")
      local _, lines = text:gsub("\n", "\n")
      assert.is_true(lines <= 110)
    end)

    -- "-n 4" where the recipe's own first command has it
    local more = text:find "CIFAR10" and { "--set", "data.train.whole=false", "--set", "data.test.whole=false" } or {}
    for word in (text:match("run recipes/" .. name:gsub("%W", "%%%0") .. "( %-n %d+)\n") or ""):gmatch "%S+" do
      more[#more + 1] = word
    end

    it(name .. " runs", function()
      local why = missing(text) or tonumber(more[2]) and tonumber(more[2]) > 16 and "it needs " .. more[2] .. " ranks"
      if why then return pending(why) end
      local words = { unpack(more) }
      if text:find "SampleHook" then words[#words + 1] = "--no-eval" end -- spec/train/sample_hook_spec.lua draws
      succeeds("run", path, "--steps", "2", "--threads", "1", unpack(words))
    end)

    if text:find "return gm.recipe" then
      it(name .. " passes ganymede check", function()
        local why = missing(text)
        if why then return pending(why) end
        succeeds("check", path, unpack(more))
      end)
    end
  end
end)
