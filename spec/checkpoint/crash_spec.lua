--- A checkpoint is whole or unseen: killed at any moment, or refused by the system, a save leaves only whole ones.
local checkpoint = require "ganymede.checkpoint"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local folder
before_each(function() folder = shell.temporary_folder() end)
after_each(function() shell.remove(folder) end)

-- The child that saves steps first .. first + saves - 1; `around` is a command line with %s for it.
local function child(first, saves, elements, around)
  local command = ("SPEC_FOLDER=%s SPEC_FIRST=%d SPEC_SAVES=%d SPEC_ELEMENTS=%d exec %s run %s"):format(
    shell.quote(folder), first, saves, elements, shell.quote(shell.executable()), "spec/checkpoint/save_in_a_loop.lua")
  return shell.run((around or "sh -c %s"):format(shell.quote(command)))
end

-- Every checkpoint that can be seen is whole and holds its own step everywhere; the newest step, or nil.
local function examine()
  local newest
  for _, entry in ipairs(checkpoint.list(folder)) do
    local ck = checkpoint.open(entry.path)
    assert.equal(entry.step, ck.meta.step)
    for _, name in ipairs(ck:names()) do
      local t = gm.zeros(ck:info(name).shape)
      ck:read_into(name, t)
      assert.equal(0, (t - entry.step):square():sum():item())
    end
    assert.equal(4, #ck:names())
    ck:close()
    newest = entry.step
  end
  return newest
end

describe("a save that is killed", function()
  it("leaves whole checkpoints only, at twelve moments", function()
    local reached, cut = 0, 0
    for round = 1, 12 do
      -- from the start of the program to some saves later; where it hits does not matter for the outcome
      local delay = 0.05 + 0.037 * round
      local result = child(reached + 1, 100000, 60000,
        "sh -c %s & child=$!; sleep " .. delay .. "; kill -9 $child; wait $child 2>/dev/null; true")
      assert.equal(0, result.code, result.err)
      local said = tonumber(result.out:match "(%d+)%s*$") or reached
      local newest = gm.scope(examine) or 0
      assert.is_true(newest >= said, ("step %d was reported, %d is there"):format(said, newest))
      assert.is_true(newest <= said + 1)
      if #shell.lines("find " .. folder .. " -name '*.tmp'") > 0 then cut = cut + 1 end
      local path = newest > 0 and checkpoint.latest(folder)
      if newest > 0 then assert.matches(("step%%-%08d$"):format(newest), path) end
      reached = newest
    end
    assert.is_true(reached > 0, "no save was finished in twelve rounds")
    assert.is_true(cut > 0, "no round hit a save in the middle")
    -- and the next save clears what they left
    assert.equal(0, child(reached + 1, 1, 10).code)
    assert.same({}, shell.lines("find " .. folder .. " -name '*.tmp'"))
  end)
end)

describe("a save that the system refuses", function()
  it("names the file, removes what it began and leaves older ones alone", function()
    assert.equal(0, child(1, 1, 100).code)
    -- files of at most 64 blocks; the tensors need 4 * 8 * 60000 bytes
    local result = child(2, 1, 60000, "ulimit -f 64; sh -c %s")
    assert.equal(1, result.code, result.err)
    assert.matches("step%-00000002%.tmp/rank%-00000%.safetensors: cannot be written: File too large", result.err)
    assert.same({ "step-00000001" }, shell.lines("ls -A " .. folder))
    assert.equal(1, gm.scope(examine))
  end)

  it("says which folder cannot be written", function()
    shell.write(folder .. "/file", "")
    local ok, err = pcall(checkpoint.save, folder .. "/file/x", { tensors = {}, meta = { step = 1 } })
    assert.is_false(ok)
    assert.matches("/file", tostring(err))
    assert.equal("", shell.read(folder .. "/file"))
  end)
end)
