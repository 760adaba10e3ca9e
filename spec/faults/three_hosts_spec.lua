--- A job on three hosts, which are network namespaces (spec/faults/hosts.lua). It trains as one rank does. Where a host
-- is cut off, it heals, or ends soon and names that host. Two ranks are on the first host, one is on each other.
-- sanitizers: no, numbers of training on several ranks are compared; spec/comm/tcp_spec.lua looks at the same code
local core = require "ganymede.core"
local hosts = require "spec.faults.hosts"
local json = require "ganymede.base.json"
local plain_ranks = require "spec.support.plain_ranks"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

describe("a job on three hosts", function()
  local missing = hosts.missing()
  if missing then
    pending(missing)
    return
  end

  local HOST = { [0] = 0, 0, 1, 2 } -- of each rank
  local net, home
  setup(function() net = hosts.new(3) end)
  teardown(function() net:remove() end)
  before_each(function()
    -- At step 20 rank 0 says so, and waits until the file `go` is there.
    home = support.home((support.training [[
      if rank == 0 and trainer.step == 20 then
        io.open("ready", "w"):close()
        while not io.open "go" do os.execute "sleep 0.02" end
      end]]):gsub('name = "points"', '%0, dtype = "f64"'))
  end)
  after_each(function()
    net:heal()
    shell.remove(home)
  end)

  local function start_recipe(recipe, ...)
    return plain_ranks.start(home, { "run", recipe, "--threads", "1", "--interface", "eth0", ... }, {
      ranks = 4, address = hosts.addresses[0], prefix = function(rank) return net:inside(HOST[rank]) end,
      env = function(rank)
        return { LOCAL_RANK = rank == 1 and 1 or 0, LOCAL_WORLD_SIZE = rank < 2 and 2 or 1 }
      end })
  end
  local function start(...)
    local job = start_recipe("recipe.lua", ...)
    job:wait_for "ready"
    return job
  end
  local function go() shell.write(home .. "/go", "") end

  -- In f64: 1e-16 an addition, in another order.
  local function as_one()
    local alone = run_host({ "run", "recipe.lua", "--threads", "1", "--stats", "one.json" }, { cwd = home })
    assert.equal(0, alone.code, alone.err)
    local function losses(name) return json.decode(shell.read(home .. "/" .. name), name).loss end
    local want, got = losses "one.json", losses "four.json"
    assert.same({ 64, 64 }, { #want, #got })
    for i = 1, 64 do assert.near(want[i], got[i], 1e-9) end
  end

  it("trains with the losses of one rank, also where one host is cut off for a moment", function()
    local job = start("--stats", "four.json", "--comm-timeout", "40")
    net:cut(2)
    go()
    os.execute "sleep 1"
    net:heal()
    local results = job:finish()
    for rank = 0, 3 do assert.equal(0, results[rank].code, results[rank].err) end
    assert.is_truthy(results[0].err:find("4 ranks, started by the environment, 2 on this machine: TCP", 1, true),
      results[0].err)
    as_one()
  end)

  -- Of a gather, the first host receives the blocks of two ranks on other hosts; of a sum, what each of the other two
  -- adds to its two slices, and then their slices. If its two ranks received for themselves, it would be twice as much
  -- of the blocks and slices.
  it("receives what two ranks of a host want once", function()
    shell.write(home .. "/traffic.lua", hosts.received .. [[
      local comm, core, gm = require "ganymede.job.comm", require "ganymede.core", require "ganymede"
      gm.launch { parallel = {} }
      local n = 2 ^ 20 -- numbers of 4 bytes
      local t, whole = gm.full({ n }, core.rank()), gm.full({ 4 * n }, 1)
      local calls = { { "gather", function() comm.all_gather(t) end },
        { "sum", function() comm.all_reduce(whole) end } }
      for _, entry in ipairs(calls) do
        local name, call = entry[1], entry[2]
        comm.barrier()
        local before = received()
        comm.barrier()
        for _ = 1, 3 do gm.scope(call) end
        comm.barrier()
        if core.rank() == 0 then print(name, (received() - before) / (3 * 4 * n)) end
      end]])
    local results = start_recipe("traffic.lua"):finish()
    for rank = 0, 3 do assert.equal(0, results[rank].code, results[rank].err) end
    local blocks = {}
    for name, count in results[0].out:gmatch "(%a+)%s+([%d.]+)" do blocks[name] = tonumber(count) end
    assert.near(2, blocks.gather, 0.3, results[0].out) -- heads of packets, answers: some percent
    assert.near(6, blocks.sum, 0.6, results[0].out)
  end)

  -- Two ranks on each of two hosts, where the formulas say what each rank sends: every collective, and sections that
  -- fail and are given up.
  it("passes the specs of collectives and of sections", function()
    local words = { "spec", GANYMEDE_ROOT .. "/spec/comm/collectives_spec.lua",
      GANYMEDE_ROOT .. "/spec/comm/sections_spec.lua" }
    local results = plain_ranks.start(home, words, { ranks = 4, address = hosts.addresses[0],
      prefix = function(rank)
        return net:inside(math.floor(rank / 2)) .. " env -C " .. shell.quote(GANYMEDE_ROOT)
      end,
      env = function(rank) return { LOCAL_RANK = rank % 2, LOCAL_WORLD_SIZE = 2, SPEC_RANKS_HERE = 2 } end }):finish()
    for rank = 0, 3 do assert.equal(0, results[rank].code, results[rank].out .. results[rank].err) end
    for _, name in ipairs { "collectives_spec", "sections_spec" } do
      assert.matches(name .. "%.lua +[1-9]%d* passed %(", results[0].out) -- and status 0: none failed
    end
  end)

  for cut = 1, 2 do
    it(("ends soon where host %d is cut off, and names it"):format(cut), function()
      local job = start("--comm-timeout", "3")
      net:cut(cut)
      local began = core.now()
      go()
      local results = job:finish()
      local took = core.now() - began
      assert.is_true(took < 30, took)
      local said = ""
      for rank = 0, 3 do
        assert.is_true(results[rank].code == 7 or results[rank].code == 1, results[rank].err)
        if HOST[rank] ~= cut then said = said .. results[rank].err end
      end
      assert.is_truthy(said:find(("rank %d is on %s%d"):format(cut + 1, net.name, cut), 1, true), said)
      for other = 0, 2 do
        if other ~= cut then assert.is_nil(said:find(("is on %s%d"):format(net.name, other), 1, true), said) end
      end
    end)
  end
end)
