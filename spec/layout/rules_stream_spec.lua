-- What models do with activations (batch, sequence, width) that are cut along several dimensions at once, unevenly.
-- ranks: 2 3 4
--
-- Meshes of one axis, and of two on 4 ranks; axes that a mesh lacks stand for nothing, so that one case serves all.
-- Whole runs are the truth; what draws and what picks must give the same bits.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local ops = gm.ops

local meshes = {
  [2] = { { { "row", 2 } }, { { "col", 2 } }, { { "sequence", 2 } } },
  [3] = { { { "row", 3 } }, { { "col", 3 } }, { { "sequence", 3 } } },
  [4] = { { { "row", 2 }, { "col", 2 } }, { { "sequence", 2 }, { "col", 2 } }, { { "row", 2 }, { "sequence", 2 } } },
}

local any = both.source(1200)
local laid = both.laid

local function mesh_name(mesh)
  local words = {}
  for i, axis in ipairs(mesh) do words[i] = axis[1] .. " " .. axis[2] end
  return table.concat(words, " x ")
end

local b, s, w = 5, 7, 10 -- none of which 2, 3 and 4 divide all
local stream = "row,sequence,col"

for _, mesh in ipairs(meshes[core.world()]) do
  describe("activations on " .. mesh_name(mesh) .. ":", function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    local function case(name, make, cuts, fn, more)
      it(name, function()
        local layouts = {}
        for i, text in ipairs(cuts) do layouts[i] = text and laid(text) end
        local options = { inputs = make(), cuts = layouts, fn = fn }
        for k, v in pairs(more or {}) do options[k] = v end
        both.agree(options)
      end)
    end

    case("positions, tables of one row and numbers of a column are added",
      function() return { any(b, s, w), any(1, s, w), any(s, w), any(b, s, 1), any(w) } end,
      { stream, "-,sequence,col", false, stream:gsub("col", "-"), "col" },
      function(x, one, whole, column, row) return (x + one) * whole + column * row - row, ops.maximum(x, whole) end)
    case("a class token goes before patches",
      function() return { any(b, s, w), any(1, 1, w), any(1, s + 1, w) } end, { "row,-,col", "-,-,col", "-,-,col" },
      function(x, token, positions)
        local y = ops.cat({ ops.expand(token, { b, 1, w }), x }, 2) + positions
        return y, y:narrow(2, 1, 1), ops.select(y, 2, 1)
      end)
    case("a whole class token goes before patches",
      function() return { any(b, s, w), any(1, 1, w) } end, { "row,-,col" },
      function(x, token) return ops.cat({ ops.expand(token, { b, 1, w }), x }, 2) end)
    case("joined along the width are parts that are whole there",
      function() return { any(b, s, 3), any(b, s, 4) } end, { "row,sequence,-", false },
      function(x, y) return ops.cat({ x, y, x }, 3) end)

    for _, i in ipairs { 1, s, -3 } do
      case(("slice %d of the sequence, a sum over the axis that cuts it"):format(i),
        function() return { any(b, s, w), any(w, w) } end, { stream, false },
        function(x, weight)
          local y = ops.select(x, 2, i)
          return core.settle(y), ops.square(y:settle()) + ops.select(x * 0.5, 2, i):settle(),
            ops.linear(core.redistribute(y, laid "row,-"), weight) -- reduced and gathered
        end)
    end
    it("a slice of rows that all axes cut, whatever is in the padding", function()
      gm.scope(function() -- of 5 rows on 2 x 2: blocks of 2, 1, 2 and 0, so that padding lies where another block is
        local whole, layout = any(5, w), laid "row.sequence.col,-"
        local x, inside = both.place(whole, layout), both.place(gm.ones({ 5, w }, { dtype = "f64" }), layout)
        local block = x:local_tensor()
        block:copy_(ops.where(inside:local_tensor():eq(0), both.POISON, block:clone()))
        for i = 1, 5 do assert.same(whole[i]:totable(), ops.select(x, 1, i):settle():totable()) end
      end)
    end)
    it("a slice of a dimension that is cut sends nothing until it is settled", function()
      gm.scope(function()
        local x = both.place(any(b, s, w), laid(stream))
        core.comm_reset_traffic()
        local y = ops.select(x, 2, s)
        assert.same({}, core.comm_traffic())
        assert.same(#core.layout(x).cuts[2] > 0 and { "sequence" } or {}, core.layout(y).partial)
        if #core.layout(y).partial == 0 then assert.equal(y, y:settle()) end
        assert.error_matches(function() ops.select(x, 2, s + 1) end, "select")
        assert.error_matches(function() ops.select(x, 1, 0) end, "select")
      end)
    end)

    local parameters = { "col", "col.row", "row", "row.col", "sequence", false }
    for _, text in ipairs(parameters) do
      case("norms with parameters that are laid out as " .. tostring(text or "a whole"),
        function() return { any(b, s, w), any(b, s, w), any(w), any(w) } end, { stream, stream, text, text },
        function(x, r, scale, shift)
          local y, sum = ops.add_layer_norm(x, r, scale, shift, 1e-5)
          local z, total = ops.add_rms_norm(r, sum, scale, 1e-6)
          return y, sum, z, total, ops.layer_norm(x, scale, nil, 1e-5), ops.rms_norm(x, scale, 1e-6)
        end)
    end

    for d = 1, 3 do
      case(("the largest entry along dimension %d"):format(d), function() return { any(b, s, w) } end, { stream },
        function(x)
          local largest, index = ops.max(x:detach(), d)
          local kept, again = ops.max(x:detach(), d - 4, true)
          return ops.argmax(x, d), ops.argmax(x, d, true), ops.argmax(x, d - 4), largest, index, kept, again
        end, { gradients = false, exact = true })
    end
  end)

  describe("parameters on " .. mesh_name(mesh) .. ":", function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    local distributions = {
      { kind = "constant", value = 0.25 },
      { kind = "uniform", low = -2, high = 1 },
      { kind = "normal", mean = 1, std = 2 },
      { kind = "normal", std = 1, truncated = true, low = -1, high = 1 },
    }
    local layouts = { "col,row", "row,col", "-,col.row", "row.col,-", "sequence,-", "col.row.sequence,-" }

    for _, dtype in ipairs { "f32", "f64" } do
      it("blocks are drawn with the bits of the whole, zeros in the padding, " .. dtype, function()
        gm.scope(function()
          for _, shape in ipairs { { 8, 12 }, { 7, 11 }, { 3, 5 }, { 1, 2 } } do
            for _, distribution in ipairs(distributions) do
              local whole = core.parameter("a.weight", shape, dtype, distribution)
              for _, text in ipairs(layouts) do
                local block = core.parameter("a.weight", shape, dtype, distribution, laid(text))
                local want = core.redistribute(whole:detach(), laid(text))
                assert.same(core.layout(want), core.layout(block))
                assert.is_true(block:requires_grad())
                assert.same(want:local_tensor():totable(), block:local_tensor():totable())
                assert.same(whole:totable(), block:totable())
              end
            end
          end
        end)
      end)
    end

    it("a row becomes zero in any layout, and only that", function()
      gm.scope(function()
        for _, text in ipairs(layouts) do
          for row = 1, 5 do
            local whole = any(5, 7)
            local block = core.redistribute(whole, laid(text)):clone()
            assert.equal(block, core.zero_row(block, row))
            whole:narrow(1, row, 1):fill_(0)
            assert.same(whole:totable(), block:totable())
          end
        end
        assert.error_matches(function() core.zero_row(any(5, 7), 6) end, "there is no such row")
        assert.error_matches(function() core.zero_row(any(5, 7), 0) end, "there is no such row")
      end)
    end)

    it("a layout that the mesh does not have is refused", function()
      local axis = mesh[1][1]
      local ones = { kind = "constant", value = 1 }
      local function make(layout) return core.parameter("p", { 6, 4 }, "f32", ones, layout) end
      assert.error_matches(function() make { cuts = { { axis }, { axis } } } end, axis)
      assert.error_matches(function() make { cuts = { {}, {}, { axis } } } end, "layout")
      assert.error_matches(function() make { partial = { axis } } end, "sum over ranks")
    end)

    it("numbers of blocks are compared, not only their layout", function()
      local one = core.parameter("p", { 9, 4 }, "f64", { kind = "normal", std = 1 }, laid "row.col.sequence,-")
      local other = core.parameter("q", { 9, 4 }, "f64", { kind = "normal", std = 1 }, laid "row.col.sequence,-")
      assert.is_true(numeric.relative_error(one, other) > 0.1)
    end)
  end)
end
