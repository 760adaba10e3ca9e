--- Ranks that find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and talk over TCP (host/comm/meet.h,
-- comm_tcp.c): what they compute, what they refuse, what happens when one of them is gone.
local core = require "ganymede.core"
local ffi = require "ffi"
local json = require "ganymede.base.json"
local plain_ranks = require "spec.support.plain_ranks"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

local function losses(path) return json.decode(shell.read(path), path).loss end

describe("ranks that the environment starts", function()
  local home
  after_each(function() shell.remove(home) end)

  local function start(body, words, options)
    home = support.home("local function ready() assert(io.open('ready', 'w')):close() end\n" .. body)
    return plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", unpack(words or {}) }, options)
  end

  local function all_ended(results, code, n)
    for rank = 0, n - 1 do assert.equal(code, results[rank].code, results[rank].err) end
  end

  it("train as one rank does, and rank 0 says through what they talk", function()
    local job = start(support.training "", { "--stats", "three.json", "--out", "run" }, { ranks = 3 })
    local results = job:finish()
    all_ended(results, 0, 3)
    has(results[0].err, "3 ranks, started by the environment, 3 on this machine: TCP through lo (127.0.0.1)")
    assert.equal("", results[1].err .. results[2].err)
    local alone = run_host({ "run", "recipe.lua", "--threads", "1", "--stats", "one.json" }, { cwd = home })
    assert.equal(0, alone.code, alone.err)
    local one, three = losses(home .. "/one.json"), losses(home .. "/three.json")
    assert.equal(64, #one)
    for i = 1, 64 do assert.near(one[i], three[i], 1e-5 * math.max(1, one[i])) end -- sums of f32 in another order
  end)

  -- Every collective, and sections that fail and are given up: messages of all sizes, cancelled, drained.
  it("pass the specs of collectives and of sections", function()
    home = shell.temporary_folder()
    local job = plain_ranks.start(home, { "spec", GANYMEDE_ROOT .. "/spec/comm/collectives_spec.lua",
      GANYMEDE_ROOT .. "/spec/comm/sections_spec.lua" }, { ranks = 3,
      prefix = function() return "env -C " .. shell.quote(GANYMEDE_ROOT) end })
    local results = job:finish()
    all_ended(results, 0, 3)
    for _, name in ipairs { "collectives_spec", "sections_spec" } do
      assert.matches(name .. "%.lua +[1-9]%d* passed %(", results[0].out) -- and status 0: none failed
    end
  end)

  it("send long messages, whoever of the two comes first", function()
    local results = start([[
      local n = 3 * 2^20 / 4 + 5                                -- 12 times what is sent unasked
      local group = core.comm_group_of("world", { 0, 1 })
      for round = 1, 4 do
        if round % 2 == rank then os.execute "sleep 0.05" end   -- early, or late
        local t = sum(gm.full({ n }, rank + round))
        local low, high = t:min(1):item(), t:max(1):item()
        assert(low == 1 + 2 * round and high == low, low .. " " .. high)
      end
      print "summed"
    ]], {}, { ranks = 2 }):finish()
    all_ended(results, 0, 2)
    assert.equal("summed\nsummed\n", results[0].out .. results[1].out)
  end)

  it("listen nowhere once they have met", function()
    local job = start("if rank == 0 then ready() end sum(gm.full({ 3 }, 1)) while not io.open 'go' do os.execute "
      .. "'sleep 0.02' end", {}, { ranks = 2 })
    job:wait_for "ready"
    local sockets = {}
    for rank = 0, 1 do
      for _, pid in ipairs(job:pids(rank)) do
        for _, line in ipairs(shell.lines(("ls -l /proc/%s/fd 2>/dev/null || true"):format(pid))) do
          sockets[#sockets + 1] = line:match "socket:%[(%d+)%]"
        end
      end
    end
    assert.is_true(#sockets >= 2, "no rank has a socket")
    local listening = {}
    for _, file in ipairs { "/proc/net/tcp", "/proc/net/tcp6" } do
      for line in shell.read(file):gmatch "[^\n]+" do
        local state, inode = line:match "^%s*%d+: %x+:%x+ %x+:%x+ (%x+) %S+ %S+ %S+%s+%d+%s+%d+%s+(%d+)"
        if state == "0A" then listening[inode] = line end
      end
    end
    for _, inode in ipairs(sockets) do assert.is_nil(listening[inode]) end
    shell.write(home .. "/go", "")
    all_ended(job:finish(), 0, 2)
  end)

  it("turn away who speaks otherwise, says nothing, or has another key", function()
    ffi.cdef "int usleep(unsigned int microseconds);"
    local job = start("sum(gm.full({ 3 }, 1)) print 'met'", {}, { ranks = 2,
      prefix = function(rank)
        return rank == 1 and "sh -c 'while [ ! -e go ]; do sleep 0.02; done; exec \"$@\"' sh" or ""
      end })
    local talk = ("bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf %%s \"%s\" >&3 && %s'")
    local function connects() return shell.run(talk:format(job.port, "", "true")).code == 0 end
    local deadline = core.now() + shell.PATIENCE
    while not connects() and core.now() < deadline do ffi.C.usleep(20000) end
    local request = "GET / HTTP/1.1 and what else there is in a request"
    local http = shell.run("timeout 20 " .. talk:format(job.port, request, "cat <&3"))
    assert.equal("", http.out)
    assert.not_equal(124, http.code, "it was not hung up on")
    local stranger = run_host({ "run", "recipe.lua", "--comm-timeout", "2" }, { cwd = home, env = { RANK = 1,
      WORLD_SIZE = 2, MASTER_ADDR = "127.0.0.1", MASTER_PORT = job.port, GANYMEDE_JOB_KEY = "another" } })
    assert.equal(1, stranger.code, stranger.err)
    has(stranger.err, "rank 0 went away while the ranks were meeting, or did not answer")
    shell.write(home .. "/go", "")
    local results = job:finish()
    all_ended(results, 0, 2)
    assert.equal("met\nmet\n", results[0].out .. results[1].out)
  end)

  it("train also where one of them shares no memory with the others", function()
    local results = start(support.training "if trainer.step == 3 then print 'trains' end", { "--steps", "5" },
      { ranks = 3, env = function(rank) return { GANYMEDE_SHARED_MEMORY = rank == 2 and "none" or "rings" } end })
      :finish()
    all_ended(results, 0, 3)
    assert.equal("trains\n", results[2].out)
  end)

  it("say for whom they waited", function()
    home = support.home ""
    local result = run_host({ "run", "recipe.lua", "--comm-timeout", "0.5" }, { cwd = home, env = { RANK = 0,
      WORLD_SIZE = 3, MASTER_ADDR = "127.0.0.1", MASTER_PORT = 20999 } })
    assert.equal(7, result.code, result.err)
    has(result.err, "rank 0 waited 0.5 s at 127.0.0.1, port 20999, and ranks 1, 2 of 3 did not come")
  end)

  it("end when one of them is killed, and name it", function()
    local results = start(support.training "if rank == 1 and trainer.step == 6 then fault() kill(9) end", {},
      { ranks = 3 }):finish()
    local late = core.wall() - support.fault_of(home)
    assert.equal(137, results[1].code)
    for _, rank in ipairs { 0, 2 } do assert.equal(1, results[rank].code, results[rank].err) end
    has(results[0].err .. results[2].err, "the connection to rank 1 was closed by it")
    assert.is_true(late < 10, late)
  end)

  it("go through the interface that is named, and refuse one that is not there", function()
    local job = start("sum(gm.full({ 3 }, 1)) print(os.getenv 'NCCL_SOCKET_IFNAME')", { "--interface", "lo" },
      { ranks = 2 })
    local met = job:finish()
    all_ended(met, 0, 2)
    assert.equal("=lo\n=lo\n", met[0].out .. met[1].out)
    shell.remove(home)
    local results = start("", { "--interface", "ib7", "--comm-timeout", "5" }, { ranks = 2 }):finish()
    assert.equal(2, results[0].code, results[0].err)
    has(results[0].err, "there is no interface ib7 with an address here; there are: lo")
  end)

  -- A job whose ranks wait at step 4 for the file `go`; before that, `rank` gets two of the signal.
  local function signalled_twice(signal, rank, options)
    local job = start(support.training [[
      if trainer.step == 4 then
        if rank == 0 then ready() end
        while not io.open "go" do os.execute "sleep 0.02" end
      end]], { "--out", "run" }, options)
    job:wait_for "ready"
    for _ = 1, 2 do
      os.execute(("kill -%s %s"):format(signal, table.concat(job:pids(rank), " ")))
      os.execute "sleep 0.1" -- one of two that wait would be lost
    end
    shell.write(home .. "/go", "")
    local results = job:finish()
    all_ended(results, 75, options.ranks)
    has(results[0].err, "stopped after step")
  end

  it("save a checkpoint at SIGUSR1, and a second one changes nothing", function()
    signalled_twice("USR1", 1, { ranks = 2 })
  end)

  it("save a checkpoint at SIGTERM in a step of srun, which sends several", function()
    local function env() return { SLURM_STEP_NUM_TASKS = 1, SLURM_PROCID = 0 } end
    signalled_twice("TERM", 0, { ranks = 1, env = env })
  end)
end)
