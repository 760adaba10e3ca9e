--- Which ranks share a machine, and whose memory keeps a copy: each rank but those of a single machine has one keeper,
-- on the next machine, and no machine keeps its own.
-- sanitizers: no, it holds Lua alone
local machines = require "ganymede.checkpoint.machines"

local function keepers(names)
  local list = {}
  for name in names:gmatch "." do list[#list + 1] = name end
  local found = machines.of(list)
  return found, machines.keepers(found)
end

describe("machines of ranks", function()
  it("stand in the order of their first ranks", function()
    local list = keepers "baba"
    assert.same({ { name = "b", ranks = { 0, 2 } }, { name = "a", ranks = { 1, 3 } } }, list)
  end)

  it("keep copies for the machine before them, the same place for the same place", function()
    for names, wanted in pairs {
      aabb = { [0] = 2, 3, 0, 1 },
      abc = { [0] = 1, 2, 0 },
      aaab = { [0] = 3, 3, 3, 0 }, -- machines with different numbers of ranks
      abbb = { [0] = 1, 0, 0, 0 },
      aaabbc = { [0] = 3, 4, 3, 5, 5, 0 },
      aaa = {}, -- there is no neighbour
    } do
      local list, found = keepers(names)
      assert.same(wanted, found, names)
      for rank, keeper in pairs(found) do
        for _, entry in ipairs(list) do
          local both = { [rank] = false, [keeper] = false }
          for _, other in ipairs(entry.ranks) do both[other] = true end
          assert.is_false(both[rank] and both[keeper])
        end
      end
    end
  end)

  it("have names that can stand in the name of a file, and differ from one start of the system to another", function()
    local name = machines.here()
    assert.matches("^[%w._-]+$", name)
    local boot = io.open("/proc/sys/kernel/random/boot_id"):read "*a":match "^%x+"
    assert.is_truthy(name:find("-" .. boot, 1, true))
  end)
end)
