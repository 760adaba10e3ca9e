-- Convolutions whose channels lie in blocks on q x q ranks (2D tensor parallelism): values, gradients and padding are
-- those of whole tensors, and what is sent follows the formula of host/parallel/sharded/convolution.h.
-- ranks: 4 8 9
--
-- Everything is f64 and agrees to 1e-12 (both.TOLERANCE), with NaN wherever no zeros are promised. Channels and samples
-- divide evenly and unevenly; with one channel of x, or two on 3 x 3 ranks, some ranks have none. On 8 ranks a third
-- axis cuts samples, or the first dimension of space.
-- luacheck: globals finally
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local padding = require "spec.support.padding"
local ops = gm.ops

local world, any = core.world(), both.source(2600)
local q = world == 9 and 3 or 2
local third = world == 8

local function mesh(name)
  if third then core.set_mesh { { name, 2 }, { "row", 2 }, { "col", 2 } }
  else core.set_mesh { { "row", q }, { "col", q } } end
end

-- Space of a tensor behind its first two dimensions: whole, or the first cut.
local function laid(first, second, dims, cut)
  local layout = { cuts = { first, second } }
  for d = 3, dims do layout.cuts[d] = d == 3 and cut and { "sequence" } or {} end
  return layout
end

-- In the run on whole copies (both.agree).
local function is_whole(x) return #(core.layout(x).cuts[1] or {}) == 0 end

-- Sizes of x, of w, options.
local convolutions = {
  { "even channels", { 4, 4, 6 }, { 8, 4, 3 }, { padding = 1 } },
  { "uneven channels and samples, an activation", { 5, 5, 7 }, { 7, 5, 3 }, { padding = 1, activation = "gelu" } },
  { "one channel of x", { 3, 1, 6 }, { 4, 1, 3 }, { stride = 2, activation = "silu" } },
  { "two channels of x, one of y", { 2, 2, 6, 4 }, { 1, 2, 3, 2 }, { stride = { 2, 1 }, padding = { 1, 0 } } },
  { "two dimensions, a stride and a dilation", { 3, 6, 9, 7 }, { 5, 6, 3, 2 },
    { stride = 2, dilation = { 2, 1 }, padding = { { 1, 2 }, 0 }, activation = "relu" } },
  { "three dimensions", { 2, 3, 4, 4, 3 }, { 4, 3, 3, 3, 2 }, { padding = { 1, 1, 0 } } },
}
local transposed = {
  { "doubles sizes", { 3, 4, 5 }, { 4, 6, 2 }, { stride = 2, activation = "gelu" } },
  { "uneven, what is longer", { 2, 5, 4, 3 }, { 5, 3, 4, 2 },
    { stride = 2, padding = { 1, 0 }, output_padding = { 1, 0 } } },
}

-- Both ways in which w can lie, its output channels in dimension `out`.
local function each_way(out, fn)
  for _, way in ipairs { { "col", "row" }, { "row", "col" } } do
    local cuts = { { way[1] }, { way[2] } }
    if out == 2 then cuts[1], cuts[2] = cuts[2], cuts[1] end
    fn(cuts, table.concat(way, ", "))
  end
end

local function agree(op, case, out, w_cuts, samples, cut_space)
  local dims = #case[2]
  local made = laid(samples, { "col" }, dims, cut_space)
  padding.poisoned(function()
    both.agree {
      inputs = { any(unpack(case[2])), any(unpack(case[3])), any(case[3][out]) },
      cuts = { made, laid(w_cuts[1], w_cuts[2], dims), out == 1 and { cuts = { { "col" } } } or false },
      fn = function(x, w, b) return op(x, w, b, case[4]) end,
      expect = table.concat({ table.concat(samples, "."), "col", cut_space and "sequence" or "-",
        dims > 3 and "-" or nil, dims > 4 and "-" or nil }, ","),
    }
  end)
end

describe("channels in blocks:", function()
  both.in_f64(setup, teardown, function() mesh "data" end)

  local samples = third and { "data", "row" } or { "row" }
  for kind, list in pairs { [1] = convolutions, [2] = transposed } do
    for _, case in ipairs(list) do
      each_way(kind, function(cuts, way)
        it(("a %sconvolution, w (%s): %s"):format(kind == 2 and "transposed " or "", way, case[1]), function()
          agree(kind == 2 and ops.transposed_convolution or ops.convolution, case, kind, cuts, samples)
        end)
      end)
    end
  end

  it("a deep stack of them", function()
    local more, layouts = {}, { laid(samples, { "col" }, 4) }
    for i = 1, 5 do
      more[i] = any(5, 5, 3, 3)
      layouts[i + 1] = i % 2 == 1 and laid({ "col" }, { "row" }, 4) or laid({ "row" }, { "col" }, 4)
    end
    padding.poisoned(function()
      both.agree { inputs = { any(5, 5, 6, 5), unpack(more) }, cuts = layouts, fn = function(x, ...)
        for _, w in ipairs { ... } do
          x = ops.add(x, (ops.batch_norm(ops.convolution(x, w, nil, { padding = 1, activation = "gelu" }))))
        end
        return x
      end }
    end)
  end)

  it("a weight without a gradient, and an image without one", function()
    local x, w, space = any(4, 4, 6), any(6, 4, 3), laid(samples, { "col" }, 3)
    both.agree { inputs = { x }, cuts = { space }, fn = function(y)
      return ops.convolution(y, is_whole(y) and w or core.redistribute(w, laid({ "col" }, { "row" }, 3)))
    end }
    both.agree { inputs = { w, any(6) }, cuts = { laid({ "row" }, { "col" }, 3) }, fn = function(v, b)
      return ops.convolution(is_whole(v) and x or core.redistribute(x, space), v, b)
    end }
  end)

  local function refused(text, x, w)
    gm.scope(function()
      local ok, why = pcall(ops.convolution, x, w)
      assert.is_false(ok)
      assert.matches(text, why, 1, true)
    end)
  end

  if third then
    it("are refused where an operand is a sum over ranks", function()
      local x = core.redistribute(any(2, 4, 6), laid({ "row" }, { "col" }, 3))
      refused("still a sum over ranks", x,
        core.redistribute(any(2, 4, 4, 3), { cuts = { { "data" }, { "col" }, { "row" } } }):sum(1))
    end)
    return
  end

  -- The sum over all ranks of a number of each.
  local function of_all(n)
    local t = core.redistribute(gm.tensor({ n }, { dtype = "f64" }):expand { q * q }:contiguous(),
      { cuts = { { "row", "col" } } })
    t:local_tensor():fill_(n)
    return t:sum():settle():item()
  end

  for _, case in ipairs(convolutions) do
    each_way(1, function(cuts, way)
      it(("send blocks of two operands, w (%s): %s"):format(way, case[1]), function()
        gm.scope(function()
          local dims = #case[2]
          local x = core.redistribute(any(unpack(case[2])), laid({ "row" }, { "col" }, dims)):detach()
          local w = core.redistribute(any(unpack(case[3])), laid(cuts[1], cuts[2], dims)):detach()
          x, w = x:requires_grad(true), w:requires_grad(true)
          local forward, y = both.sent(function() return ops.convolution(x, w, nil, case[4]) end)
          local g = core.redistribute(gm.ones(y:shape(), { dtype = "f64" }), laid({ "row" }, { "col" }, dims))
          local backward = both.sent(function() y:backward(g) end)
          local blocks = w:local_tensor():numel() + (cuts[1][1] == "col" and x or y):local_tensor():numel()
          local all = (q - 1) * q * q * blocks * 8
          assert.equal(all, of_all(forward))
          assert.equal(2 * all, of_all(backward))
        end)
      end)
    end)
  end

  it("are joined as whole images are, by two exchanges", function()
    gm.context.load_config { parallel = { tensor = { size = q * q, mode = "2d" } } }
    finally(function()
      gm.context.load_config {}
      mesh()
    end)
    local space, join = laid({ "row" }, { "col" }, 4), gm.nn.stream.join_channels
    padding.poisoned(function()
      for _, c in ipairs { { 4, 3 }, { 1, 5 } } do
        both.agree { inputs = { any(5, c[1], 3, 2), any(5, c[2], 3, 2) }, cuts = { space, space },
          expect = "row,col,-,-",
          fn = function(a, b) return is_whole(a) and ops.cat({ a, b }, 2) or join(a, b) end }
      end
    end)
    gm.scope(function()
      local n = q * q
      local a = core.redistribute(any(n, 2 * q, 3, 2), space):detach()
      local b = core.redistribute(any(n, q, 3, 2), space):detach()
      local blocks = a:local_tensor():numel() + b:local_tensor():numel()
      assert.equal(2 * blocks * (q - 1) / q * 8, (both.sent(function() return join(a, b) end)))
    end)
  end)

  -- Groups of a block are those of its channels: even, of one channel each, and where w and b alone are cut.
  it("are normalised in groups, where none is cut", function()
    for _, c in ipairs { { 2 * q, q, true }, { 2 * q, q, false }, { q + 1, q + 1, true }, { q + 1, q + 1, false } } do
      local x_cuts = laid({ "row" }, c[3] and { "col" } or {}, 4)
      both.agree { inputs = { any(5, c[1], 3, 2), any(c[1]), any(c[1]) },
        cuts = { x_cuts, { cuts = { { "col" } } }, { cuts = { { "col" } } } }, expect = "row,col,-,-",
        fn = function(x, w, b) return core.group_norm(x, c[2], w, b, 1e-5) end }
    end
    gm.scope(function()
      local x, w = any(4, 2 * (q + 1), 3), core.redistribute(any(2 * (q + 1)), { cuts = { { "col" } } })
      assert.error_matches(function() core.group_norm(x, q + 1, w, nil, 1e-5) end, "a group of channels is cut")
    end)
  end)

  it("are refused where blocks do not fit", function()
    gm.scope(function()
      local three = core.redistribute(any(2, q + 1, 2, 6), laid({ "row" }, { "col" }, 4)) -- pairs of channels
      local w = core.redistribute(any(4, 2 * q + 2, 3), laid({ "col" }, { "row" }, 3))
      refused("cut into blocks of another size", three:reshape(2, 2 * q + 2, 6), w)
    end)
  end)

end)

if third then
  describe("channels in blocks of images that ranks share:", function()
    both.in_f64(setup, teardown, function() mesh "sequence" end)
    for kind, list in pairs { [1] = convolutions, [2] = transposed } do
      for _, case in ipairs(list) do
        each_way(kind, function(cuts, way)
          it(("a %sconvolution, w (%s): %s"):format(kind == 2 and "transposed " or "", way, case[1]), function()
            agree(kind == 2 and ops.transposed_convolution or ops.convolution, case, kind, cuts, { "row" }, true)
          end)
        end)
      end
    end
  end)
end
