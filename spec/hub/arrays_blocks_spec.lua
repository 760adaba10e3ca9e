-- Arrays that are read into tensors which are cut over ranks: each rank reads its own block, and padding is zero.
-- ranks: 4
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local golden = require "spec.golden.read"
local ops = gm.ops

local here = GANYMEDE_ROOT .. "/spec/golden/"

describe("an array that is read into blocks", function()
  both.in_f64(setup, teardown, function() both.mesh({ "data", 2 }, { "tensor", 2 }) end)

  local truth = golden "arrays_expected"
  local cases = { -- file, array, its numbers: shapes (3, 64), (4, 3, 2) and (3, 5), which two ranks cut unevenly
    { "arrays.gguf", "Q8_0", "gguf/Q8_0" }, { "arrays_fortran.npy", "", "fortran" },
    { "arrays.safetensors", "BF16", "st/BF16" },
  }
  for _, case in ipairs(cases) do
    for _, layout in ipairs { "data,-", "-,tensor", "data,tensor", "tensor,data" } do
      it(("%s %s as %s"):format(case[1], case[2], layout), function()
        local file, whole = gm.open_arrays(here .. case[1]), truth:tensor(case[3])
        local t = core.redistribute(gm.ones(whole:shape()), both.laid(layout))
        file:read_into(case[2], t)
        assert.equal(layout, (both.describe(t):gsub(",%-$", whole:dim() == 3 and "" or "%0")))
        assert.same(whole:totable(), t:gather():totable())
        -- Padding is zero. The order of sums differs: some dozens of roundings of the largest sum.
        assert.near(whole:sum():item(), ops.sum(t):gather():item(), 1e-11)
        local turned = whole:permute(unpack(whole:dim() == 3 and { 3, 2, 1 } or { 2, 1 })):contiguous()
        t = core.redistribute(gm.ones(turned:shape()), both.laid(layout))
        file:read_into(case[2], t, { transpose = true })
        assert.same(turned:totable(), t:gather():totable())
        file:close()
      end)
    end
  end

  it("goes into a parameter that rests in parts", function()
    local file, whole = gm.open_arrays(here .. "arrays.safetensors"), truth:tensor "st/F32"
    local p = core.parameter("p", whole:shape(), "f64", { kind = "constant", value = 1 })
    core.parameter_store(p, { "data" }, 0)
    file:read_into("F32", p)
    assert.same(whole:totable(), p:gather():totable())
    file:close()
  end)
end)
