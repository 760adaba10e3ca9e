-- Gradients that are sums over a tensor axis, on their way down through chains of ops: each is summed where a value
-- that the axis cuts needs it, and no sooner.
-- ranks: 2 3 4
--
-- Chains of what models do, one activation replicated over an axis used with one that it cuts, against whole runs in
-- f64.
-- sanitizers: at most 2 ranks, more of them run the same lines of C
local gm = require "ganymede"
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local ops = gm.ops

local meshes = {
  [2] = { { { "col", 2 } }, { { "row", 2 } } },
  [3] = { { { "col", 3 } }, { { "row", 3 } } },
  [4] = { { { "row", 2 }, { "col", 2 } }, { { "data", 2 }, { "col", 2 } }, { { "col", 4 } } },
}

local any = both.source(2400)
local laid = both.laid

local function to(x, text) return core.redistribute(x, laid(text)) end

local function classes(n, below)
  local list = {}
  for i = 1, n do list[i] = (5 * i) % below end
  return gm.tensor(list, { dtype = "i64" })
end

local b, w, h = 7, 5, 6

for _, mesh in ipairs(meshes[core.world()]) do
  local words = {}
  for i, axis in ipairs(mesh) do words[i] = axis[1] .. " " .. axis[2] end
  describe("gradients on " .. table.concat(words, " x ") .. ":", function()
    both.in_f64(setup, teardown, function() both.mesh(unpack(mesh)) end)

    local function case(name, make, cuts, fn)
      it(name, function()
        local layouts = {}
        for i, text in ipairs(cuts) do layouts[i] = text and laid(text) end
        both.agree { inputs = make(), cuts = layouts, fn = fn }
      end)
    end

    case("a replicated activation times one that is cut, below it a norm and a product",
      function() return { any(b, w), any(w, w), any(w), any(w), any(b, w) } end,
      { "data.row,-", false, "col", "col.row" },
      function(x, weight, scale, shift, other)
        local whole = ops.layer_norm(ops.linear(x, weight), scale, shift) -- its gradient will be a sum over col
        return whole * to(other, "data.row,col"), whole + to(other, "data,-")
      end)
    case("the same where the whole activation was gathered from one that is cut",
      function() return { any(b, w), any(w), any(b, w) } end, { "data.row,col", "col.row", "-,col" },
      function(x, scale, other)
        local cut = ops.rms_norm(x, scale)
        local whole = to(cut, "data.row,-")
        return whole * to(other, "data.row,col"), whole * 2, to(cut * 0.5, "data.row,-") * other
      end)
    case("a parameter that is cut, gathered and used with what is cut otherwise",
      function() return { any(w, h), any(b, h), any(h) } end, { "col,row", "data.row,-", "row.col" },
      function(weight, x, bias)
        local y = ops.linear(x, to(weight, "-,-"))
        return y * to(ops.square(y), "data.row,col"), to(bias, "-") * to(x, "data.row,col")
      end)
    case("a residual stream of a product that is cut over its inner dimension",
      function() return { any(b, w), any(h, w), any(w, h), any(w), any(w) } end,
      { "data.row,-", "col,-", "-,col", false, "col" },
      function(x, up, down, scale, factor)
        local stream = x
        for _ = 1, 3 do
          local y = ops.linear(ops.gelu(ops.linear(ops.rms_norm(stream, scale), up)), down)
          stream = stream + y:settle()
        end
        return stream * factor, stream
      end)
    case("losses of classes that are cut, cut further along the axis of the classes",
      function() return { any(b, w), any(h, w), classes(b, h), any(b) } end,
      { "data.row,-", "col,-", "data.row", "data.row.col" },
      function(x, weight, target, factor)
        local loss = ops.cross_entropy(ops.linear(x, weight), target, { label_smoothing = 0.1 })
        return loss * factor, ops.square(loss)
      end)
    case("rows of a table that is cut, used whole and cut",
      function() return { any(h, w), classes(b, h), any(b, w), any(w) } end,
      { "col,-", "data.row", "data.row,-", "row" },
      function(table, ids, x, factor)
        local y = ops.embedding(table, ids):settle()
        return y * to(x, "data.row,col"), y * to(factor, "-"), ops.embedding(table, ids) * 3
      end)
    case("a slice of a dimension that is cut",
      function() return { any(b, w, h), any(b, h) } end, { "data.row,col,-", "data.row,-" },
      function(x, other)
        local first = ops.select(x * x, 2, 3)
        return first, first * other, first:settle() * to(other, "data.row,col"), ops.square(first:settle())
      end)
    case("slices side by side, used whole and cut",
      function() return { any(b, 4, 2, 3, 3), any(3, 3), any(b, 4, 2, 3) } end, { "data.row,-,-,-,-" },
      function(qkv, factor, other)
        local q, k, v = ops.unbind(qkv * factor, 4)
        local o = ops.attention(q, k, v, { causal = true }) -- its gradient will be a sum over col
        return o * to(other, "data.row,col"), to(v * 2, "data.row,-,col"), q * other
      end)
    case("norms and sums over a width that is cut",
      function() return { any(b, w), any(w), any(w) } end, { "data.row,col", "col.row" },
      function(x, scale, other)
        local y, sum = ops.add_layer_norm(x, x * other, scale, other)
        local mean = y:mean(2, true):settle() -- a number a row, used with what is cut
        return mean * sum, y * to(other, "col"), sum:sum(2):settle() * y:sum(2):settle()
      end)
    case("a custom function that gathers inside, and gives one output that is cut and one that is not",
      function() return { any(b, w), any(b, w) } end, { "data.row,col", "data.row,-" },
      function(x, other)
        local double = gm.custom {
          forward = function(t) return t * 3, core.redistribute(t, { cuts = { core.layout(t).cuts[1], {} } }) end,
          backward = function(cut, whole) -- whole may be a sum over col, which cuts x
            cut = cut:settle()
            return cut * 3 + core.redistribute(whole:settle(), core.layout(cut))
          end,
        }
        local y, z = double(x)
        return y * y, z * to(other, "data.row,col"), z * other
      end)
  end)
end
