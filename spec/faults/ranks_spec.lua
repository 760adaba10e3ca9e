--- What goes wrong on one rank ends the job: within 10 seconds, with the right exit status and one message, leaving
-- nothing behind.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local support = require "spec.faults.support"

local run, check, training = support.run, support.check, support.training

-- Lines of standard error that say something, but for what was chosen for the user.
local function said(result)
  local lines = {}
  for line in result.err:gmatch "[^\n]+" do
    local chosen = line:find "ranks? on %d+ core" or line:find "points: " or line:find "run folder"
      or line:find "ranks talk through"
    if not chosen then lines[#lines + 1] = line end
  end
  return lines
end

-- A rank that ends behind its sixth step had the gradients of rank 0's sixth, which rank 0 itself may still be about to
-- finish: five losses are told for sure.
describe("a rank that is killed", function()
  it("in the middle of a step ends the job with status 6, and rank 0 still writes --stats", function()
    local result = run(training "if rank == 2 and trainer.step == 6 then fault() kill(9) end")
    check(result, 6, "rank 2: killed by signal 9 (Killed)")
    assert.matches("; it was in or behind step 7; its last operation: [%a_]+ %(call %d+ of %a+%)", result.err)
    assert.matches("where nobody sent it, this machine ran out of memory: see dmesg, lower data%.batch_size, or give "
      .. "%-%-limit%-memory", result.err)
    assert.equal(1, #said(result), result.err)
    assert.equal(6, result.stats.exit_code)
    assert.equal("rank died", result.stats.status)
    assert.is_true(#result.stats.loss >= 5)
  end)

  it("may be rank 0, and the others may be in a loop of their own", function()
    local result = run [[
      if rank == 0 then fault() kill(6) end
      local i = 0
      while true do i = i + 1 end]]
    check(result, 6, "rank 0: killed by signal 6")
    assert.is_nil(result.err:find("out of memory", 1, true), result.err) -- signal 9 alone may mean that
  end)
end)

describe("a rank that raises", function()
  it("outside of a step", function()
    local result = run [[
      if rank == 1 then fault() error "the wrong kind of data" end
      sum(gm.ones { 4 })]]
    check(result, 1, "rank 1: recipe.lua:14: the wrong kind of data")
    assert.equal(1, #said(result), result.err)
  end)

  it("inside a step, while the others reduce gradients", function()
    local result = run(training "if rank == 1 and trainer.step == 6 then fault() error 'no such sample' end")
    check(result, 1, "no such sample")
    assert.is_truthy(result.err:find("rank 1: ", 1, true), result.err)
    assert.equal(1, result.stats.exit_code)
    assert.is_true(#result.stats.loss >= 5)
  end)

  it("an object that is no text", function()
    local told = "error(setmetatable({}, { __tostring = function() return 'told' end }))"
    check(run("if rank == 2 then fault() " .. told .. " end sum(gm.ones { 4 })"), 1, "rank 2: told")
    check(run "if rank == 0 then fault() error(nil) end sum(gm.ones { 4 })", 1, "rank 0: an error without a message")
  end)

  it("because it has no memory left", function()
    local result = run [[
      if rank == 2 then core.memory_limit(2 ^ 20) fault() end
      sum(gm.zeros { 2 ^ 20 })]]
    check(result, 1, "rank 2: ")
    assert.is_truthy(result.err:find("memory", 1, true), result.err)
  end)

  -- Its address space may grow by 128 MiB (9: RLIMIT_AS), which strings of 1 MiB fill.
  it("because Lua has no memory left", function()
    local result = run [[
      if rank == 1 then
        local ffi = require "ffi"
        ffi.cdef "struct rlimit { unsigned long cur, max; }; int setrlimit(int resource, const struct rlimit *limit);"
        local file = io.open "/proc/self/statm"
        local most = file:read "*n" * 4096 + 2 ^ 27
        file:close()
        assert(ffi.C.setrlimit(9, ffi.new("struct rlimit", most, most)) == 0)
        fault()
        local kept = {}
        for i = 1, 4096 do kept[i] = ("x"):rep(2 ^ 20) .. i end
      end
      sum(gm.ones { 4 })]]
    check(result, 1, "rank 1: not enough memory")
  end)

  it("the same error as all others: said once, of none of them", function()
    local result = run "fault() error 'the same everywhere'"
    check(result, 1, "ganymede: recipe.lua:14: the same everywhere")
    assert.equal(1, #said(result), result.err)
  end)

  it("while another one computes and asks nobody", function()
    local result = run [[
      if rank == 1 then fault() error "early" end
      local t = gm.ones { 64, 64 }
      while true do gm.scope(function() return gm.ops.matmul(t, t):sum() end) end]]
    check(result, 1, "rank 1: recipe.lua:14: early")
  end)
end)

describe("a rank that leaves", function()
  it("by os.exit is told where", function()
    local result = run [[
      if rank == 1 then fault() os.exit(0) end
      sum(gm.ones { 4 })]]
    check(result, 1, "rank 1: recipe.lua:14: os.exit(0) in the middle of a run")
  end)

  it("behind Lua's back is noticed", function()
    local result = run [[
      local ffi = require "ffi"
      ffi.cdef "void _exit(int);"
      if rank == 1 then fault() ffi.C._exit(0) end
      sum(gm.ones { 4 })]]
    check(result, 1, "rank 1: the process ended with exit(0) in the middle of things")
  end)
end)

describe("a rank that does not come to a collective", function()
  it("because it is stopped: status 7 names it", function()
    local result = run([[
      sum(gm.ones { 4 })
      if rank == 2 then fault() kill "STOP" end
      sum(gm.ones { 4 })]], { "--comm-timeout", "3" })
    check(result, 7, "rank 2 was stopped by signal 19")
  end)

  it("because it loops for ever: status 7 names it", function()
    local result = run([[
      sum(gm.ones { 4 })
      if rank == 1 then fault() local i = 0 while true do i = i + 1 end end
      sum(gm.ones { 4 })]], { "--comm-timeout", "3" })
    assert.equal(7, result.code, result.err)
    assert.matches("rank 1 does not answer.-; rank 1: process %d+ runs[^;]*, after %d+%.%d+ s of CPU time", result.err)
    assert.matches("\nganymede: rank 1 is in, the innermost first:\n.-compiled Lua\n", result.err)
    assert.matches("\nganymede: rank 1 was here, in Lua:\nstack traceback:\n%s*recipe.lua:15: in ", result.err)
    assert.is_true(result.late < 10)
  end)

  it("because nobody receives what it sends, or sends what it receives: status 7 says in which call", function()
    for call, other in pairs { send = "send f32 (1048576)", receive = "receive f32 (1048576)" } do
      local result = run(([[
        local world = core.comm_group_of("world", { 0, 1, 2 })
        if rank == 0 then fault() core.comm_%s(gm.ones { 2 ^ 20 }, world, 1) end
        sum(gm.ones { 4 })]]):format(call), { "--comm-timeout", "3" })
      check(result, 7, other .. " (call 1 of world)") -- rank 0 may be who says it, or who is missed
    end
  end)

  it("in another group than that of the ranks that wait: it is named all the same", function()
    local result = run([[
      local pairs_of = { [0] = { 0, 1 }, { 1, 2 }, { 2, 3 } }
      local group = {}
      for i = math.max(0, rank - 1), math.min(2, rank) do group[i] = core.comm_group_of("pair" .. i, pairs_of[i]) end
      sum(gm.ones { 4 })
      if rank == 3 then fault() local i = 0 while true do i = i + 1 end end
      if rank == 2 then os.execute "sleep 1" end -- so that those in other groups lose their patience first
      core.comm_all_reduce(gm.ones { 4 }, group[rank], "sum")]], { "--comm-timeout", "3" }, 4)
    assert.equal(7, result.code, result.err)
    assert.is_truthy(result.err:find("rank 3 does not answer", 1, true), result.err)
    assert.matches("\nganymede: rank 3 was here, in Lua:\nstack traceback:\n%s*recipe.lua:18: in ", result.err)
  end)

  it("because it sleeps in the kernel: where, and in which of its functions", function()
    local result = run([[
      sum(gm.ones { 4 })
      if rank == 1 then
        local ffi = require "ffi"
        ffi.cdef "int pause(void);"
        fault()
        while true do ffi.C.pause() end
      end
      sum(gm.ones { 4 })]], { "--comm-timeout", "3" })
    assert.equal(7, result.code, result.err)
    assert.matches("rank 1 does not answer.-; rank 1: process %d+ sleeps[^;]*, after %d+%.%d+ s of CPU", result.err)
    assert.matches("rank 1 is in, the innermost first:\n[^\n]*libc[^\n]*pause", result.err)
    assert.is_true(result.late < 10)
  end)
end)

describe("a rank that comes late", function()
  it("is waited for, if it comes within --comm-timeout", function()
    local result = run([[
      sum(gm.ones { 4 })
      if rank == 1 then
        local me = core.process().pid
        os.execute("(sleep 1; kill -CONT " .. me .. ") & kill -STOP " .. me)
      end
      if sum(gm.ones { 1 }):item() == 3 and rank == 0 then print "all came" end]], { "--comm-timeout", "20" })
    assert.equal(0, result.code, result.err)
    assert.equal("all came\n", result.out)
  end)
end)

describe("a rank that is stopped when the time limit passes", function()
  it("is named, and so is the limit", function()
    local result = run("if rank == 2 then fault() kill 'STOP' end sum(gm.ones { 4 })", { "--timeout", "6" })
    check(result, 7, "the run did not end within 6 seconds (--timeout)")
    assert.is_truthy(result.err:find("rank 2 was stopped by signal 19", 1, true), result.err)
  end)
end)

describe("ranks that make different calls", function()
  local function differ(what, one, other, parts)
    it(what, function()
      local body = ("local t = gm.ones { 4 } sum(t) fault() if rank == 1 then %s else %s end"):format(other, one)
      local result = run(body)
      assert.equal(1, result.code, result.err)
      for _, part in ipairs(parts) do assert.is_truthy(result.err:find(part, 1, true), result.err) end
      assert.is_true(result.late < 10)
    end)
  end

  differ("another operation", "core.comm_all_reduce(t, nil, 'sum')", "core.comm_broadcast(t, nil, 0)",
    { "all_reduce", "broadcast" })
  differ("another shape", "core.comm_all_reduce(t, nil, 'sum')", "core.comm_all_reduce(gm.ones { 5 }, nil, 'sum')",
    { "(4)", "(5)" })
  differ("another dtype", "core.comm_all_reduce(t, nil, 'sum')",
    "core.comm_all_reduce(gm.ones({ 4 }, { dtype = 'f64' }), nil, 'sum')", { "f32", "f64" })
  -- nobody waits for the end of a small broadcast, so it shows in the next call
  differ("another root", "core.comm_broadcast(t, nil, 0) sum(t)", "core.comm_broadcast(t, nil, 1) sum(t)",
    { "root 0", "root 1" })
end)

describe("ranks that were given different things", function()
  it("end with status 2 before anything starts, naming what differs", function()
    local result = run("fault()\n" .. training(""):gsub("lr = 0.01", "lr = rank == 1 and 0.02 or 0.01"))
    check(result, 2, "optimizer.lr")
    assert.equal(1, select(2, result.err:gsub("not given the same", "")), result.err)
  end)
end)
