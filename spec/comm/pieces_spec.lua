--- A message that is longer than a transport takes at once (1 GiB) goes in pieces, which keep their order.
--
-- ranks: 2
-- sanitizers: no, two tensors of 1 GiB are slow there; spec/unit/comm_windows_test.c looks at the same code
local comm = require "ganymede.job.comm"
local core = require "ganymede.core"
local gm = require "ganymede"

local MOST = 2 ^ 30 -- GM_MESSAGE_MAX of host/comm/transport.h

describe("a broadcast of more than one message", function()
  setup(function() core.set_mesh { { "data", core.world() } } end)

  -- A short piece could go at once, before the long one; then sizes or contents are wrong.
  it("ends with a piece of a few bytes", function()
    local t = gm.zeros({ MOST + 64 }, { dtype = "u8" })
    if core.rank() == 0 then
      t:narrow(1, 1, 64):fill_(5)
      t:narrow(1, MOST + 1, 64):fill_(7)
    end
    comm.broadcast(t, "data", 0)
    for _, case in ipairs { { 1, 64 * 5 }, { 65, 0 }, { MOST - 63, 0 }, { MOST + 1, 64 * 7 } } do
      assert.equal(case[2], t:narrow(1, case[1], 64):to("f32"):sum():item())
    end
  end)
end)
