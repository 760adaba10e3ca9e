-- Which rank stands for which: roles by the coordinates of ranks, against a search by hand.
local representatives = require "ganymede.plan.representatives"

local meshes = {
  {}, { { name = "data", size = 2 } }, { { name = "data", size = 5 }, { name = "pipeline", size = 4 } },
  { { name = "data", size = 4 }, { name = "sequence", size = 5 }, { name = "tensor", size = 3 } },
}
local whole = { pipeline = true, sequence = true }

local function coordinates(mesh, rank)
  local out = {}
  for i = #mesh, 1, -1 do out[i], rank = rank % mesh[i].size, math.floor(rank / mesh[i].size) end
  return out
end

-- Whether two coordinates have one role.
local function alike(axis, a, b)
  local function between(at) return at > 0 and at < axis.size - 1 end
  return a == b or (not whole[axis.name] and between(a) and between(b))
end

describe("representatives", function()
  for i, mesh in ipairs(meshes) do
    it(("stand for the ranks of mesh %d that have their role"):format(i), function()
      local list, of = representatives.list(mesh, whole), representatives.of(mesh, whole)
      local used = {}
      for rank = 0, #of - 1 do
        local role = list[of[rank + 1]]
        used[of[rank + 1]] = true
        local own, other = coordinates(mesh, rank), coordinates(mesh, role.rank)
        for a, axis in ipairs(mesh) do assert.is_true(alike(axis, own[a], other[a])) end
      end
      assert.equal(#list, #used)
      for place, role in ipairs(list) do assert.equal(place, of[role.rank + 1]) end
    end)
  end

  it("name the axes along which one stands for several", function()
    assert.same({ "data" }, representatives.folded(meshes[3], whole))
    assert.same({ "data", "pipeline" }, representatives.folded(meshes[3]))
    assert.same({}, representatives.folded(meshes[2]))
  end)
end)
