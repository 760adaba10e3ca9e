--- A few bytes of everybody (core.comm_tell): every member has those of all, in order of the group, whatever the number
-- of members.
-- ranks: 1 2 3 5
local core = require "ganymede.core"

local rank, world = core.rank(), core.world()

describe("a few bytes of everybody", function()
  setup(function() core.set_mesh { { "data", world } } end)

  it("are the same on all, in order of the group", function()
    for n = 1, 40, 13 do
      local want = {}
      for i = 0, world - 1 do want[#want + 1] = string.char(48 + i):rep(n) end
      for _ = 1, 3 do assert.equal(table.concat(want), core.comm_tell("data", string.char(48 + rank):rep(n))) end
    end
    assert.equal(("\0\255"):rep(world), core.comm_tell("data", "\0\255"))
  end)

  it("cost each member a message for each doubling of the group", function()
    local function sent()
      local bytes = 0
      for _, e in ipairs(core.comm_traffic()) do
        if e.op == "exchange" then bytes = bytes + e.bytes end
      end
      return bytes
    end
    local before = sent()
    core.comm_tell("data", "0123456789abcdef")
    assert.equal(16 * (world - 1), sent() - before)
  end)

  it("are one to 256", function()
    assert.error_matches(function() core.comm_tell("data", "") end, "0 bytes of each member of group data: 1 to 256")
    assert.error_matches(function() core.comm_tell("data", ("x"):rep(257)) end, "257 bytes of each member")
  end)
end)
