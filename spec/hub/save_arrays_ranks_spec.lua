-- Tensors that are cut over ranks and stages are written whole, and read back in pieces.
-- ranks: 4
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local ranks = require "ganymede.job.ranks"
local shell = require "spec.support.shell"

-- A folder of rank 0, which the others know.
local function folder()
  local path = ranks.from_first(shell.temporary_folder)
  finally(function()
    gm.comm.barrier()
    if core.rank() == 0 then shell.remove(path) end
  end)
  return path
end

describe("arrays that ranks write together", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", 2 }, { "tensor", 2 }) end)

  for _, layout in ipairs { "data,-", "-,tensor", "tensor,data", "-,-" } do
    it("hold tensors cut as " .. layout .. ", also from pieces", function()
      local path = folder() .. "/m.safetensors"
      local whole = gm.normal { 5, 7 }
      gm.save_arrays(path, { { "x", core.redistribute(whole, both.laid(layout)) } })
      local file = gm.open_arrays(path)
      assert.same(whole:totable(), file:read("x"):totable())
      local t = core.redistribute(gm.ones { 7, 5 }, both.laid(layout))
      file:read_pieces(t, { { name = "x", at = { 3, 1 }, size = { 5, 5 }, offset = { 1, 3 }, transpose = true },
        { name = "x", at = { 1, 1 }, size = { 2, 5 }, offset = { 1, 1 }, transpose = true } })
      assert.same(whole:transpose(1, 2):totable(), t:gather():totable())
      file:close()
    end)
  end

  it("hold a parameter that rests in parts", function()
    local path = folder() .. "/m.safetensors"
    local p = core.parameter("p", { 5, 3 }, "f64", { kind = "normal", mean = 0, std = 1 })
    local before = p:gather():totable()
    core.parameter_store(p, { "data" }, 0)
    gm.save_arrays(path, { { "p", p } })
    local file = gm.open_arrays(path)
    assert.same(before, file:read("p"):totable())
    file:close()
  end)

  it("fail on all ranks where rank 0 cannot write", function()
    local ok, err = pcall(gm.save_arrays, folder() .. "/none/m.safetensors", { { "x", gm.ones { 2 } } })
    assert.is_false(ok)
    assert.matches("cannot write", failure.text(err))
    assert.equal(1, failure.code(err))
  end)
end)

describe("arrays that stages write together", function()
  both.in_f64(setup, teardown, function() both.mesh({ "pipeline", 2 }, { "tensor", 2 }) end)

  it("are those of all stages, each once", function()
    local path, stage = folder() .. "/m.safetensors", (ranks.stage())
    local a, b = gm.normal { 3, 5 }, gm.normal { 2 }
    local x = core.redistribute(stage == 0 and a or a * 2, both.laid "tensor,-")
    gm.save_arrays(path, { { stage == 0 and "first" or "second", x }, { "shared", b } })
    local file = gm.open_arrays(path)
    assert.same({ "first", "second", "shared" }, file:names())
    assert.same(a:totable(), file:read("first"):totable())
    assert.same((a * 2):totable(), file:read("second"):totable())
    assert.same(b:totable(), file:read("shared"):totable())
    file:close()
  end)
end)
