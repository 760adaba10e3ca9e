--- Ranks of one machine talk through memory that they share, but where they are told otherwise or cannot: with the same
-- numbers, and nothing is left of it anywhere (host/comm/window.h).
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- Trains on three ranks; the recipe says through what, and whether this process maps a window.
local function trained(home, name, env, settings)
  local arguments = { "run", "recipe.lua", "-n", "3", "--threads", "1", "--stats", name .. ".json" }
  for _, word in ipairs(settings or {}) do arguments[#arguments + 1] = word end
  local result = run_host(arguments, { cwd = home, env = env })
  assert.equal(0, result.code, result.err)
  local ranks = {}
  for rank = 0, 2 do
    ranks[rank + 1] = shell.read(home .. "/transport." .. rank)
    os.remove(home .. "/transport." .. rank)
  end
  return json.decode(shell.read(home .. "/" .. name .. ".json"), name).loss, table.concat(ranks, "; "), result
end

describe("ranks of one machine", function()
  it("share memory unless they are told not to, and compute the same bits either way", function()
    local home = support.home(support.training [[
      if trainer.step == 2 then
        local maps, file = assert(io.open "/proc/self/maps"), assert(io.open("transport." .. rank, "w"))
        local text = maps:read "*a"
        local windows = select(2, text:gsub("/memfd:ganymede ", ""))
        windows = windows + select(2, text:gsub("/memfd:ganymede%-tensors ", "")) / 10
        maps:close()
        file:write(core.comm_transport(), ", ", windows)
        file:close()
      end]])
    finally(function() shell.remove(home) end)
    local shared, how = trained(home, "shared")
    assert.equal("shared memory, 3.3; shared memory, 3.3; shared memory, 3.3", how) -- windows and arenas
    local apart, messages = trained(home, "apart", { GANYMEDE_SHARED_MEMORY = "none" })
    assert.matches("^Open MPI [^,;]+, 0; Open MPI [^,;]+, 0; Open MPI [^,;]+, 0$", messages)
    local network, chosen = trained(home, "network", nil, { "--set", "parallel.transport=network" })
    -- which a recipe may choose after the ranks have shared: each keeps its own arena, in which tensors may lie already
    assert.matches("^Open MPI [^,;]+, 0%.1; Open MPI [^,;]+, 0%.1; Open MPI [^,;]+, 0%.1$", chosen)
    assert.is_true(#shared > 0)
    assert.same(apart, shared)
    assert.same(apart, network)
  end)

  it("sum gradients in memory that all of them map", function()
    local home = support.home [[
      gm.launch { parallel = {} }
      local function used() -- KiB of arenas that this process has touched
        local sum, mine = 0, false
        for line in io.lines "/proc/self/smaps" do
          if line:find "^%x+%-%x+ " then mine = line:find("/memfd:ganymede-tensors", 1, true) ~= nil end
          if mine then sum = sum + tonumber(line:match "^Rss: *(%d+)" or 0) end
        end
        return sum
      end
      assert(used() == 0, "arenas cost something that nobody uses")
      local x = sum(gm.full({ 3 * 2 ^ 18 }, rank + 1, { shared = true }))
      assert(x:sum():item() == 6 * 3 * 2 ^ 18)
      local before = used()
      assert(before >= 3072, "shared = true lies elsewhere")
      local engine = gm.initialize { model = gm.nn.Linear { inputs = 512, outputs = 512 },
        optimizer = { type = "SGD", lr = 0.5 }, criterion = { type = "MSELoss" } }
      local input, target = gm.ones { 3, 512 }, gm.zeros { 3, 512 }
      engine:zero_grad()
      engine:backward(engine:criterion(engine(input), target))
      engine:step()
      assert(used() - before >= 1024, "gradients lie elsewhere")
      io.stdout:write(("rank %d is well\n"):format(rank))]]
    finally(function() shell.remove(home) end)
    local result = run_host({ "run", "recipe.lua", "-n", "3", "--threads", "1" }, { cwd = home })
    assert.equal(0, result.code, result.err)
    for rank = 0, 2 do assert.matches(("rank %d is well"):format(rank), result.out) end
  end)
end)
