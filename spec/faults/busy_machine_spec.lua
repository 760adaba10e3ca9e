--- Ranks that should end, on a core that others use: what they have to end counts from when they get a core.
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local OTHERS = 15 -- that compute on the same core
local LONG = 7 -- seconds in which rank 1 does not end: more than the 5 that it has on a machine that is idle

-- Rank 0 fails when the others compute. Rank 1 hears of it in its sum, and takes LONG seconds more, whatever it is
-- told.
local body = ([[
local function file(name) return io.open(name) ~= nil end
if rank == 0 then
  ready()
  while not file "busy" do core.sleep(0.02) end
  error "broken"
end
local ok, why = pcall(sum, gm.ones { 1 })
assert(io.open("heard", "w")):close()
local last = core.now() + %d
repeat pcall(function() while core.now() < last do end end) until core.now() >= last
assert(io.open("ended", "w")):close()
error(why)]]):format(LONG)

local function first_core() return shell.lines("taskset -cp $$")[1]:match "(%d+)[%d,-]*$" end

-- Starts processes that compute on a core -> their numbers in a line.
local function compute_on(number)
  local line = "for i in $(seq %d); do taskset -c %s timeout %d sh -c 'while :; do :; done' >/dev/null 2>&1 & "
    .. "echo $!; done"
  return table.concat(shell.lines(line:format(OTHERS, number, shell.PATIENCE)), " ")
end

describe("ranks whose core others use", function()
  it("end by themselves after another has failed, later than they may on a core of their own", function()
    local number = first_core()
    local job = support.start(body, {}, ("taskset -c %s %%s run recipe.lua -n 2"):format(number))
    job:file "ready"
    local others = compute_on(number)
    shell.write(job.home .. "/busy", "")
    local ok, why = pcall(job.file, job, "status")
    os.execute("kill " .. others)
    assert.is_true(ok, why)
    assert.is_truthy(job:read "heard")
    local ended = job:read "ended"
    local result = job:finish()
    assert.equal(1, result.code, result.err)
    assert.matches("ganymede: rank 0: recipe.lua:%d+: broken", result.err)
    assert.matches("ganymede: warning: this machine is busy, or was stopped: rank 1, which should end, has had a core "
      .. "for less than %d%.%d of 5 s, and gets up to 60 s more\n", result.err)
    assert.is_truthy(ended, result.err)
  end)

  it("end soon where they have a core and do not use it", function()
    local result = support.run [[
      if rank == 0 then fault() error "broken" end
      pcall(sum, gm.ones { 1 })
      core.sleep(100)]]
    support.check(result, 1, "broken")
    assert.is_nil(result.err:find("is busy", 1, true), result.err)
  end)
end)
