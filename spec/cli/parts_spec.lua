--- Parts of the command line that need no process: the progress line, statistics, hashes, folders.
local core = require "ganymede.core"
local machine = require "ganymede.base.machine"
local Progress = require "ganymede.observe.progress"
local session = require "ganymede.job.session"
local sha256 = require "ganymede.base.sha256"
local stats = require "ganymede.observe.stats"
local shell = require "spec.support.shell"

-- A file that remembers, and a clock that is told.
local function screen()
  local out = { text = "" }
  function out:write(...)
    self.text = self.text .. table.concat { ... }
    return self
  end
  function out.flush() return true end
  local time = { now = 100 }
  return out, time, function() return time.now end
end

describe("the progress line", function()
  local out, time, clock
  before_each(function() out, time, clock = screen() end)

  it("has rates and the time that is left", function()
    local progress = Progress { steps = 100, out = out, clock = clock, terminal = false }
    progress { step = 1, samples = 10, loss = 2 }
    time.now = 102
    progress { step = 5, samples = 50, loss = 1.5, accuracy = 0.25, epoch = 1, lr = 0.001 }
    -- 40 samples and 4 steps in 2 s; 95 steps are left
    assert.equal("step 5/100  epoch 1  loss 1.5000  accuracy 0.2500  lr 0.001  20 samples/s  ETA 0:00:48",
      progress.last)
  end)

  it("forgets rates of more than ten seconds ago", function()
    local progress = Progress { out = out, clock = clock, terminal = false }
    progress { step = 1, samples = 1 }
    for step = 2, 21 do -- 10 samples in 10 s, then 5 a second
      time.now = time.now + (step <= 11 and 1 or 2)
      progress { step = step, samples = step <= 11 and step or 11 + 10 * (step - 11) }
    end
    assert.is_truthy(progress.last:find("  5 samples/s", 1, true), progress.last)
  end)

  it("keeps no more for fast steps than for slow ones", function()
    local progress = Progress { out = out, clock = clock, terminal = false }
    for step = 1, 20000 do -- a millisecond each
      progress { step = step, samples = 8 * step }
      time.now = time.now + 1e-3
    end
    assert.is_true(#progress.window <= 102, #progress.window)
    progress:close()
    assert.is_truthy(progress.last:find("  8000 samples/s", 1, true), progress.last)
  end)

  it("changes one line on a terminal, wipes what was longer, and ends it", function()
    local progress = Progress { steps = 3, out = out, clock = clock, terminal = true }
    progress { step = 1, samples = 1, loss = 1000 }
    time.now = 101
    progress { step = 2, samples = 2, loss = 1 }
    progress:close()
    local lines = {}
    for part in out.text:gmatch "\r([^\r\n]*)" do lines[#lines + 1] = part end
    assert.equal("[##########....................]  33 %  step 1/3  loss 1000.0000", lines[1])
    assert.is_true(#lines[2] >= #lines[1])
    assert.equal("\n", out.text:sub(-1))
    assert.equal(1, select(2, out.text:gsub("\n", "")))
  end)

  -- What stands on a terminal of so many columns at last, after one step and the end.
  local function shown(columns, event, steps)
    local progress = Progress { steps = steps, out = out, clock = clock, terminal = true, columns = columns }
    progress(event)
    progress:close()
    local line = out.text:match "\r([^\r]*)\n$"
    out.text = ""
    return line
  end

  it("has a bar where there is room for one, and always fits into a line", function()
    assert.equal("[#######.......................]  25 %  step 10/40  loss 2.0000",
      shown(100, { step = 10, loss = 2 }, 40))
    assert.equal("[##############################] 100 %  step 40/40", shown(100, { step = 40 }, 40))
    assert.equal("[#####.....]  50 %  step 20/40", shown(31, { step = 20 }, 40))
    assert.equal("step 20/40", shown(28, { step = 20 }, 40))
    assert.equal("step 20", shown(80, { step = 20 }))
    local much = { step = 20, loss = 2, epoch = 3, lr = 0.01, accuracy = 0.5 }
    assert.equal("[#####.....]  50 %  step 20/40  epoch 3  loss 2.0000  accuracy 0.5000", shown(70, much, 40))
    assert.equal("[####....]  50 %  step 20/40  loss 2.0000", shown(42, much, 40))
    assert.equal("step 20/40  los", shown(16, { step = 20, loss = 2 }, 40))
  end)

  it("writes a line now and then elsewhere, and always the last", function()
    local progress = Progress { steps = 50, out = out, clock = clock, terminal = false }
    for step = 1, 50 do
      time.now = time.now + 1
      progress { step = step, samples = step, loss = 1 }
    end
    progress:close()
    local steps = {}
    for step in out.text:gmatch "step (%d+)/" do steps[#steps + 1] = tonumber(step) end
    assert.same({ 1, 11, 21, 31, 41, 50 }, steps) -- every 10 seconds
    assert.is_nil(out.text:find "\r")
  end)

  it("is wiped before a message, and comes again", function()
    local log = require "ganymede.base.log"
    local progress = Progress { out = out, clock = clock, terminal = true }
    progress { step = 1, samples = 1 }
    log.before()
    assert.is_truthy(out.text:match "\r +\r$")
    progress:close()
    assert.is_false(log.before)
  end)

  it("shows durations, and losses that are no numbers", function()
    assert.equal("1:01:05", Progress.duration(3665))
    local progress = Progress { out = out, clock = clock, terminal = false }
    assert.equal("step 1  loss nan", progress:text { step = 1, loss = 0 / 0 })
    progress:close()
  end)
end)

describe("sha256", function()
  -- FIPS 180-2, appendix B, and lengths around the end of a block (from coreutils' sha256sum)
  for text, want in pairs {
    [""] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq =
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    [("a"):rep(1000)] = "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3",
  } do
    it(("of %d bytes"):format(#text), function() assert.equal(want, sha256(text)) end)
  end

  it("agrees with sha256sum around the ends of blocks", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    for _, n in ipairs { 55, 56, 63, 64, 65, 119, 120, 128 } do
      local text = ("\200x"):rep(n):sub(1, n)
      shell.write(folder .. "/text", text)
      assert.equal(shell.lines("sha256sum < " .. folder .. "/text")[1]:match "%x+", sha256(text))
    end
  end)
end)

describe("statistics", function()
  it("hold settings that have no JSON form by name", function()
    assert.same({ f = "(a function)", list = { 1, 2 }, o = "(a table)" },
      stats.jsonable { f = print, list = { 1, 2 }, o = setmetatable({}, {}) })
  end)

  it("are a document also when nothing was reached", function()
    local json = require "ganymede.base.json"
    local document = json.decode(json.encode(stats.document({}, { exit_code = 2, error = "no" })))
    assert.same({ "wrong", 2, "no", 0 }, { document.status, document.exit_code, document.error, document.steps })
    assert.is_true(json.is_array(document.loss) and json.is_array(document.ranks[1].comm))
  end)
end)

describe("files", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  it("appear whole, and replace what was there", function()
    core.write_whole(folder .. "/f", "first")
    core.write_whole(folder .. "/f", "second\0half")
    assert.equal("second\0half", shell.read(folder .. "/f"))
    assert.same({ "f" }, core.list_folder(folder))
    assert.error_matches(function() core.write_whole(folder .. "/no/f", "x") end, "cannot write .*/no/f")
  end)

  it("are made in folders that did not exist, and a link is moved", function()
    core.make_folders(folder .. "/a/b/c")
    core.make_folders(folder .. "/a/b/c")
    core.point_link(folder .. "/link", "a")
    core.point_link(folder .. "/link", "a/b")
    assert.same({ "c" }, core.list_folder(folder .. "/link"))
    core.write_whole(folder .. "/plain", "")
    assert.error_matches(function() core.point_link(folder .. "/plain", "a") end, "is no link")
    assert.error_matches(function() core.make_folders(folder .. "/plain/x") end, "cannot make the folder")
    assert.error_matches(function() core.make_new_folder(folder .. "/a") end, "cannot make the folder")
    assert.same({}, core.list_folder(folder .. "/nothing"))
  end)
end)

describe("numbers of flags", function()
  it("are bytes with a unit", function()
    local good = { ["512"] = 512, ["4K"] = 4096, ["1.5M"] = 1.5 * 2 ^ 20, ["2GiB"] = 2 ^ 31, ["1kb"] = 1024 }
    for text, bytes in pairs(good) do
      assert.equal(bytes, machine.bytes_of(text))
    end
    for _, text in ipairs { "0", "-1", "M", "1X", "", "1e9", "99999T" } do assert.is_nil((machine.bytes_of(text))) end
  end)

  it("are integers of at least a bound", function()
    local convert = session.integer(1)
    assert.equal(3, convert "3")
    for _, text in ipairs { "0", "-3", "1.5", "x", "", "0x10", "1e3", "99999999999999999999" } do
      assert.is_nil((convert(text)))
    end
  end)
end)
