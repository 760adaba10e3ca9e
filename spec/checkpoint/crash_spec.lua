--- A checkpoint is whole or unseen: killed at any moment, or refused by the system, a save leaves only whole ones.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local device = require "spec.support.device"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local folder, background
before_each(function() folder, background = shell.temporary_folder(), false end)
after_each(function() shell.remove(folder) end)

-- The child that saves steps first .. first + saves - 1; `around` is a command line with %s for it. background: see
-- save_in_a_loop.lua.
local function child(first, saves, elements, around)
  local settings = ("SPEC_FOLDER=%s SPEC_FIRST=%d SPEC_SAVES=%d SPEC_ELEMENTS=%d SPEC_BACKGROUND=%d"):format(
    shell.quote(folder), first, saves, elements, background and 1 or 0)
  local command = ("%s exec %s %s"):format(settings, shell.program "run",
    "spec/checkpoint/save_in_a_loop.lua")
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
  local function at_twelve_moments()
    local reached, cut = 0, 0
    -- A GPU takes a second to start: one save is timed.
    local began = core.now()
    local start = device.is_cpu() and 0.05 or child(1, 1, 10).code == 0 and 0.9 * (core.now() - began)
    for round = 1, 12 do
      -- from the start of the program to some saves later; where it hits does not matter for the outcome
      local delay = start + 0.037 * round
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
  end

  it("leaves whole checkpoints only, at twelve moments", at_twelve_moments)

  it("leaves whole checkpoints only, at twelve moments, when written in the background", function()
    background = true
    at_twelve_moments()
  end)
end)

describe("a program that ends while a save is under way", function()
  for _, how in ipairs { "", "error('no more', 0)" } do
    it("completes it: " .. (how == "" and "the end of the script" or how), function()
      shell.write(folder .. "/program.lua", ([[
        local gm = require "ganymede"
        local saving = require("ganymede.checkpoint").start(%q, { meta = { step = 1 },
          tensors = { { "t1", gm.full({ 3000, 1000 }, 1) } } })
        assert(saving.background)
        %s]]):format(folder .. "/saved", how))
      local result = shell.run(shell.program "run" .. " " .. folder .. "/program.lua")
      assert.equal(how == "" and 0 or 1, result.code, result.err)
      assert.same({ "step-00000001" }, shell.lines("ls -A " .. folder .. "/saved"))
      assert.is_true(checkpoint.verify(folder .. "/saved/step-00000001"))
    end)
  end
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

-- With strace, every system call of a save is made to fail, or kills the process before it takes effect. The leak check
-- of a build with sanitizers cannot run beside strace (both trace the process): it is off here, and here only.
local trace_command = "strace -f -E LSAN_OPTIONS=detect_leaks=0"
-- It stops the process at the traced calls alone, which takes a fifth of the time. Signals do not come in time then.
local only_traced = " --seccomp-bpf"
describe("a save in which system call number n", function()
  local can_inject = shell.run("strace -o /dev/null -e trace=none -e inject=getppid:error=EIO true").code == 0

  -- Repeats one save of step 3 over steps 1 and 2 for n = 1, 2, ... until there is no n-th call; judge(n, result).
  local function each_call(inject, judge)
    assert.equal(0, child(1, 2, 100).code)
    local before, paths = folder .. "/before", ""
    assert.equal(0, os.execute(("mkdir %s && mv %s/step-* %s"):format(before, folder, before)))
    for _, name in ipairs { "", "/step-00000003.tmp", "/step-00000003.tmp/rank-00000.safetensors",
                            "/step-00000003.tmp/index.json", "/step-00000001", "/step-00000001.tmp",
                            "/step-00000001.tmp/index.json", "/step-00000001.tmp/rank-00000.safetensors" } do
      paths = paths .. " -P " .. shell.quote(folder .. name)
    end
    for n = 1, 40 do
      assert.equal(0, os.execute(("rm -rf %s/step-* && cp -r %s/step-* %s"):format(folder, before, folder)))
      local how = inject:find(":error=", 1, true) and only_traced or ""
      local what = how .. (" -o %s/trace -e trace=%s%s -e inject=%s:when=%d sh -c %%s"):format(folder,
        inject:match "^[^:]+", paths, inject, n)
      local result = child(3, 1, 40000, trace_command .. what)
      local trace = shell.read(folder .. "/trace")
      if not trace:find "INJECTED" and result.code ~= 137 then
        assert.equal(0, result.code, result.err)
        assert.is_true(n > 1, "no call was hit")
        return
      end
      local seen = gm.scope(examine)
      assert.is_true(seen == 2 or seen == 3)
      judge(n, result, seen)
    end
    error "more than 40 calls in one save"
  end

  -- It is stopped when it has its new name, until a file of it is gone.
  it("loses a file under its new name fails, and is not seen", function()
    if not can_inject then pending "strace cannot inject faults here" end
    local target = folder .. "/step-00000001"
    local result = child(1, 1, 10, ([[%s -o /dev/null -e trace=rename -P %s.tmp -e inject=rename:signal=STOP:when=1 \
      sh -c 'echo $$ >%s/pid; exec sh -c "$0"' %%s & child=$!
      %s
      rm %s/index.json
      kill -CONT $(cat %s/pid)
      wait $child]]):format(trace_command, target, folder, shell.wait_until("test -e " .. target), target, folder))
    assert.equal(1, result.code, result.err)
    assert.matches("files of it are gone: who removes them?", result.err, 1, true)
    assert.same({}, checkpoint.list(folder))
  end)

  it("brings files, folder and parent to disk in this order", function()
    if not can_inject then pending "strace cannot follow a program here" end
    local trace = folder .. "/trace"
    assert.equal(0, child(1, 1, 10, trace_command .. " -y -o " .. trace .. " -e trace=fsync,rename sh -c %s").code)
    local calls = {}
    for name, rest in shell.read(trace):gmatch "(%a+)(%b())" do
      if rest:find(folder, 1, true) then
        calls[#calls + 1] = name .. " " .. (rest:match "([%w%-%.]+)[>\"][,)]" or "?")
      end
    end
    local parent = folder:match "[^/]+$"
    assert.same({ "fsync rank-00000.safetensors", "fsync index.json", "fsync step-00000001.tmp",
                  "rename step-00000001.tmp", "fsync " .. parent }, calls)
  end)

  for _, name in ipairs { "mkdir", "write", "fsync", "rename", "unlinkat" } do
    it("is the last thing before kill -9: " .. name, function()
      if not can_inject then pending "strace cannot inject faults here" end
      each_call(name .. ":signal=KILL", function(_, result) assert.equal(137, result.code) end)
    end)

    it("is the last thing before kill -9, in the background: " .. name, function()
      if not can_inject then pending "strace cannot inject faults here" end
      background = true
      each_call(name .. ":signal=KILL", function(_, result) assert.equal(137, result.code) end)
    end)
  end

  for _, case in ipairs { { "mkdir", "EACCES", "ask for the permission" }, { "write", "ENOSPC", "make room there" },
                          { "write", "EDQUOT", "delete files of yours" }, { "mkdir", "EROFS", "write elsewhere" },
                          { "fsync", "EIO" }, { "rename", "EIO" } } do
    it(("fails with %s: %s"):format(case[2], case[1]), function()
      if not can_inject then pending "strace cannot inject faults here" end
      each_call(("%s:error=%s"):format(case[1], case[2]), function(_, result)
        assert.equal(1, result.code)
        assert.is_truthy(result.err:find(folder, 1, true), result.err)
        if case[3] then assert.is_truthy(result.err:find(case[3], 1, true), result.err) end -- what to try
        assert.same({}, shell.lines("find " .. folder .. " -name '*.tmp'"))
      end)
    end)
  end

  it("fails in the background: write with ENOSPC", function()
    if not can_inject then pending "strace cannot inject faults here" end
    background = true
    each_call("write:error=ENOSPC", function(_, result)
      assert.equal(1, result.code)
      assert.is_truthy(result.err:find(folder, 1, true), result.err)
      assert.same({}, shell.lines("find " .. folder .. " -name '*.tmp'"))
    end)
  end)
end)
