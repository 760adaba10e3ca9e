--- A job on two hosts, which are network namespaces (spec/faults/hosts.lua): over mpirun with a host file, and as plain
-- ranks over TCP. It trains as on one, and a link that is cut ends it soon, or heals.
-- sanitizers: no, numbers of training on several ranks are compared; spec/comm/tcp_spec.lua looks at the same code
local core = require "ganymede.core"
local device = require "spec.support.device"
local hosts = require "spec.faults.hosts"
local json = require "ganymede.base.json"
local plain_ranks = require "spec.support.plain_ranks"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

describe("a job on two hosts", function()
  local missing = hosts.missing()
  if missing then
    pending(missing)
    return
  end

  local pair, home
  setup(function() pair = hosts.new(2) end)
  teardown(function() pair:remove() end)
  before_each(function()
    -- At step 20 rank 0 says so, and waits until the file `go` is there.
    home = support.home(support.training [[
      if rank == 0 and trainer.step == 20 then
        io.open("ready", "w"):close()
        while not io.open "go" do os.execute "sleep 0.02" end
      end]])
  end)
  after_each(function()
    pair:heal()
    shell.remove(home)
  end)

  local function go() shell.write(home .. "/go", "") end

  local function as_one(path)
    go()
    local alone = run_host({ "run", "recipe.lua", "--threads", "1", "--stats", "one.json" }, { cwd = home })
    assert.equal(0, alone.code, alone.err)
    local want = json.decode(shell.read(home .. "/one.json"), "one.json").loss
    local got = json.decode(shell.read(home .. "/" .. path), path).loss
    assert.same({ 64, 64 }, { #want, #got })
    for i = 1, 64 do assert.near(want[i], got[i], 1e-5 * math.max(1, want[i])) end -- sums of f32 in another order
  end

  -- mpirun on host 0, in the background; it dies with its watch after 60 s. agent: another program than pair:agent's.
  local function mpirun(ranks, words, agent)
    pair:agent(home .. "/agent")
    shell.write(home .. "/hosts", ("%s slots=2\n%s slots=2\n"):format(hosts.addresses[0], hosts.addresses[1]))
    local env = support.environment_words(home, { OMPI_ALLOW_RUN_AS_ROOT = 1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1 })
    local line = ("cd %s && env %s timeout -k 5 60 %s mpirun --hostfile hosts --map-by node --mca plm_rsh_agent "
      .. "%s/%s --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2 "
      .. "-x GANYMEDE_ROOT -x GANYMEDE_SPEC_MARK -x TMPDIR -n %d %s run recipe.lua --threads 1 --device %s %s "
      .. ">out 2>err; echo $? >status"):format(shell.quote(home), env, pair:inside(0), home, agent or "agent", ranks,
      shell.quote(shell.executable()), device.name(), words)
    shell.write(home .. "/job.sh", line .. "\n")
    assert(os.execute(("setsid sh %s/job.sh </dev/null >/dev/null 2>&1 &"):format(home)) == 0)
  end

  local function wait_for(name)
    local deadline = core.now() + shell.PATIENCE
    while core.now() < deadline do
      local file = io.open(home .. "/" .. name)
      local text = file and file:read "*a"
      if file then file:close() end
      if text and (text ~= "" or name == "ready") then return text end
      core.sleep(0.02)
    end
    error(("no file %s; it wrote:\n%s"):format(name, shell.run("cat " .. home .. "/err").out), 2)
  end

  local function nothing_left()
    local left = support.left(home)
    assert(#left == 0, "processes are left:\n" .. table.concat(left, "\n"))
  end

  it("trains over mpirun with a host file, through the interface that was named", function()
    go()
    mpirun(4, "--stats two.json --interface eth0")
    assert.equal("0\n", wait_for "status", shell.read(home .. "/err"))
    has(shell.read(home .. "/err"), "4 ranks, started by mpirun, 2 on this machine: Open MPI")
    has(shell.read(home .. "/err"), " through eth0\n")
    nothing_left()
    as_one "two.json"
  end)

  it("refuses over mpirun an interface that is not there", function()
    mpirun(2, "--interface ib7")
    assert.equal("2\n", wait_for "status", shell.read(home .. "/err"))
    has(shell.read(home .. "/err"), "there is no interface ib7 with an address here; there are: lo, eth0")
    nothing_left()
  end)

  it("over mpirun ends soon after its link was cut, and says for whom it waited", function()
    mpirun(2, "--comm-timeout 3")
    wait_for "ready"
    pair:cut()
    local cut = core.now()
    go()
    assert.not_equal("0\n", wait_for "status")
    local took = core.now() - cut
    assert.is_true(took < 30, took) -- 3 s, and some more of mpirun's; without its keepalive 5 minutes and longer
    local said = shell.read(home .. "/err")
    assert.is_truthy(said:find "rank %d does not answer" or said:find "lost communication with a remote daemon", said)
    nothing_left()
  end)

  -- mpirun, its daemon on the other host, which stands where ssh has started it, and the rank there.
  for _, case in ipairs {
    { "mpirun", function() return support.pids(home, "^mpirun") end },
    { "the daemon of the other host", function() return support.pids(home, "^%S*orted") end },
    { "a rank of the other host", function()
      local daemon = support.pids(home, "^%S*orted")[1]
      return { shell.run(("cat /proc/%s/task/*/children"):format(daemon)).out:match "%d+" }
    end },
  } do
    it("over mpirun ends soon where " .. case[1] .. " is killed, and leaves nothing on both", function()
      mpirun(4, "--comm-timeout 60")
      wait_for "ready"
      local victims = case[2]()
      assert.is_true(#victims > 0, "nobody to kill")
      local killed = core.now()
      assert.equal(0, os.execute("kill -9 " .. table.concat(victims, " ")))
      go()
      assert.not_equal("0\n", wait_for "status")
      nothing_left()
      local took = core.now() - killed
      assert.is_true(took < 30, took) -- as for a link that was cut
      if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then print(case[1], ("all gone after %.1f s"):format(took)) end
    end)
  end

  it("over mpirun does not begin where the other host does not let it in", function()
    local refusing = home .. "/refusing"
    shell.write(refusing, "#!/bin/sh\necho 'Connection refused' >&2\nexit 255\n") -- as ssh says and ends
    shell.run("chmod +x " .. refusing)
    mpirun(4, "--out run", "refusing")
    assert.not_equal("0\n", wait_for "status")
    assert.matches("Connection refused", shell.read(home .. "/err"))
    nothing_left()
    assert.equal("", shell.run("ls -d " .. home .. "/run 2>/dev/null").out)
  end)

  local function plain(words, options)
    return plain_ranks.start(home, { "run", "recipe.lua", "--threads", "1", unpack(words) }, {
      ranks = 2, address = hosts.addresses[0], prefix = function(rank) return pair:inside(rank) end,
      env = function() return { LOCAL_RANK = 0, LOCAL_WORLD_SIZE = 1 } end, unpack(options or {}) })
  end

  it("trains over TCP, also when its link is down for a moment", function()
    local job = plain { "--stats", "two.json", "--comm-timeout", "40", "--interface", "eth0" }
    job:wait_for "ready"
    pair:cut()
    go()
    os.execute "sleep 1"
    pair:heal()
    local results = job:finish()
    assert.same({ 0, 0 }, { results[0].code, results[1].code }, results[0].err)
    has(results[0].err, "2 ranks, started by the environment, 1 on this machine: TCP through eth0 (10.99.0.1)")
    as_one "two.json"
  end)

  it("over TCP is shown by top with the rank of the other host", function()
    local job = plain { "--out", "run" }
    job:wait_for "ready"
    local deadline, found = core.now() + shell.PATIENCE
    repeat
      core.sleep(0.2)
      local result = shell.run(("cd %s && env %s %s %s top --json"):format(shell.quote(home),
        support.environment_words(home, {}), pair:inside(0), shell.quote(shell.executable())))
      assert.equal(0, result.code, result.err)
      found = json.decode(result.out, "top").ranks
    until found[2].pid and (found[2].step or 0) >= 19 or core.now() > deadline -- its page is copied each second
    go()
    assert.is_nil(found[1].host)
    assert.equal(pair.name .. 1, found[2].host)
    assert.is_true(found[2].alive)
    assert.is_true(found[2].step >= 19)
    job:finish()
    assert.equal("", shell.run("ls -d " .. home .. "/run/pages 2>/dev/null").out)
  end)

  it("over TCP ends soon after its link was cut", function()
    local job = plain { "--comm-timeout", "3" }
    job:wait_for "ready"
    pair:cut()
    local cut = core.now()
    go()
    local results = job:finish()
    local took = core.now() - cut
    assert.is_true(took < 30, took)
    for rank = 0, 1 do
      local said = results[rank].err
      assert.is_true(results[rank].code == 7 or results[rank].code == 1, said)
      assert.is_truthy(said:find "does not answer" or said:find "the connection to rank %d failed", said)
    end
  end)
end)
