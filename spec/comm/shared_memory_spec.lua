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
        local windows = select(2, maps:read "*a":gsub("/memfd:ganymede", ""))
        maps:close()
        file:write(core.comm_transport(), ", ", windows)
        file:close()
      end]])
    finally(function() shell.remove(home) end)
    local shared, how = trained(home, "shared")
    assert.equal("shared memory, 3; shared memory, 3; shared memory, 3", how)
    local apart, messages = trained(home, "apart", { GANYMEDE_SHARED_MEMORY = "none" })
    assert.matches("^Open MPI [^,;]+, 0; Open MPI [^,;]+, 0; Open MPI [^,;]+, 0$", messages)
    local network, chosen = trained(home, "network", nil, { "--set", "parallel.transport=network" })
    assert.matches("^Open MPI [^,;]+, 0; Open MPI [^,;]+, 0; Open MPI [^,;]+, 0$", chosen)
    assert.is_true(#shared > 0)
    assert.same(apart, shared)
    assert.same(apart, network)
  end)
end)
