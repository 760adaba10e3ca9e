--- `ganymede test`: what it says of files whose examples did not run.
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

describe("ganymede test", function()
  local path

  -- A spec file with this text -> status, what is printed
  local function test(text, ...)
    shell.write(path, text)
    local result = run_host({ "test", "--no-unit", path, ... }, { env = { GANYMEDE_CUDA_SUITE = false } })
    return result.code, result.out
  end

  local function has(text, part) assert.is_truthy(text:find(part, 1, true), ("no '%s' in: %s"):format(part, text)) end

  before_each(function()
    path = os.tmpname()
    os.remove(path)
    path = path .. "_spec.lua"
  end)
  after_each(function() os.remove(path) end)

  it("counts a file that cannot run here as skipped, and says why", function()
    local code, out = test 'pending "this needs a gadget: build the target gadget"'
    assert.equal(0, code, out)
    has(out, "0 passed, 0 failed, 1 skipped (")
    has(out, "\n  skipped  this needs a gadget: build the target gadget\n")
    assert.matches("\n0 passed, 0 failed, 1 skipped\n$", out)
  end)

  it("calls every function that an example gave to finally, and removes the folders that it left", function()
    local folder = shell.temporary_folder()
    shell.write(path, [[
      local shell, order = require "spec.support.shell", {}
      describe("an example", function()
        it("asks for three", function()
          shell.write(shell.temporary_folder() .. "/left", "")
          for i = 1, 3 do
            finally(function()
              order[#order + 1] = i
              if i == 2 then error("the second fails", 0) end
            end)
          end
        end)
        it("sees them", function() assert.same({ 3, 2, 1 }, order) end)
      end)
    ]])
    local result = run_host({ "spec", path }, { env = { TMPDIR = folder } })
    has(result.out, "the second fails")
    has(result.out, "1 passed, 1 failed")
    assert.same({}, shell.lines("find " .. folder .. " -name 'ganymede-spec-*' ! -path " .. folder))
    shell.remove(folder)
  end)

  it("says why an example was skipped", function()
    local code, out = test [[
      describe("a gadget", function()
        it("turns", function() end)
        it("rests", function() pending "it\nturns" end)
      end)
    ]]
    assert.equal(0, code, out)
    has(out, "\n  skipped  a gadget rests: it turns\n")
    assert.matches("\n1 passed, 0 failed, 1 skipped\n$", out)
  end)

  it("leaves out of specs of ops what is compiled without sanitizers, and files that ask for it", function()
    local _, out = test([[pending("suite " .. tostring(os.getenv "GANYMEDE_CUDA_SUITE"))]], "--sanitizers")
    has(out, "\n  skipped  suite none\n")
    _, out = test [[pending("suite " .. tostring(os.getenv "GANYMEDE_CUDA_SUITE"))]]
    has(out, "\n  skipped  suite nil\n")
    _, out = test('-- A file.\n-- sanitizers: no, it is enough\npending "here"', "--sanitizers")
    assert.equal("0 passed, 0 failed\n", out)
    local few = '-- A file.\n-- ranks: 1 2\n-- sanitizers: at most 1 ranks, it is enough\npending "here"'
    _, out = test(few, "--sanitizers")
    assert.is_nil(out:find("on 2 ranks", 1, true), out)
    has(select(2, test(few)), "on 2 ranks")
  end)

  it("runs only the examples that a file names for sanitizers, and refuses lines that it cannot read", function()
    local body = [[
      describe("a gadget", function()
        for _, name in ipairs { "turns", "rests 1.5", "rests 105", "falls" } do it(name, function() end) end
      end)
    ]]
    local some = '-- A file.\n-- sanitizers: only "turns"\n--   "rests 1%.5$", the others run the same code\n' .. body
    local code, out = test(some, "--sanitizers")
    assert.equal(0, code, out)
    assert.matches("\n2 passed, 0 failed\n$", "\n" .. out)
    assert.matches("\n4 passed, 0 failed\n$", "\n" .. select(2, test(some)))
    code, out = test('-- A file.\n-- sanitizers: only "jumps", the others run the same code\n' .. body, "--sanitizers")
    assert.equal(1, code, out)
    has(out, "no example matches")
    for _, line in ipairs { 'only turns, the same', 'only "turns"', "no", "non, the same", "at most two ranks, why",
      "at most 2 ranks" } do
      shell.write(path, "-- A file.\n-- sanitizers: " .. line .. "\n" .. body)
      local result = run_host { "test", "--no-unit", "--sanitizers", path }
      assert.equal(2, result.code, line .. result.out)
      has(result.err, "the line '-- sanitizers: " .. line .. "' should be 'no, WHY', 'at most N ranks, WHY' or")
    end
  end)

  it("fails for a file without an example, and says what to write there", function()
    local code, out = test "if true then return end"
    assert.equal(1, code, out)
    has(out, "there is no example in " .. path)
    has(out, 'pending "why"')
    assert.matches("\n0 passed, 1 failed\n$", out)
  end)
end)
