-- Ops on tensors cut along other dimensions than rows, by other axes than data, and by several.
-- ranks: 4
--
-- The layouts are those of 1D tensor parallelism (columns, then rows of weights; heads; features of embeddings) and of
-- cut sequences, on a mesh of data 2 and tensor 2, and on 4 ranks of one axis where sizes are uneven.
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local any = both.source(400)
local laid = both.laid

describe("rules of layouts on other axes:", function()
  both.in_f64(setup, teardown)

  -- make() -> inputs; cuts: a text or false for each
  local function case(name, mesh, expect, make, cuts, fn, more)
    it(name, function()
      both.mesh(unpack(mesh))
      local layouts = {}
      for i, text in ipairs(cuts) do layouts[i] = text and laid(text) end
      local options = { inputs = make(), cuts = layouts, fn = fn, expect = expect }
      for k, v in pairs(more or {}) do options[k] = v end
      both.agree(options)
    end)
  end

  local grid = { { "data", 2 }, { "tensor", 2 } }
  local line = { { "tensor", 4 } }

  for _, n in ipairs { 8, 7, 3 } do
    local named = function(text) return ("%s, %d rows"):format(text, n) end
    case(named "a linear layer cut by columns", grid, "data,tensor",
      function() return { any(n, 6), any(8, 6), any(8) } end, { "data,-", "tensor,-", "tensor" },
      function(x, w, b) return ops.linear(x, w, b, "gelu"), ops.linear(x, w) end)
    case(named "a linear layer cut by rows", grid, "data,- partial tensor",
      function() return { any(n, 8), any(5, 8), any(5) } end, { "data,tensor", "-,tensor", false },
      function(x, w, b) return ops.linear(x, w, b), ops.linear(x, w) end)
    case(named "the two together", grid, "data,-",
      function() return { any(n, 6), any(8, 6), any(8), any(3, 8), any(3) } end,
      { "data,-", "tensor,-", "tensor", "-,tensor", false }, function(x, w, b, v, c)
        local y = ops.linear(ops.linear(x, w, b, "gelu"), v, c)
        return core.redistribute(y, laid "data,-") * 2 + x:narrow(2, 1, 3)
      end)
    case(named "heads", grid, "data,-,tensor,-",
      function() return { any(n, 5, 4, 3, 2), any(n, 5, 4, 2), any(n, 5, 2, 2), any(n, 5, 2, 2) } end,
      { "data,-,tensor", "data,-,tensor", "data,-,tensor", "data" }, function(qkv, q, k, v)
        return ops.attention_packed(qkv, { causal = true, dropout = 0.3 }), ops.attention(q, k, v, { dropout = 0.2 })
      end)
  end

  case("uneven columns", line, "-,tensor", function() return { any(3, 5), any(10, 5), any(10) } end,
    { false, "tensor,-", "tensor" }, function(x, w, b) return ops.linear(x, w, b, "silu") end)
  case("uneven inner dimensions", line, "-,- partial tensor", function() return { any(3, 10), any(4, 10), any(4) } end,
    { "-,tensor", "-,tensor", false },
    function(x, w, b) return ops.linear(x, w, b), ops.matmul(x, w:transpose(1, 2)) end)
  case("an inner dimension that is sliced", line, "-,- partial tensor",
    function() return { any(3, 10), any(4, 10) } end, { false, "-,tensor" },
    function(x, w) return ops.linear(x, w), ops.linear(w, x) end)
  case("features of an embedding", line, "-,-,tensor", function()
    return { any(5, 6), gm.tensor({ { 0, 4, 1 }, { 2, 2, 3 } }, { dtype = "i64" }) }
  end, { "-,tensor", false }, function(w, i) return ops.embedding(w, i) end)
  case("a cut sequence", line, "-,tensor,-", function() return { any(2, 10, 3), any(3), any(10, 3) } end,
    { "-,tensor,-" }, function(x, w, positions)
      return ops.layer_norm(x + positions, w), ops.dropout(x, 0.4), x:sum(3, true) * x, ops.softmax(x)
    end)
  case("bits of dropout in a cut sequence", line, "-,tensor,-", function() return { any(2, 10, 3) } end,
    { "-,tensor,-" }, function(x) return ops.dropout(x, 0.4) end, { exact = true })
  case("sums over two cut dimensions", grid, " partial data.tensor", function() return { any(7, 3) } end,
    { "data,tensor" }, function(x) return x:sum(), x:mean(), x:sum(1), x:sum(2) end)
  case("a row of each and a column of each", grid, "data,tensor",
    function() return { any(7, 3), any(3), any(7, 1) } end, { "data,-", "tensor", "data,-" },
    function(x, w, c) return x * w + c, x + w end)
  case("one dimension cut twice", grid, "data.tensor,-", function() return { any(10, 3), any(10, 3), any(3) } end, {},
    function(x, y, w)
      local cut = core.redistribute(x, { cuts = { { "data", "tensor" } } })
      return cut * y + w, (cut * core.redistribute(y, laid "data,-")):sum(2), cut:sum(1) * w
    end)
  case("views of what is cut inside", grid, "data,tensor,-,-", function() return { any(6, 4, 2, 3) } end,
    { "data,tensor,-,-" }, function(x)
      return x:reshape(6, 4, 3, 2), x:reshape(6, 4, -1), x:reshape(6, 2, 2, 6), x:permute(4, 1, 3, 2), x:select(3, 2)
    end)

  it("has the same numbers in a block as in the whole, also where it is uneven", function()
    both.mesh(unpack(line))
    gm.scope(function()
      local x = core.redistribute(any(4, 6), laid "-,tensor")
      local shape = x:local_tensor():shape()
      assert.same({ 4, 2 }, shape)
      assert.same({ 4, 6 }, x:shape())
      x:set(3, 5, 41)
      assert.equal(41, x:get(3, 5))
      x:fill_(2)
      assert.equal(48, x:sum():item())
      x:copy_(gm.ones { 4, 6 })
      assert.equal(24, x:sum():item())
    end)
  end)
end)
